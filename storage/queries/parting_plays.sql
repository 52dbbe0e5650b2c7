-- Steps, in order, of the plays of every task and seed that was both solved and failed, where the iteration $iteration
-- played it too: what preferences are found in. Environment failures (route `none`) are left out. A step's thought is
-- its own or the annotated one.
WITH
routed AS (
    SELECT trajectory_id, route FROM verdicts
    WHERE gate = 'route' AND route IN ('sft', 'ct')
    QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY gate_version DESC) = 1
),
plays AS (
    SELECT t.trajectory_id, t.task_id, t.seed, t.iteration, routed.route
    FROM trajectories t JOIN routed USING (trajectory_id)
),
both_ways AS (
    SELECT task_id, seed FROM plays
    GROUP BY task_id, seed
    HAVING bool_or(iteration = $iteration) AND bool_or(route = 'sft') AND bool_or(route = 'ct')
)
SELECT
    p.task_id, p.seed, p.trajectory_id, p.route, s.step, s.screenshot, s.raw_text, s.action,
    coalesce(nullif(s.thought, ''), a.thought, '') AS thought
FROM plays p
JOIN both_ways USING (task_id, seed)
JOIN steps s USING (trajectory_id)
LEFT JOIN annotations a ON a.trajectory_id = s.trajectory_id AND a.step = s.step AND a.kind = 'thought'
ORDER BY p.task_id, p.seed, p.trajectory_id, s.step
