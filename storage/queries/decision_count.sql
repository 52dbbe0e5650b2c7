-- Count the reviewers' decisions that hold.
SELECT count(*) AS n FROM reviews
WHERE decision IN ('accept', 'reject', 'correct', 'override', 'error_step')
    AND review_id NOT IN (SELECT undoes FROM reviews WHERE undoes IS NOT NULL)
