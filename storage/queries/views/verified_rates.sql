-- P(V=1 | iteration), by who acted: of the trajectories that say something of their policy, how many every gate passed.
--
-- V(s) is UI-TARS-2's (arXiv 2509.02544): 1 for what goes to supervised training (route `sft`: no rule broken, raw
-- reward 1), 0 for the rest, what is in quarantine among it; environment failures (route `none`) are neither.
-- Trajectories no gate has seen are left out, and so are corrections: those that are kept were chosen by their success.
--
-- The curriculum moves trajectories to weak tasks, so the share of all may fall while the policy gets better. The lists
-- hold counts by task for the tasks that this kind of policy was given in each of its iterations: their rates, weighed
-- equally, are of one mix of tasks, which no curriculum moves.
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
