-- Select every step of a failed (`ct`) trajectory as a target of its own, in order, with its weight. Tasks share
-- equally, then trajectories, then steps; V = 0 in UI-TARS-2's flywheel (arXiv 2509.02544).
--
-- All steps that hold an action are selected, errors included; `place` counts them from 0. Steps whose text held no
-- action are skipped. Some steps are context only and have no weight: the replayed steps of a correction, steps that a
-- reviewer replaced, and steps that an import's source takes out of training (`given_targets`). Nothing is learned from
-- a correction that did not succeed. The columns are those of training_weights.sql, so training_samples.sql can read
-- the drawn samples.
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
    WHERE s.actions <> [] AND trajectory_id NOT IN (FROM untaught)
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
