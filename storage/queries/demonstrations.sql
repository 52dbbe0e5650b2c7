-- Read the stored successes of the explorer and of relays that can serve as demonstrations for an all-failed group,
-- newest first, with their steps in order: the newest success of each of the tasks $tasks, and the newest on each of
-- the seeds $seeds. A step's thought is the reviewer's, else its own, else the annotated one.
WITH
shown AS (
    SELECT trajectory_id, task_id, seed, iteration, instruction, reward
    FROM trajectories SEMI JOIN (FROM decisions WHERE route = 'sft') USING (trajectory_id)
    WHERE policy IN ('explorer', 'relay') AND list_contains($tasks::VARCHAR[], task_id)
    QUALIFY row_number() OVER (PARTITION BY task_id ORDER BY iteration DESC, trajectory_id) = 1
        OR list_contains($seeds::BIGINT[], seed)
        AND row_number() OVER (PARTITION BY task_id, seed ORDER BY iteration DESC, trajectory_id) = 1
)
SELECT
    t.trajectory_id, t.task_id, t.seed, t.instruction, if(k.graded, t.reward, 1.0)::DOUBLE AS reward,
    s.step, s.screenshot, s.screen_width, s.screen_height, s.actions, s.action_error,
    coalesce(a.better, nullif(s.thought, ''), a.thought, '') AS thought
FROM shown t
JOIN steps s USING (trajectory_id)
LEFT JOIN tasks k USING (task_id)
LEFT JOIN thoughts a USING (trajectory_id, step)
ORDER BY t.iteration DESC, t.trajectory_id, s.step
