-- Steps, in order, of the trajectories of every task and seed that was both solved and failed, where the iteration
-- $iteration rolled it out too: what preferences are found in. A failure is one by the verifier, or by the judge where
-- there is none (`verified` is false then); what an environment ended and what is in quarantine is left out. A success is preferred only if the
-- newest decision accepted it; one that a gate turned away still shows that its actions did not fail. A step's thought is
-- what a person made of it, its own or the newest annotated one. Corrections part from what they correct and are pairs of their own.
WITH
ended AS (
    SELECT
        t.trajectory_id, t.task_id, t.seed, t.iteration, t.success, d.route = 'sft' AS accepted,
        coalesce(k.verifier, '') <> 'judge' AS verified
    FROM trajectories t JOIN decisions d USING (trajectory_id) LEFT JOIN tasks k USING (task_id)
    WHERE t.continues IS NULL AND t.success IS NOT NULL AND d.route NOT IN ('quarantine', 'none')
),
both_ways AS (
    SELECT task_id, seed FROM ended
    GROUP BY task_id, seed
    HAVING bool_or(iteration = $iteration) AND bool_or(success AND accepted) AND bool_or(NOT success)
)
SELECT
    e.task_id, e.seed, e.trajectory_id, e.success, e.accepted, e.verified, s.step, s.screenshot, s.raw_text, s.action,
    coalesce(a.better, nullif(s.thought, ''), a.thought, '') AS thought
FROM ended e
JOIN both_ways USING (task_id, seed)
JOIN steps s USING (trajectory_id)
LEFT JOIN thoughts a USING (trajectory_id, step)
ORDER BY e.task_id, e.seed, e.trajectory_id, s.step
