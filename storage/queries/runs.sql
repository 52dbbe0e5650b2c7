-- List the runs of iterations, oldest first. An iteration belongs to the run that recorded its newest stage, so a resumed
-- iteration counts once.
WITH newest AS (
    SELECT iteration, max_by(run_id, (started_at, stage)) AS run_id FROM stages GROUP BY iteration
)
SELECT
    run_id,
    list(newest.iteration ORDER BY newest.iteration) AS iterations,
    (SELECT min(started_at) FROM stages WHERE stages.run_id = newest.run_id) AS started_at
FROM newest
GROUP BY run_id
ORDER BY started_at, run_id
