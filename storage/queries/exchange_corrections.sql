-- Read the reviewers' corrections of recorded steps, for an export.
SELECT trajectory_id, step, action, thought, state, replaces FROM people_corrections
