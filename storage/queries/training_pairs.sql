-- Read all preferences, each with its context: the steps before, and all screens, oldest first.
-- The actions of both sides are those of their steps; a side that is not a step, as in a correction, has no actions.
--
-- Trajectories in quarantine, and environment failures (route none), are on neither side. Of two trajectories that
-- part, only one that is still accepted is preferred, and never by a step that an import's record calls wrong or takes
-- out of training.
--
-- A correction that was rolled out is preferred while no gate calls it a failure. A reviewer's correction is preferred
-- until a sandbox refutes it. It must be verified first if a verifier accepted the trajectory, or if $corrections is
-- `verified`. Of a step's corrections, the newest that was not undone counts. An override is preferred if its live
-- session succeeded.
WITH
held AS (SELECT trajectory_id FROM decisions WHERE route IN ('quarantine', 'none')),
turned_away AS (SELECT trajectory_id FROM decisions WHERE route <> 'sft'),
refuted AS (SELECT trajectory_id FROM decisions WHERE route = 'ct'),
believed AS (
    SELECT review_id FROM people_corrections WHERE state = 'verified' OR (teaches AND $corrections::VARCHAR = 'all')
    UNION ALL
    SELECT review_id FROM reviews JOIN trajectories USING (trajectory_id)
    WHERE decision = 'override' AND success AND review_id NOT IN (SELECT undoes FROM reviews WHERE undoes IS NOT NULL)
),
refused AS (
    SELECT review_id FROM reviews WHERE decision IN ('correct', 'override') AND review_id NOT IN (FROM believed)
),
usable AS (
    FROM pairs
    WHERE pair_id NOT IN (FROM refused) AND trajectory_id NOT IN (FROM held) AND coalesce(rejected_trajectory_id, '') NOT IN (FROM held)
        AND (kind <> 'parting' OR trajectory_id NOT IN (FROM turned_away))
        AND (kind <> 'parting' OR (trajectory_id, step) NOT IN (FROM faulted))
        AND (kind <> 'parting' OR (trajectory_id, step) NOT IN (SELECT (trajectory_id, step) FROM given_targets WHERE NOT target))
        AND (kind = 'parting' OR NOT verified OR trajectory_id NOT IN (FROM refuted))
)
SELECT
    p.pair_id, p.task_id, p.kind, any_value(t.instruction) AS instruction,
    list(s.screenshot ORDER BY s.step) AS screenshots,
    coalesce(
        list({
            'thought': s.thought, 'actions': s.actions, 'raw_text': s.raw_text,
            'width': s.screen_width, 'height': s.screen_height, 'error': coalesce(s.action_error, '')
        } ORDER BY s.step) FILTER (s.step < p.step),
        []
    ) AS past,
    arg_max(s.screen_width, s.step) AS width, arg_max(s.screen_height, s.step) AS height,
    p.chosen, if(p.kind = 'parting', any_value(s.actions) FILTER (s.step = p.step), NULL) AS chosen_actions,
    p.rejected, any_value(r.actions) AS rejected_actions
FROM usable p
JOIN trajectories t USING (trajectory_id)
JOIN steps s ON s.trajectory_id = p.trajectory_id AND s.step <= p.step
LEFT JOIN steps r ON r.trajectory_id = p.rejected_trajectory_id AND r.step = p.step
GROUP BY p.pair_id, p.task_id, p.kind, p.chosen, p.rejected
ORDER BY p.pair_id
