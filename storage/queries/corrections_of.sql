-- Read the state of the corrections of trajectory $trajectory_id that hold, the trajectory that tried each (if any),
-- and whether the correction replaces the recorded step.
SELECT review_id, state, tried_by, replaces FROM people_corrections WHERE trajectory_id = $trajectory_id
