-- Read what a training needs of the questions about recordings in the Parquet file $drawn, in order: everything but the
-- images.
--
-- $drawn has one row per sample: `sample`, task_id, `source` (the annotation), weight, `positions` (when it is trained
-- on). `screenshots` are the frames that are shown between `begin_s` and `end_s`, and `times` the seconds from `begin_s`
-- at which each appears.
WITH
asked AS (
    SELECT d.*, a.question, a.thought, a.begin_s, a.end_s, r.frames, r.times, r.rate
    FROM read_parquet($drawn) d
    JOIN annotations a ON a.annotation_id = d.source
    JOIN recordings r ON r.recording_id = a.recording
),
framed AS (
    SELECT sample, begin_s, end_s, unnest(frames) AS frame, unnest(times)::DOUBLE AS second, generate_subscripts(frames, 1) AS place
    FROM asked
),
lasting AS (SELECT *, lead(second) OVER (PARTITION BY sample ORDER BY place) AS until FROM framed),
shown AS (
    SELECT
        sample, list(frame ORDER BY place) AS screenshots,
        list(greatest(0.0, second - begin_s) ORDER BY place) AS times
    FROM lasting WHERE second < end_s AND coalesce(until > begin_s, true)
    GROUP BY sample
)
SELECT
    q.task_id, s.screenshots, coalesce(q.question, '') AS instruction, [] AS history, q.thought, [] AS actions,
    [] AS questions, q.weight, 'video' AS kind, s.times, q.end_s - q.begin_s AS seconds, q.rate, q.positions
FROM asked q JOIN shown s USING (sample)
ORDER BY sample
