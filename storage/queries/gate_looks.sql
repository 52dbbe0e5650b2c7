-- Read the perceptual hashes of the screenshots of iteration $iteration, each once.
SELECT sha256, any_value(phash) AS phash FROM screenshots
WHERE sha256 IN (
    SELECT screenshot FROM steps WHERE iteration = $iteration
    UNION SELECT next_screenshot FROM steps WHERE iteration = $iteration
)
GROUP BY sha256
