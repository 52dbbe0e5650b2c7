-- Read every trajectory of a data version with its route. A task's family is its first tag, or its environment.
SELECT
    t.trajectory_id, t.task_id, coalesce(k.tags[1], split_part(t.task_id, '/', 1)) AS family,
    t.success, t.n_steps, coalesce(d.route, '') AS route
FROM trajectories t
LEFT JOIN decisions d USING (trajectory_id)
LEFT JOIN tasks k USING (task_id)
