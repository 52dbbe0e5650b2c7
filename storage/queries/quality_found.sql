-- Summarize the quality checks of the iterations from $first to $last, newest first: how many expectations held, how
-- many failed by severity, how many critical failures were overridden, and how many rows failed. `results` lists the
-- failed expectations (all expectations unless $failing) with the newest override of each; `drift` lists the measured
-- drift.
WITH
overridden AS (
    SELECT
        iteration, "table", expectation, max(unexpected) AS unexpected, bool_or(broke) AS broke,
        arg_max(reason, created_at) AS reason, arg_max(person, created_at) AS person
    FROM quality_overrides GROUP BY ALL
),
judged AS (
    SELECT
        q.*, o.reason AS override_reason, o.person AS override_by,
        NOT q.success AND coalesce(o.unexpected >= q.unexpected AND (o.broke OR q.error IS NULL), false) AS overridden
    FROM quality q LEFT JOIN overridden o USING (iteration, "table", expectation)
    WHERE q.iteration BETWEEN $first AND $last
)
SELECT
    iteration,
    count(*) AS checks,
    count(*) FILTER (success) AS held,
    count(*) FILTER (NOT success AND severity = 'critical' AND NOT overridden) AS critical,
    count(*) FILTER (NOT success AND severity = 'warning') AS warnings,
    count(*) FILTER (error IS NOT NULL) AS broken,
    count(*) FILTER (overridden) AS overridden,
    sum(unexpected)::BIGINT AS unexpected,
    list({'measure': expectation[7:-2], 'value': value, 'success': success})
        FILTER (starts_with(expectation, 'Drift(')) AS drift,
    list(judged ORDER BY success, severity, "table", expectation) FILTER (NOT success OR NOT $failing::BOOLEAN) AS results
FROM judged
GROUP BY iteration
ORDER BY iteration < 0, iteration DESC
