-- Read the earlier accepted trajectories that a success of iteration $iteration may repeat, with their steps in order:
-- those with the same task and instruction. Imports match by instruction alone, without case and white space, because
-- their task is only the file that they came with. Imports come before the lake's own iterations, older ones first
-- (`schemas.tables.stage.turn`).
WITH
named AS (
    SELECT
        trajectory_id, iteration, success, task_id, instruction, group_id,
        if(starts_with(task_id, 'import/'), 'import', task_id) AS origin,
        if(origin = 'import', lower(trim(regexp_replace(instruction, '\s+', ' ', 'g'))), instruction) AS words
    FROM trajectories
),
asked AS (SELECT DISTINCT origin, words FROM named WHERE iteration = $iteration AND success IS NOT FALSE),
accepted AS (
    SELECT trajectory_id, task_id, instruction, group_id
    FROM named JOIN asked USING (origin, words)
    WHERE (iteration > -2, if(iteration > -2, iteration, -iteration))
        < ($iteration::INTEGER > -2, if($iteration::INTEGER > -2, $iteration::INTEGER, -$iteration::INTEGER))
        AND trajectory_id IN (SELECT trajectory_id FROM decisions WHERE route = 'sft')
)
SELECT a.*, s.step, s.actions, s.action_type, s.screenshot, s.next_screenshot, p.phash
FROM accepted a JOIN acting_steps s USING (trajectory_id) LEFT JOIN screenshots p ON p.sha256 = s.screenshot
ORDER BY a.trajectory_id, s.step
