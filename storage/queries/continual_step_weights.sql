-- Every step of a failed (`ct`) trajectory as a target of its own, in order, each with its weight: tasks share equally, then
-- trajectories, then their steps; V = 0 in UI-TARS-2's flywheel (arXiv 2509.02544).
--
-- All steps that hold an action are there, errors among them, `place` counting them from 0; nothing is known of steps whose
-- text held none. The replayed steps of a correction, those in whose place a person put another, and those that an import's
-- source takes out of training (`given_targets`) are context only, and have no weight; nothing is learnt from a
-- correction that came to nothing. The columns are those of training_weights.sql, so training_samples.sql reads what is drawn.
WITH
failed AS (
    SELECT
        t.task_id, trajectory_id, s.step,
        s.step < t.replayed OR (trajectory_id, s.step) IN (
            SELECT (trajectory_id, step) FROM people_corrections WHERE replaces
            UNION ALL SELECT (trajectory_id, step) FROM given_targets WHERE NOT target
        ) AS context,
        row_number() OVER (PARTITION BY trajectory_id ORDER BY s.step) - 1 AS place
    FROM trajectories t
    JOIN (FROM decisions WHERE route = 'ct') USING (trajectory_id)
    JOIN steps s USING (trajectory_id)
    WHERE s.action IS NOT NULL AND trajectory_id NOT IN (FROM untaught)
),
counted AS (
    SELECT *, count(*) FILTER (NOT context) OVER (PARTITION BY trajectory_id) AS steps FROM failed
)
SELECT
    trajectory_id, step, place, false AS grounding, false AS corrected,
    if(context, NULL, 1 / (
        count(DISTINCT task_id) FILTER (NOT context) OVER ()
        * count(DISTINCT trajectory_id) FILTER (NOT context) OVER (PARTITION BY task_id)
        * steps
    )) AS weight
FROM counted
ORDER BY trajectory_id, step
