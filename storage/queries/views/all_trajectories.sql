-- The trajectories that were collected, and those that evaluations keep.
SELECT false AS evaluation, * FROM trajectories
UNION ALL BY NAME
SELECT true AS evaluation, * EXCLUDE (suite) FROM evaluation_trajectories
