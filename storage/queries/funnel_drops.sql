-- Where trajectories are lost, by iteration: the reasons in order of how many they turned away, each with up to three of
-- them as examples. `stage` is where: `valid` (the environment ended it), `judged` (no filter has seen it), `selected` (a
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
counted AS (
    SELECT iteration, stage, gate, why, count(*) AS n, list(trajectory_id ORDER BY trajectory_id)[:3] AS examples
    FROM dropped GROUP BY iteration, stage, gate, why
)
FROM counted
QUALIFY row_number() OVER (PARTITION BY iteration, stage, gate ORDER BY n DESC, why) <= 3
ORDER BY iteration DESC, stage DESC, n DESC, gate, why
