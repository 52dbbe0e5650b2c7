-- Find the screenshots that steps of iteration $iteration name and that the lake does not store.
WITH
named AS (
    SELECT screenshot AS sha256 FROM steps WHERE iteration = $iteration
    UNION SELECT next_screenshot FROM steps WHERE iteration = $iteration AND next_screenshot IS NOT NULL
    UNION SELECT unnest(frames) FROM steps WHERE iteration = $iteration
)
FROM named ANTI JOIN screenshots USING (sha256)
