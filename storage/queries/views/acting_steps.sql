-- All steps except those without an action that an import's record also calls context (`given_targets`). The gates read
-- only these (`curation.gates.registry.acting_steps`).
SELECT * FROM steps WHERE actions <> [] OR (extra ->> '$.flywheel.target') IS DISTINCT FROM 'false'
