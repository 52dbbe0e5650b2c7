-- The trajectories of which a person's label is worth most, most first, with why: $limit of them after the first $offset;
-- of iteration $iteration and task $task alone, where these are not null.
--
-- A label is worth 1 where judges and verifiers contradict each other, where the filter holds the trajectory back for
-- people (quarantine), and where its gate `people` drew it; up to 0.75 the less sure the judge is, 1 - 2 |score - 1/2|, and
-- 0.75 where nobody has said how it ended, neither its record nor a judge; 0.5 where a gate turned away what the
-- verifier called a success; 0.25 for a policy's own failure, which a correction teaches most about, and where only the
-- record of an import says how it ended; and up to 0.5 by the
-- task's weight in the newest curriculum. The sum is halved ($forgetting) for each iteration since: what was wrong with an
-- older policy may be so no more; imports, whose numbers go down from -2 (`schemas.tables.stage`), are as old as there are
-- later ones. A second trajectory of a task teaches less than the first: in the order the n-th of a task
-- counts 1 / n of its worth, so that tasks take turns by what their labels are worth (D'Hondt). What the environment ended, and what people have decided on, is left out.
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
        t.success IS NULL AND j.score IS NULL AS unsaid,
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
        (contradicted::INTEGER + held::INTEGER + picked::INTEGER + 0.75 * unsure + 0.75 * unsaid::INTEGER + 0.5 * turned_away::INTEGER
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
        if(held, 'held back for people: ' || reason, NULL),
        if(picked, 'drawn for people', NULL),
        if(unsure > 0, format('the judge gives {:.2f}', score), NULL),
        if(unsaid, 'nobody has said how it ended', NULL),
        if(claimed, 'only its own record says that it ' || if(success, 'succeeded', 'failed'), NULL),
        if(turned_away, 'succeeded and was turned away: ' || reason, NULL),
        if(failed, 'the policy failed by itself', NULL),
        if(weight IS NOT NULL, format('the curriculum gives its task {:.1f} % ({})', 100 * weight, pool), NULL)
    ], lambda one: one IS NOT NULL) AS why
FROM first
ORDER BY share DESC, trajectory_id
