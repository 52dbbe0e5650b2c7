-- Select the samples of failed (`ct`) trajectories that do not depend on the instruction, in order, with their weights.
-- Kinds share equally, then tasks, then samples.
--
-- A screen with grounding questions gives one sample that asks for places (`step`) and one that asks for names
-- (`naming`); its `source` is the screenshot. Annotations that compare two screens give one sample for each kind and
-- pair of screens: the first annotation, named by its id. Two actions with the same effect would contradict each other.
WITH
failed AS (
    SELECT a.annotation_id, a.kind, a.before, a.after, t.task_id, a.trajectory_id, a.step, s.screenshot
    FROM annotations a
    JOIN (FROM decisions WHERE route = 'ct') USING (trajectory_id)
    JOIN trajectories t USING (trajectory_id)
    JOIN steps s USING (trajectory_id, step)
    WHERE a.kind IN ('inverse_dynamics', 'transition') OR (a.kind = 'grounding' AND a.action ->> 'type' = 'click')
),
perceived AS (
    SELECT
        screenshot, arg_min(task_id, (trajectory_id, step)) AS task_id,
        min((trajectory_id, step)) FILTER (kind = 'grounding') AS asked_first
    FROM failed GROUP BY screenshot
),
compared AS (
    SELECT kind, task_id, annotation_id, trajectory_id, step FROM failed
    WHERE kind <> 'grounding'
    QUALIFY row_number() OVER (PARTITION BY kind, before, after ORDER BY trajectory_id, step, annotation_id) = 1
),
samples AS (
    SELECT
        unnest(['step', 'naming']) AS kind, task_id, screenshot AS source,
        asked_first[1] AS trajectory_id, asked_first[2] AS step
    FROM perceived WHERE asked_first IS NOT NULL
    UNION ALL
    SELECT kind, task_id, annotation_id, trajectory_id, step FROM compared
)
SELECT
    kind, task_id, source,
    1 / (
        count(DISTINCT kind) OVER ()
        * count(DISTINCT task_id) OVER (PARTITION BY kind)
        * count(*) OVER (PARTITION BY kind, task_id)
    ) AS weight
FROM samples
ORDER BY kind IN ('inverse_dynamics', 'transition'), trajectory_id, step, kind = 'naming', source
