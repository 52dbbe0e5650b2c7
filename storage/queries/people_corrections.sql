-- Read the reviewers' corrections that hold (`views/people_corrections.sql`), in order, at the pinned versions or the
-- current ones.
SELECT
    p.trajectory_id, p.step, p.review_id, p.iteration, p.person, p.action, p.thought, p.same, p.state, p.shown_by,
    p.tried_by, p.tries, p.other, t.task_id
FROM people_corrections p JOIN trajectories t ON t.trajectory_id = p.trajectory_id
ORDER BY p.iteration, p.trajectory_id, p.step
