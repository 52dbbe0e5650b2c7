-- How many steps there are to imitate: those of accepted trajectories, without what was only replayed.
SELECT coalesce(sum(n_steps - replayed), 0)::BIGINT AS n
FROM trajectories
WHERE trajectory_id IN (SELECT trajectory_id FROM decisions WHERE route = 'sft')
