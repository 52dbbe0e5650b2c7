-- Steps without those that are words: without an action, and context by their import's record (`given_targets`). The gates
-- look at these alone (`curation.gates.registry.acting_steps`).
SELECT * FROM steps WHERE action IS NOT NULL OR (extra ->> '$.flywheel.target') IS DISTINCT FROM 'false'
