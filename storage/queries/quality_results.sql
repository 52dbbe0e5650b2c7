-- What the gate found of the iterations from $first to $last: what failed first, the newest first, with the newest
-- override of it. Only failures where $failing.
WITH
overridden AS (
    SELECT
        iteration, "table", expectation, max(unexpected) AS unexpected, bool_or(broke) AS broke,
        arg_max(reason, created_at) AS reason, arg_max(person, created_at) AS person
    FROM quality_overrides GROUP BY ALL
)
SELECT
    q.iteration, q."table", q.expectation, q.severity, q.success, q.observed, q.unexpected, q.value, q.examples, q.error,
    q.because,
    o.reason AS override_reason, o.person AS override_by,
    NOT q.success AND coalesce(o.unexpected >= q.unexpected AND (o.broke OR q.error IS NULL), false) AS overridden
FROM quality q LEFT JOIN overridden o USING (iteration, "table", expectation)
WHERE q.iteration BETWEEN $first AND $last AND (NOT q.success OR NOT $failing::BOOLEAN)
ORDER BY q.success, q.iteration < 0, q.iteration DESC, q.severity, q."table", q.expectation
LIMIT $limit::INTEGER
