-- Find the screenshot $sha256 among those that iteration $iteration stored first, or in all iterations if that is null.
SELECT png FROM screenshots
WHERE sha256 = $sha256 AND ($iteration::INTEGER IS NULL OR iteration = $iteration::INTEGER)
LIMIT 1
