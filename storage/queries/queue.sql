-- Sort the trajectories by the expected value of a reviewer's label, highest first, with the reasons: $limit rows after
-- the first $offset. Only iteration $iteration and task $task are read, where these are not null.
--
-- The value of a label is a sum of these parts:
-- * 1 if judges and verifiers contradict each other, 1 if the filter put the trajectory into quarantine, and 1 if the
--   gate `people` drew it.
-- * up to 0.75 by the judge's uncertainty, 1 - 2 |score - 1/2|, and 0.75 if neither its record nor a judge states the
--   outcome.
-- * 0.5 if a gate rejected a success of the verifier.
-- * 0.25 for a failure of the policy itself, where a correction teaches most, and 0.25 if only the record of an import
--   states the outcome.
-- * up to 0.5 by the task's weight in the newest curriculum.
--
-- The sum is halved ($forgetting) for each later iteration, because a newer policy may no longer make the same error.
-- Imports have numbers from -2 downwards (`schemas.tables.stage`); the age of an import is the number of later imports.
-- A second trajectory of a task teaches less than the first, so the n-th of a task counts 1 / n of its value, and tasks
-- alternate in proportion to the value of their labels (D'Hondt). Environment failures and trajectories with a
-- reviewer's decision are left out.
WITH
newest AS (SELECT max(iteration) AS iteration FROM curriculum),
picked AS (SELECT trajectory_id FROM drawn),
weights AS (
    SELECT task_id, weight, weight / max(weight) OVER () AS relative, pool FROM curriculum SEMI JOIN newest USING (iteration)
),
rated AS (
    SELECT
        t.trajectory_id, t.iteration, t.task_id, t.seed, t.policy, t.policy_version, t.instruction, t.n_steps, t.success,
        d.route, d.reason, d.error_step, j.score,
        coalesce(j.all_passed <> t.success, false) OR coalesce(j.all_passed <> j.any_passed, false) AS contradicted,
        t.success IS NULL AND j.score IS NULL AS unknown,
        t.policy = 'import' AND t.success IS NOT NULL AND j.score IS NULL AS claimed,
        coalesce(d.route = 'quarantine', false) AS held,
        t.trajectory_id IN (FROM picked) AND coalesce(d.route, '') <> 'quarantine' AS picked,
        coalesce(1 - 2 * abs(j.score - 0.5), 0.0) AS unsure,
        coalesce(t.success AND d.route <> 'sft' AND d.route <> 'quarantine', false) AS turned_away,
        coalesce(NOT t.success AND t.policy = 'policy', false) AS failed,
        coalesce(w.relative, 0.0) AS relative, w.weight, w.pool
    FROM trajectories t
    LEFT JOIN decisions d USING (trajectory_id)
    LEFT JOIN judged j USING (trajectory_id)
    LEFT JOIN weights w USING (task_id)
    ANTI JOIN looked_at l ON l.trajectory_id = t.trajectory_id
    WHERE (t.success IS NOT NULL OR t.failure_boundary IS NULL) AND coalesce(d.route, '') <> 'none' AND t.n_steps > 0
        AND ($iteration::INTEGER IS NULL OR t.iteration = $iteration::INTEGER)
        AND ($task::VARCHAR IS NULL OR t.task_id = $task::VARCHAR)
),
weighed AS (
    SELECT
        *,
        (contradicted::INTEGER + held::INTEGER + picked::INTEGER + 0.75 * unsure + 0.75 * unknown::INTEGER + 0.5 * turned_away::INTEGER
            + 0.25 * failed::INTEGER + 0.25 * claimed::INTEGER + 0.5 * relative)
        * pow($forgetting::DOUBLE, if(iteration > -2, latest - iteration, iteration - newest_import)) AS worth
    FROM rated CROSS JOIN (SELECT max(iteration) AS latest, min(iteration) AS newest_import FROM trajectories)
),
first AS (
    SELECT *, worth / row_number() OVER (PARTITION BY task_id ORDER BY worth DESC, trajectory_id) AS share FROM weighed
    ORDER BY share DESC, trajectory_id LIMIT $limit::INTEGER OFFSET $offset::INTEGER
)
SELECT
    *,
    list_filter([
        if(contradicted, 'judge and verifier, or two judges, contradict each other', NULL),
        if(held, 'in quarantine: ' || reason, NULL),
        if(picked, 'drawn for review', NULL),
        if(unsure > 0, format('the judge gives {:.2f}', score), NULL),
        if(unknown, 'no verifier, judge or record states the outcome', NULL),
        if(claimed, 'only its own record states that it ' || if(success, 'succeeded', 'failed'), NULL),
        if(turned_away, 'succeeded, but was rejected: ' || reason, NULL),
        if(failed, 'the policy failed by itself', NULL),
        if(weight IS NOT NULL, format('the curriculum gives its task {:.1f} % ({})', 100 * weight, pool), NULL)
    ], lambda one: one IS NOT NULL) AS why
FROM first
ORDER BY share DESC, trajectory_id
