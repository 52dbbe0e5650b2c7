-- The decision on every trajectory that a filter has seen: the row of gate `route` of the newest run of the filter; of
-- iteration $iteration, or of all where that is null.
-- Every query that asks where a trajectory's data goes begins with this very table, so that a trajectory on which there
-- are several opinions counts once. `decided_by` is the gate whose word it was.
WITH
decisions AS (
    SELECT * FROM verdicts
    WHERE gate = 'route'
    QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY created_at DESC, gate_version DESC) = 1
)
SELECT *, split_part(reason, ': ', 1) AS decided_by FROM decisions
WHERE $iteration::INTEGER IS NULL OR iteration = $iteration::INTEGER
