-- How many steps there are to imitate: those of accepted trajectories; of a correction only the corrected one.
SELECT coalesce(sum(if(continues IS NULL, n_steps, 1)), 0)::BIGINT AS n
FROM trajectories
WHERE trajectory_id IN (SELECT trajectory_id FROM decisions WHERE route = 'sft')
