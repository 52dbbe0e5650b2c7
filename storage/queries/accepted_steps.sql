-- How many steps there are to imitate: those of accepted trajectories, without what was only replayed; of a correction that no
-- person said only the corrected one.
SELECT
    coalesce(
        sum(if(continues IS NULL OR trajectory_id IN (SELECT trajectory_id FROM people_tries), n_steps - replayed, 1)), 0
    )::BIGINT AS n
FROM trajectories
WHERE trajectory_id IN (SELECT trajectory_id FROM decisions WHERE route = 'sft')
