-- Select every perception sample, in order, with its weight. Kinds share equally, then tasks, then samples.
--
-- A sample is a question about a screen that its page, or a reader of its pixels, could answer; `source` is the
-- annotation. Repeated questions and answers about one image (`after` of set-of-mark, else the step's screenshot) count
-- once. A pair of screens counts once too, with the first description of its change. Quarantine and environment
-- failures are left out.
WITH
asked AS (
    SELECT
        a.kind, t.task_id, a.annotation_id AS source, a.trajectory_id, a.step,
        row_number() OVER (
            PARTITION BY a.kind, coalesce(a.after, s.screenshot), a.before,
                if(a.kind = 'transition', '', a.question || chr(10) || a.thought)
            ORDER BY a.trajectory_id, a.step, a.annotation_id
        ) AS again
    FROM annotations a
    JOIN (FROM decisions WHERE route IN ('sft', 'ct')) USING (trajectory_id)
    JOIN trajectories t USING (trajectory_id)
    JOIN steps s USING (trajectory_id, step)
    WHERE a.kind IN ('description', 'caption', 'question', 'marks', 'transition')
)
SELECT
    kind, task_id, source,
    1 / (
        count(DISTINCT kind) OVER ()
        * count(DISTINCT task_id) OVER (PARTITION BY kind)
        * count(*) OVER (PARTITION BY kind, task_id)
    ) AS weight
FROM asked
WHERE again = 1
ORDER BY trajectory_id, step, source
