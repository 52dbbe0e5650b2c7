-- The imported steps whose source states whether they are training targets: an export of a flywheel, or a record with
-- `loss_mask`, `weight`, `train` or `is_copied_context`.
SELECT trajectory_id, step, (extra ->> '$.flywheel.target')::BOOLEAN AS target FROM steps
WHERE extra IS NOT NULL AND (extra ->> '$.flywheel.target') IS NOT NULL
