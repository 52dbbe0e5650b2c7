-- The decisions (`views/decisions.sql`) on the trajectories of iteration $iteration, or of all where that is null.
-- `decided_by` is the gate whose word it was.
SELECT *, split_part(reason, ': ', 1) AS decided_by FROM decisions
WHERE $iteration::INTEGER IS NULL OR iteration = $iteration::INTEGER
