-- Read the thoughts that reviewers replaced without changing the action, for an export.
SELECT trajectory_id, step, better FROM thoughts WHERE better IS NOT NULL
