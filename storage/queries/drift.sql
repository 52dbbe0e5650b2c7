-- Count iteration $iteration and the $window iterations before it by category: `lengths` of trajectories, `rewards`,
-- `actions`, `sizes` of screens, `screens`, and `agreement` of judges with verifiers and reviewers. A row of `screens`
-- states whether an image was seen in the window before, by its perceptual hash; the previous iteration is compared
-- with its own window. Environment failures and imports do not count.
WITH
known AS (
    SELECT iteration, trajectory_id, n_steps, reward, iteration = $iteration AS now FROM trajectories
    WHERE iteration BETWEEN greatest(0, $iteration - $window) AND $iteration AND success IS NOT NULL
),
acted AS (
    SELECT now, actions, screen_width, screen_height
    FROM known JOIN steps USING (iteration, trajectory_id)
),
pictures AS (
    SELECT s.iteration, hash(p.phash) AS phash
    FROM (
        SELECT DISTINCT iteration, screenshot AS sha256 FROM steps
        WHERE iteration BETWEEN greatest(0, $iteration - 1 - $window) AND $iteration
    ) s JOIN screenshots p USING (sha256)
),
looks AS (
    SELECT DISTINCT iteration, phash FROM pictures
),
compared AS (
    SELECT
        l.iteration = $iteration AS now,
        EXISTS (
            FROM looks e WHERE e.phash = l.phash AND e.iteration < l.iteration AND e.iteration >= l.iteration - $window
        ) AS seen
    FROM looks l
    WHERE l.iteration IN ($iteration, $iteration - 1)
        AND l.iteration > (SELECT min(iteration) FROM looks)
),
counted AS (
    SELECT 'lengths' AS measure, now, count(*) AS n, CASE
        WHEN n_steps <= 10 THEN n_steps::VARCHAR
        WHEN n_steps <= 15 THEN '11 to 15'
        WHEN n_steps <= 25 THEN '16 to 25'
        WHEN n_steps <= 50 THEN '26 to 50'
        WHEN n_steps <= 100 THEN '51 to 100'
        ELSE 'over 100'
    END AS category FROM known GROUP BY ALL
    UNION ALL BY NAME
    SELECT 'rewards' AS measure, now, count(*) AS n, format('{:.1f}', floor(reward * 10) / 10) AS category
    FROM known WHERE reward IS NOT NULL GROUP BY ALL
    UNION ALL BY NAME
    SELECT 'actions' AS measure, now, count(*) AS n, coalesce(action ->> 'type', 'none') AS category
    FROM (SELECT now, unnest(if(len(actions) = 0, [NULL], actions)) AS action FROM acted) GROUP BY ALL
    UNION ALL BY NAME
    SELECT 'sizes' AS measure, now, count(*) AS n, screen_width || ' x ' || screen_height AS category
    FROM acted GROUP BY ALL
    UNION ALL BY NAME
    SELECT 'screens' AS measure, now, count(*) AS n, if(seen, 'seen before', 'new') AS category
    FROM compared GROUP BY ALL
    UNION ALL BY NAME
    SELECT
        'agreement' AS measure, iteration = $iteration AS now, sum(n)::BIGINT AS n, category
    FROM (
        SELECT iteration, 'agrees' AS category, true_positives + true_negatives AS n FROM agreements
        UNION ALL SELECT iteration, 'accepts a failure', false_positives FROM agreements
        UNION ALL SELECT iteration, 'rejects a success', false_negatives FROM agreements
    )
    WHERE iteration BETWEEN greatest(0, $iteration - $window) AND $iteration
    GROUP BY ALL
)
SELECT
    measure, category,
    coalesce(sum(n) FILTER (now), 0)::BIGINT AS now,
    coalesce(sum(n) FILTER (NOT now), 0)::BIGINT AS before
FROM counted
GROUP BY measure, category
ORDER BY measure, category
