-- What became of the corrections of trajectory $name that hold, and which trajectory tells that, if any tried them.
SELECT review_id, state, tried_by FROM people_corrections WHERE trajectory_id = $name
