-- P(V=1 | iteration), by who played: of the plays that say something of their player, how many every gate passed.
--
-- V(s) is UI-TARS-2's (arXiv 2509.02544): 1 for what goes to supervised training (route `sft`: no rule broken, raw
-- reward 1), 0 for the rest; environment failures (route `none`) are neither. Plays no gate has seen are left out.
WITH
decisions AS (
    SELECT * FROM verdicts
    WHERE gate = 'route'
    QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY created_at DESC, gate_version DESC) = 1
)
SELECT iteration, policy AS kind, count(*) AS n, count(*) FILTER (route = 'sft') AS verified
FROM trajectories JOIN (SELECT trajectory_id, route FROM decisions) USING (trajectory_id)
WHERE route <> 'none'
GROUP BY iteration, policy
ORDER BY iteration, policy
