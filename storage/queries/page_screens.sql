-- The screens of rendered pages that a base trains on or is measured on, in order, each with the picture, the action and the
-- effect before it (null on a first screen), and the actions before it.
SELECT
    page_id, step, split, width, height, sha256, elements, states, lines, instruction, action,
    lag(sha256) OVER page AS before,
    coalesce(lag(change) OVER page, '') AS change,
    coalesce(list(action) OVER (PARTITION BY page_id ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), [])
        AS history
FROM pages WHERE split IN ('train', 'validation')
WINDOW page AS (PARTITION BY page_id ORDER BY step)
ORDER BY page_id, step
