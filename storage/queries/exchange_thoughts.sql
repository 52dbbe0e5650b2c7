-- What people put in the place of steps' thoughts while the action stayed, for an export.
SELECT trajectory_id, step, better FROM thoughts WHERE better IS NOT NULL
