-- Steps that act: without steps that have no action, and without steps that an import's record calls context
-- (`given_targets`). The gates read only these (`curation.gates.registry.acting_steps`).
SELECT * FROM steps WHERE action IS NOT NULL OR (extra ->> '$.flywheel.target') IS DISTINCT FROM 'false'
