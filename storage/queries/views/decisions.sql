-- The decision on every trajectory that a filter has seen: the row of gate `route` of the newest run of the filter, so
-- that a trajectory on which there are several opinions counts once. A person's newest word (gate `person`) stands in its
-- place, whichever of the two is newer: the one of the highest revision (`NAME#REVISION`), whatever the clocks of the machines
-- said on which people decided; but what the environment ended (route `none`) nobody can make an example.
-- An opinion lies in its trajectory's iteration, so that who asks for one iteration reads and sorts no other.
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
