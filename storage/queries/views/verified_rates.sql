-- P(V=1 | iteration) by actor: the share of trajectories that passed every gate, of those that are evidence about their
-- policy.
--
-- V(s) is UI-TARS-2's (arXiv 2509.02544): 1 for trajectories that go to supervised training (route `sft`: no rule
-- broken, raw reward 1), 0 for the rest, including quarantine. Environment failures (route `none`) are neither.
-- Trajectories that no gate has processed are left out. Corrections are left out too, because the kept ones were chosen
-- by their success.
--
-- The curriculum moves trajectories to weak tasks, so the share over all trajectories may fall while the policy gets
-- better. The lists hold counts by task for the tasks that this kind of policy was given in each of its iterations. The
-- mean of their rates, weighed equally, is over a fixed mix of tasks, which no curriculum changes.
WITH
counted AS (
    SELECT
        iteration, policy AS kind, task_id,
        count(*) AS n,
        count(*) FILTER (route = 'sft') AS verified
    FROM trajectories JOIN (SELECT trajectory_id, route FROM decisions) USING (trajectory_id)
    WHERE route <> 'none' AND continues IS NULL
    GROUP BY iteration, policy, task_id
),
lasting AS (
    SELECT kind, task_id, count(*) = any_value(iterations) AS always
    FROM counted JOIN (SELECT kind, count(DISTINCT iteration) AS iterations FROM counted GROUP BY kind) USING (kind)
    GROUP BY kind, task_id
)
SELECT
    iteration,
    kind,
    sum(n)::BIGINT AS n,
    sum(verified)::BIGINT AS verified,
    list(verified ORDER BY task_id) FILTER (always) AS task_verified,
    list(n ORDER BY task_id) FILTER (always) AS task_trials
FROM counted JOIN lasting USING (kind, task_id)
GROUP BY iteration, kind
