-- How many decisions of people hold.
SELECT count(*) AS n FROM reviews
WHERE decision IN ('accept', 'reject', 'correct', 'override', 'error_step')
    AND review_id NOT IN (SELECT undoes FROM reviews WHERE undoes IS NOT NULL)
