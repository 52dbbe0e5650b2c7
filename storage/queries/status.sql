-- Describe each iteration in one row: the policy it made, that policy's success on held-out seeds, what was collected,
-- and how long it took.
--
-- Success is that of `views/measured_success.sql`; `held_out` is the same over the tasks that are only measured and
-- never trained on, and `synthesized` over made tasks. The explorer is measured once per lake, so its values are the
-- same in every row. `wall_s` is the time of the stages, and `orchestration_s` the time between them. The columns
-- `own_*` are those of `views/verified_rates.sql` for trajectories that the policy made alone.
WITH
measured_once AS MATERIALIZED (FROM measured_success),
iterations AS (
    SELECT iteration FROM policies WHERE kind IN ('initial', 'iteration')  -- a retraining begins no iteration
    UNION SELECT iteration FROM stages
    UNION SELECT iteration FROM trajectories
),
collected AS (
    SELECT iteration, count(*) AS trajectories FROM trajectories GROUP BY iteration
),
took AS (
    SELECT
        iteration,
        sum(wall_s)::DOUBLE AS wall_s,
        sum(try_cast(result ->> '$.orchestration_s' AS DOUBLE)) AS orchestration_s,
        map_from_entries(list((stage, wall_s::DOUBLE) ORDER BY started_at, stage)) AS stages_s
    FROM stages GROUP BY iteration
)
SELECT
    iterations.iteration,
    made.policy_version,
    measured.success,
    coalesce(measured.n, 0) AS n,
    measured.task_successes,
    measured.task_trials,
    held_out.success AS held_out,
    held_out.task_successes AS held_out_successes,
    held_out.task_trials AS held_out_trials,
    synthesized.task_successes AS synthesized_successes,
    synthesized.task_trials AS synthesized_trials,
    explorer.success AS explorer,
    coalesce(explorer.n, 0) AS explorer_n,
    (
        SELECT max(version) FROM evaluation_outcomes WHERE actor = 'explorer' AND suite = 'suite'
    ) AS explorer_version,
    coalesce(collected.trajectories, 0) AS trajectories,
    coalesce(made.promoted, false) AS promoted,
    coalesce(took.wall_s, 0.0) AS wall_s,
    took.orchestration_s,
    took.stages_s,
    own.n AS own_n,
    own.verified AS own_verified,
    own.task_verified AS own_task_verified,
    own.task_trials AS own_task_trials
FROM iterations
LEFT JOIN made USING (iteration)
LEFT JOIN measured_once AS measured ON measured.actor = made.policy_version AND measured.suite = 'suite'
LEFT JOIN measured_once AS held_out ON held_out.actor = made.policy_version AND held_out.suite = 'held_out'
LEFT JOIN measured_once AS synthesized
    ON synthesized.actor = made.policy_version AND synthesized.suite = 'synthesized'
LEFT JOIN measured_once AS explorer ON explorer.actor = 'explorer' AND explorer.suite = 'suite'
LEFT JOIN collected USING (iteration)
LEFT JOIN took USING (iteration)
LEFT JOIN verified_rates AS own ON own.iteration = iterations.iteration AND own.kind = 'policy'
ORDER BY iterations.iteration
