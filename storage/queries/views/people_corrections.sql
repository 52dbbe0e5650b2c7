-- Reviewers' corrections of recorded steps: of each step the newest correction that was not undone.
--
-- `state` is `verified` if the correction succeeded: in a sandbox, shown by the trajectory `shown_by`, or in the
-- recorded trajectory itself if only the thought differs. It is `refuted` if the action itself ended the task without
-- success: in a sandbox, or as it was recorded if only the thought differs. Otherwise it is `unverified`. An imported
-- correction keeps the state that it came with until a sandbox here decides.
--
-- `tried_by` is the most informative trajectory that tried the correction, null if none did. If the reviewer wrote no
-- thought, `thought` is the recorded one for the same action, or a templated one for another action.
--
-- `replaces`: the recorded step is no longer a target. If a verifier accepted the trajectory, the recorded step stays a
-- target until the correction is verified. A judge's verdict, or an import's assumed success, does not count as a
-- verifier's. `teaches`: the correction may be a target instead of its step. A correction that another trajectory shows
-- is taught by that trajectory.
WITH
newest AS (
    FROM reviews
    WHERE decision = 'correct' AND review_id NOT IN (SELECT undoes FROM reviews WHERE undoes IS NOT NULL)
    QUALIFY row_number() OVER (PARTITION BY trajectory_id, step ORDER BY revision DESC) = 1
),
tried AS (
    SELECT
        continues, step, action, min(trajectory_id) FILTER (won) AS shown_by, bool_or(lost) AS lost,
        coalesce(
            min(trajectory_id) FILTER (won), min(trajectory_id) FILTER (lost), min(trajectory_id) FILTER (repeated),
            min(trajectory_id)
        ) AS tried_by,
        count(*) AS tries, bool_and(NOT repeated) AS other
    FROM people_tries GROUP BY continues, step, action
)
SELECT
    n.trajectory_id, n.step, n.review_id, n.iteration, n.person, n.action, n.original_action, t.shown_by, t.tried_by,
    coalesce(nullif(n.thought, ''), if(n.action = n.original_action, n.original_thought, a.thought), '') AS thought,
    coalesce(n.action = n.original_action, false) AS same,
    if(n.person = 'import' AND n.action = (s.extra ->> '$.flywheel.correction.action'), s.extra -> '$.flywheel.correction', NULL)
    AS came,
    CASE
        WHEN t.shown_by IS NOT NULL OR (n.action = n.original_action AND d.route = 'sft') THEN 'verified'
        WHEN t.lost OR (
            n.action = n.original_action AND n.step = r.n_steps - 1 AND NOT r.success AND r.termination <> 'max_steps'
        ) THEN 'refuted'
        WHEN came IS NOT NULL THEN coalesce(came ->> '$.state', 'unverified')
        ELSE 'unverified'
    END AS state,
    coalesce(state = 'verified' OR (came ->> '$.replaces')::BOOLEAN, state = 'verified' OR NOT (
        r.success AND d.route IN ('sft', 'rl')
        AND if(r.policy = 'import', (r.extra ->> '$.flywheel.success') = 'true', k.verifier IS DISTINCT FROM 'judge')
    ), true) AS replaces,
    t.shown_by IS NULL AND state <> 'refuted' AND replaces
    AND NOT (came IS NOT NULL AND state = 'verified' AND (came ->> '$.taught') IS DISTINCT FROM 'true') AS teaches,
    coalesce(t.tries, 0) AS tries, coalesce(t.other, false) AS other
FROM newest n
LEFT JOIN tried t ON t.continues = n.trajectory_id AND t.step = n.step AND t.action = n.action
LEFT JOIN decisions d ON d.trajectory_id = n.trajectory_id
LEFT JOIN annotations a ON a.annotation_id = n.review_id
LEFT JOIN steps s ON s.trajectory_id = n.trajectory_id AND s.step = n.step
LEFT JOIN trajectories r ON r.trajectory_id = n.trajectory_id
LEFT JOIN tasks k ON k.task_id = r.task_id
