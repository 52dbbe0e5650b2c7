-- The imported steps that their own record's reflector calls wrong or redundant (AgentNet's `last_step_correct` and
-- `last_step_redundant`, each of the step itself).
SELECT DISTINCT trajectory_id, step FROM reflections
WHERE author = 'import' AND (last_step_correct IS FALSE OR last_step_redundant)
