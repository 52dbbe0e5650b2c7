-- Select every general question to train on, of the newest version of the user's file, in order, with equal weights.
--
-- `source` is the annotation.
WITH
stored AS (
    SELECT annotation_id AS source, version, split_part(version, '-', 1)::BIGINT AS number, kind
    FROM annotations WHERE kind IN ('general', 'general_held_out')
)
SELECT 'general' AS kind, 'general/questions' AS task_id, source, 1 / count(*) OVER () AS weight
FROM stored
WHERE kind = 'general' AND number = (SELECT max(number) FROM stored)
ORDER BY source
