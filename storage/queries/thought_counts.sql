-- Count the thoughts written for steps, by author: the steps with a thought (`n`) and how often each pattern of
-- reasoning occurs. Authors that are models also have the number of steps they were asked about (`asked`) and the
-- number of tries.
WITH
written AS (SELECT author, count(*) AS n FROM annotations WHERE kind = 'thought' GROUP BY author),
tagged AS (
    SELECT author, pattern, count(*) AS n
    FROM (SELECT author, unnest(patterns) AS pattern FROM annotations WHERE kind = 'thought')
    GROUP BY author, pattern
),
shown AS (
    SELECT author, list({'pattern': pattern, 'n': n} ORDER BY n DESC, pattern) AS patterns FROM tagged GROUP BY author
),
tried AS (SELECT author, count(*) AS asked, sum(tries)::BIGINT AS tries FROM thinking GROUP BY author)
SELECT author, coalesce(n, 0) AS n, coalesce(patterns, []) AS patterns, asked, tries
FROM written FULL JOIN tried USING (author) LEFT JOIN shown USING (author)
ORDER BY n DESC, author
