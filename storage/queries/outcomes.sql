-- Read the outcomes of the policies $actors on held-out seeds (`views/evaluation_outcomes.sql`), of the explorer as
-- `explorer`.
SELECT actor, suite, task_id, seed, success, quoted
FROM evaluation_outcomes
WHERE list_contains($actors, actor)
ORDER BY actor, suite, task_id, seed
