-- The policy's successes by task: its own trajectories and the champion's validation trajectories. Environment failures
-- (`success` is null) and quarantine do not count.
SELECT task_id, success, reward, iteration FROM trajectories
WHERE policy = 'policy' AND policy_version NOT IN (SELECT policy_version FROM policies WHERE method = 'random')
    AND trajectory_id NOT IN (SELECT trajectory_id FROM quarantined)
UNION ALL
SELECT task_id, success, reward, iteration FROM evaluations
WHERE suite IN ('suite', 'synthesized') AND seed >= 1000000 AND seed < 2000000
    AND policy_version IN (SELECT policy_version FROM policies WHERE method <> 'random')
    AND policy_version = coalesce(
        (SELECT arg_max(champion, created_at) FROM promotions WHERE decision IN ('promote', 'rollback')),
        (SELECT arg_max(policy_version, created_at) FROM policies WHERE status = 'champion')
    )
