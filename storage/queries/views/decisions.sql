-- The decision on every trajectory that a filter has seen: the row of gate `route` of the newest run of the filter, so
-- that a trajectory on which there are several opinions counts once.
FROM verdicts
WHERE gate = 'route'
QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY created_at DESC, gate_version DESC) = 1
