-- What the gate found of the iterations from $first to $last, newest first: how many expectations held, how many
-- broke by severity, how many of the critical ones somebody took on, and how many rows broke one.
WITH
overridden AS (
    SELECT iteration, "table", expectation, max(unexpected) AS unexpected, bool_or(broke) AS broke
    FROM quality_overrides GROUP BY ALL
),
judged AS (
    SELECT
        q.*,
        NOT q.success AND coalesce(o.unexpected >= q.unexpected AND (o.broke OR q.error IS NULL), false) AS taken_on
    FROM quality q LEFT JOIN overridden o USING (iteration, "table", expectation)
    WHERE q.iteration BETWEEN $first AND $last
)
SELECT
    iteration,
    count(*) AS checks,
    count(*) FILTER (success) AS held,
    count(*) FILTER (NOT success AND severity = 'critical' AND NOT taken_on) AS critical,
    count(*) FILTER (NOT success AND severity = 'warning') AS warnings,
    count(*) FILTER (error IS NOT NULL) AS broken,
    count(*) FILTER (taken_on) AS overridden,
    sum(unexpected)::BIGINT AS unexpected
FROM judged
GROUP BY iteration
ORDER BY iteration < 0, iteration DESC
