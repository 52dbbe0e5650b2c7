-- Annotations that training uses, with the screenshot of their step.
SELECT a.kind, a.trajectory_id, a.step, s.screenshot, a.thought, a.action
FROM annotations a
JOIN steps s ON s.trajectory_id = a.trajectory_id AND s.step = a.step
WHERE a.kind IN ('thought', 'grounding')
