-- Find the screenshot $sha256 among those that iteration $iteration stored first, or in all iterations if that is null;
-- also among the pictures of evaluations, which are lossless WebP.
SELECT png FROM (
    SELECT sha256, iteration, png FROM screenshots
    UNION ALL SELECT sha256, iteration, picture FROM evaluation_screenshots
)
WHERE sha256 = $sha256 AND ($iteration::INTEGER IS NULL OR iteration = $iteration::INTEGER)
LIMIT 1
