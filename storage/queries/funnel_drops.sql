-- Where trajectories are lost, by iteration: of each gate the three reasons that turned away most, then all of its others
-- together, each with up to three of them as examples. `stage` is where: `valid` (the environment ended it), `judged` (no filter has seen it), `selected` (a
-- gate or a person turned it away, or it is held back).
WITH
dropped AS (
    SELECT
        t.iteration, t.trajectory_id,
        CASE
            WHEN t.success IS NULL OR d.route = 'none' THEN 'valid'
            WHEN d.route IS NULL THEN 'judged'
            ELSE 'selected'
        END AS stage,
        CASE
            WHEN t.success IS NULL THEN coalesce(t.failure_boundary, 'environment')
            WHEN d.route IS NULL THEN 'filter'
            ELSE split_part(d.reason, ': ', 1)
        END AS gate,
        CASE
            WHEN t.success IS NULL THEN coalesce(t.failure_reason, '')
            WHEN d.route IS NULL THEN 'no filter has seen it yet'
            WHEN contains(d.reason, ': ') THEN substr(d.reason, strpos(d.reason, ': ') + 2)
            ELSE d.reason
        END AS why
    FROM trajectories t LEFT JOIN decisions d USING (trajectory_id)
    WHERE coalesce(d.route, '') <> 'sft'
),
ranked AS (
    SELECT iteration, stage, gate, why, row_number() OVER (PARTITION BY iteration, stage, gate ORDER BY count(*) DESC, why) AS rank
    FROM dropped GROUP BY iteration, stage, gate, why
),
named AS (
    SELECT
        d.iteration, d.stage, d.gate, d.trajectory_id, r.rank > 3 AS others,
        CASE WHEN r.rank > 3 THEN 'other reasons' ELSE d.why END AS why
    FROM dropped d JOIN ranked r USING (iteration, stage, gate, why)
)
SELECT iteration, stage, gate, why, count(*) AS n, list(trajectory_id ORDER BY trajectory_id)[:3] AS examples
FROM named GROUP BY iteration, stage, gate, others, why
ORDER BY iteration DESC, stage DESC, n DESC, gate, why
