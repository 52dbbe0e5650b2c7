-- The trajectories that were collected, and those that evaluations keep. `suite` is null for collected ones.
SELECT false AS evaluation, * FROM trajectories
UNION ALL BY NAME
SELECT true AS evaluation, * FROM evaluation_trajectories
