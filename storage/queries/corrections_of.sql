-- What became of the corrections of trajectory $trajectory_id that hold, and which trajectory tells that, if any tried them.
SELECT review_id, state, tried_by FROM people_corrections WHERE trajectory_id = $trajectory_id
