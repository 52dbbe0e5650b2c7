-- Read the steps, in order, of the trajectories from which preferences are made: those of every task and seed that was
-- both solved and failed, and that iteration $iteration also rolled out. Failure is decided by the verifier, or by the
-- judge if there is no verifier (then `verified` is false). Environment failures and quarantine are left out. A success
-- is preferred only if the newest decision accepted it; a success that a gate rejected still shows that its actions did
-- not fail. A step's thought is the reviewer's, else its own, else the newest annotated one. Corrections are left out:
-- they part from the trajectory that they correct, and are pairs of their own.
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
    e.task_id, e.seed, e.trajectory_id, e.success, e.accepted, e.verified, s.step, s.screenshot, s.raw_text, s.actions,
    coalesce(a.better, nullif(s.thought, ''), a.thought, '') AS thought
FROM ended e
JOIN both_ways USING (task_id, seed)
JOIN steps s USING (trajectory_id)
LEFT JOIN thoughts a USING (trajectory_id, step)
ORDER BY e.task_id, e.seed, e.trajectory_id, s.step
