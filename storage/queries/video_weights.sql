-- Select every question about a recording, in order, with its weight. Tasks share equally, then questions.
--
-- `source` is the annotation. Recordings of trajectories in quarantine and of environment failures are left out. A
-- recording that was imported without an event log has no trajectory; all of these count as one task.
WITH
asked AS (
    SELECT coalesce(t.task_id, 'imported/recordings') AS task_id, a.annotation_id AS source
    FROM (FROM annotations WHERE kind = 'video') a
    JOIN recordings r ON r.recording_id = a.recording
    LEFT JOIN trajectories t ON t.trajectory_id = r.trajectory_id
    LEFT JOIN decisions d ON d.trajectory_id = r.trajectory_id
    WHERE r.trajectory_id = r.recording_id AND t.trajectory_id IS NULL OR d.route IN ('sft', 'ct')
)
SELECT
    'video' AS kind, task_id, source,
    1 / (count(DISTINCT task_id) OVER () * count(*) OVER (PARTITION BY task_id)) AS weight
FROM asked
ORDER BY task_id, source
