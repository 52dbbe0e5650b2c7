-- Read the success of the policy $policy (`views/measured_success.sql`): one row for each suite on which it was
-- measured.
SELECT suite, task_successes, task_trials FROM measured_success WHERE actor = $policy
