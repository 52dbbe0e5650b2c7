-- The decision on every trajectory that the filter has processed: the row of gate `route` of the filter's newest run,
-- so that a trajectory with several verdicts counts once. A reviewer's newest decision (gate `person`) replaces it,
-- whichever of the two is newer. The reviewer's newest decision is the one with the highest revision (`NAME#REVISION`),
-- because the clocks of the reviewers' machines may differ. No decision overrides an environment failure (route
-- `none`). A verdict has the iteration of its trajectory, so a query for one iteration reads and sorts only that
-- iteration.
SELECT
    r.* REPLACE (
        if(p.gate IS NULL, r.passed, p.passed) AS passed,
        if(p.gate IS NULL, r.error_step, p.error_step) AS error_step,
        if(p.gate IS NULL, r.reason, 'person: ' || p.reason) AS reason,
        if(p.gate IS NULL, r.route, p.route) AS route,
        if(p.gate IS NULL, r.valid_steps, p.valid_steps) AS valid_steps
    )
FROM (
    FROM verdicts WHERE gate = 'route'
    QUALIFY row_number() OVER (PARTITION BY iteration, trajectory_id ORDER BY created_at DESC, gate_version DESC) = 1
) r
LEFT JOIN (
    FROM verdicts WHERE gate = 'person'
    QUALIFY row_number() OVER (
        PARTITION BY iteration, trajectory_id
        ORDER BY try_cast(split_part(gate_version, '#', -1) AS INTEGER) DESC NULLS LAST, created_at DESC, gate_version DESC
    ) = 1
) p ON p.iteration = r.iteration AND p.trajectory_id = r.trajectory_id AND r.route <> 'none'
