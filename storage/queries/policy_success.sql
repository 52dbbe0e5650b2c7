-- How the policy $policy does (`views/measured_success.sql`): a row per suite on which it was measured.
SELECT suite, task_successes, task_trials FROM measured_success WHERE actor = $policy
