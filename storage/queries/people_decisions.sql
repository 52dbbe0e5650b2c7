-- Read the reviewers' decisions that hold and that a training may read, in order, at the pinned versions or the current
-- ones. They are decisions on whole trajectories, corrections, actions taken or overridden in live sessions, and
-- thoughts noted for a step. A correction has its `state` and whether it replaces the recorded step (`replaces`); both
-- are null for other decisions. `route` is the destination of the trajectory's data.
SELECT
    r.review_id, r.trajectory_id, r.person, r.decision, r.step, t.task_id, p.state, p.replaces,
    coalesce(d.route, '') AS route
FROM reviews r
JOIN trajectories t ON t.trajectory_id = r.trajectory_id
LEFT JOIN people_corrections p ON p.review_id = r.review_id
LEFT JOIN decisions d ON d.trajectory_id = r.trajectory_id
WHERE r.review_id NOT IN (SELECT undoes FROM reviews WHERE undoes IS NOT NULL)
    AND (
        r.decision = 'error_step'
        OR (r.decision IN ('accept', 'reject') AND (r.step IS NULL OR t.policy = 'person'))
        OR (r.decision = 'correct' AND p.state IS NOT NULL)
        OR r.decision = 'override'
        OR (r.decision = 'note' AND r.step IS NOT NULL AND r.thought <> '')
    )
ORDER BY r.created_at, r.review_id
