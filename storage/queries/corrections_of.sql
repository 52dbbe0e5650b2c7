-- What became of the corrections of trajectory $trajectory_id that hold, which trajectory tells that, if any tried them, and
-- whether the recorded steps gave way to them.
SELECT review_id, state, tried_by, replaces FROM people_corrections WHERE trajectory_id = $trajectory_id
