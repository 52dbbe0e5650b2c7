-- The steps of the trajectories that were collected, and of those that evaluations keep.
SELECT false AS evaluation, * FROM steps
UNION ALL BY NAME
SELECT true AS evaluation, * FROM evaluation_steps
