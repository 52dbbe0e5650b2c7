-- Count where trajectories are lost, by iteration. Each gate has the five kinds of reasons that rejected most, then one
-- row for all its other reasons, each with up to three examples. `stage` is `valid` (the environment ended it),
-- `judged` (the filter has not processed it) or `selected` (a gate or a reviewer rejected it, or it is in quarantine).
--
-- Reasons are of one kind (`why`) if they differ only in quotations, ids and numbers. An apostrophe within a word
-- begins no quotation, and a quotation that was cut short extends to the end. `reason` is the full reason of the first
-- example.
WITH
dropped AS (
    SELECT
        t.iteration, t.trajectory_id, t.success IS NULL AND t.failure_boundary IS NOT NULL AS ended,
        CASE
            WHEN ended OR d.route = 'none' THEN 'valid'
            WHEN d.route IS NULL THEN 'judged'
            ELSE 'selected'
        END AS stage,
        CASE
            WHEN ended THEN t.failure_boundary
            WHEN d.route IS NULL THEN 'filter'
            ELSE split_part(d.reason, ': ', 1)
        END AS gate,
        CASE
            WHEN ended THEN coalesce(t.failure_reason, '')
            WHEN d.route IS NULL THEN 'not filtered yet'
            WHEN contains(d.reason, ': ') THEN substr(d.reason, strpos(d.reason, ': ') + 2)
            ELSE d.reason
        END AS reason
    FROM trajectories t LEFT JOIN decisions d USING (trajectory_id)
    WHERE coalesce(d.route, '') <> 'sft'
),
unquoted AS (
    SELECT *, regexp_replace(
        reason, $$(^|\W)(?:'(?:[^'\\]|\\.)*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$))$$, $$\1'…'$$, 'gs'
    ) AS shorter
    FROM dropped
),
kinds AS (
    SELECT
        * EXCLUDE (shorter, ended),
        regexp_replace(regexp_replace(shorter, '\b[0-9a-f]{8,}(-[0-9a-f]{4,})*\b', '…', 'g'), '\d+([.,]\d+)*', 'N', 'g') AS why
    FROM unquoted
),
ranked AS (
    SELECT iteration, stage, gate, why, row_number() OVER (PARTITION BY iteration, stage, gate ORDER BY count(*) DESC, why) AS rank
    FROM kinds GROUP BY iteration, stage, gate, why
),
named AS (
    SELECT
        k.* EXCLUDE (why), r.rank > 5 AS others, CASE WHEN r.rank > 5 THEN 'other reasons' ELSE k.why END AS why
    FROM kinds k JOIN ranked r USING (iteration, stage, gate, why)
)
SELECT
    iteration, stage, gate, why, arg_min(reason, trajectory_id) AS reason, count(*) AS n,
    list(trajectory_id ORDER BY trajectory_id)[:3] AS examples
FROM named GROUP BY iteration, stage, gate, others, why
ORDER BY iteration DESC, stage DESC, n DESC, gate, why
