-- The trajectories with a reviewer's decision that holds: on the whole trajectory, a correction, or the step of the
-- error.
SELECT DISTINCT trajectory_id FROM reviews
WHERE decision IN ('accept', 'reject', 'correct', 'override', 'error_step')
    AND review_id NOT IN (SELECT undoes FROM reviews WHERE undoes IS NOT NULL)
