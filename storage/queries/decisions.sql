-- Read the decisions (`views/decisions.sql`) on the trajectories of iteration $iteration, or of all iterations if that
-- is null. `decided_by` is the gate that decided.
SELECT *, split_part(reason, ': ', 1) AS decided_by FROM decisions
WHERE $iteration::INTEGER IS NULL OR iteration = $iteration::INTEGER
