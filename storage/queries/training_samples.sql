-- Read what a supervised training needs of the samples in the Parquet file $drawn, in order: everything but the images.
--
-- Without $thoughts, no thoughts are read; with them, the share $without of the trajectories is read without thoughts.
--
-- $drawn has one row per sample: `sample`, trajectory_id, `way` (the steps up to and including this one), `grounding`
-- (whether only its questions are trained on), `corrected` (whether the reviewer's correction is trained on instead of
-- the step), `weight`, `positions` (when it is trained on). The last two are returned unchanged. A sample shows the
-- last `shown` screens of its way. A step's thought is the reviewer's, else its own, else the newest annotated
-- one. A question that was annotated several times is read once.
WITH
drawn AS (FROM read_parquet($drawn)),
walked AS (
    SELECT sample, trajectory_id, corrected, shown, unnest(way) AS step, generate_subscripts(way, 1) - len(way) AS place FROM drawn
),
found AS (
    SELECT
        sample, place, shown, s.screenshot,
        $thoughts AND md5_number_lower(trajectory_id) % 1000 >= 1000 * $without AS thinks,
        CASE WHEN place = 0 AND corrected THEN {'thought': if(thinks, p.thought, ''), 'actions': [p.action], 'error': ''}
        ELSE {
            'thought': if(thinks, coalesce(a.better, nullif(s.thought, ''), a.thought, ''), ''), 'actions': s.actions,
            'error': coalesce(s.action_error, '')
        }
        END AS content
    FROM walked
    JOIN steps s USING (trajectory_id, step)
    LEFT JOIN thoughts a USING (trajectory_id, step)
    LEFT JOIN people_corrections p USING (trajectory_id, step)
),
contents AS (
    SELECT
        sample,
        list(screenshot ORDER BY place) FILTER (place > -shown) AS screenshots,
        list(content ORDER BY place) FILTER (place < 0) AS history,
        any_value(screenshot) FILTER (place = 0) AS screen,
        any_value(content) FILTER (place = 0) AS content
    FROM found GROUP BY sample
),
questions AS (
    SELECT
        screenshot, list_sort(list(DISTINCT {'name': name, 'x': grounding.x, 'y': grounding.y})) AS asked
    FROM grounding JOIN (FROM steps SEMI JOIN contents ON screen = screenshot) USING (trajectory_id, step)
    GROUP BY screenshot
)
SELECT
    t.task_id, c.screenshots, t.instruction, coalesce(c.history, []) AS history,
    if(d.grounding, '', c.content.thought) AS thought, if(d.grounding, [], c.content.actions) AS actions,
    coalesce(q.asked, []) AS questions, d.weight, 'step' AS kind, d.positions
FROM drawn d
JOIN trajectories t USING (trajectory_id)
JOIN contents c USING (sample)
LEFT JOIN questions q ON q.screenshot = c.screen
ORDER BY sample
