-- The trajectories in quarantine, by `decisions`. Only trajectories that some verdict ever put there are looked up, so
-- nothing is sorted if there are none.
WITH
held AS (
    SELECT DISTINCT trajectory_id FROM verdicts WHERE gate IN ('route', 'person') AND route = 'quarantine'
),
newest AS (
    SELECT trajectory_id, gate, route FROM verdicts
    WHERE gate IN ('route', 'person') AND trajectory_id IN (SELECT trajectory_id FROM held)
    QUALIFY row_number() OVER (
        PARTITION BY trajectory_id, gate
        ORDER BY if(gate = 'person', try_cast(split_part(gate_version, '#', -1) AS INTEGER), NULL) DESC NULLS LAST,
            created_at DESC, gate_version DESC
    ) = 1
)
SELECT r.trajectory_id
FROM (FROM newest WHERE gate = 'route') r
LEFT JOIN (FROM newest WHERE gate = 'person') p ON p.trajectory_id = r.trajectory_id AND r.route <> 'none'
WHERE coalesce(p.route, r.route) = 'quarantine'
