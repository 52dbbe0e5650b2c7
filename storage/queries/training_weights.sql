-- Select every step that a supervised training can imitate, in order, then every screen of a failure that has grounding
-- questions. Each has its weight: the probability with which it is drawn; all weights add up to 1.
--
-- An accepted (`sft`) trajectory is imitated along the shortest way through its screens. If a later screen is the same,
-- everything in between was a detour, unless an import's record calls the later step context. The way begins at the
-- last occurrence of the first screen and continues, each time, at the last occurrence of the screen after it; `place`
-- is a step's index on the way. Equal screens before and after a note are not the same, so notes are on the way.
--
-- The replayed steps of a correction are all on its way, as the context of what follows. They have no weight, because
-- some of them are errors. The steps after the corrected one (the first on the way that was not replayed) have no
-- weight either, unless the correction is a reviewer's. A correction that no verifier or judge saw succeed is never
-- imitated, whatever the gates are. If trajectories of one group did exactly the same on the way, with the same last
-- $history_images screens (the most that a prompt shows), they teach a step once: a repeated step has no weight.
--
-- Each screen of failed (`ct`) trajectories is selected once, if it has grounding questions and no imitated trajectory
-- shows it. The steps before the error of a failed trajectory (`valid_steps`) are imitated like accepted ones if
-- $prefixes is `all`, or if it is `people` and a reviewer marked the error.
--
-- A step that a reviewer corrected is not a target as it was recorded, unless a verifier accepted its trajectory and
-- nothing verified the correction (`replaces`). The correction is a target (`corrected`) after the steps that led
-- there, which have no weight. It is not a target if a sandbox refuted it or, with $corrections `verified`, has not yet
-- verified it. If another trajectory shows that the correction succeeds, that trajectory teaches it, unless the
-- correction was undone. A trajectory that took longer than the recorded success does not count as showing it.
--
-- Imports from a source that states its targets (`given_targets`) have no other targets here. In any other import, a
-- step that the import's record calls wrong or redundant (`faulted`) is context only. Exports read the state of their
-- steps from this query.
--
-- A task of the suite weighs by its failures: 1 - $balance + $balance * ($floor + failure rate of $measured). A task
-- that was not measured has a failure rate of one half. The share $grounding_share of it goes to its screens of
-- failures, and its samples share equally. The tasks $practice weigh $practice_share together, with equal weights for
-- their samples.
WITH
taught AS (FROM people_corrections WHERE teaches AND (state = 'verified' OR $corrections::VARCHAR = 'all')),
walked AS (
    SELECT
        s.trajectory_id, s.step, s.screenshot, s.actions <> [] AS acted,
        coalesce(
            sum(len(list_filter(s.actions, lambda one: ends_with(one, '"type":"note"}'))))
            OVER (PARTITION BY s.trajectory_id ORDER BY s.step ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW),
            0
        ) AS notes,
        s.step < t.replayed AS replayed,
        s.trajectory_id NOT IN (FROM untaught) AND (
            r.route = 'sft' OR coalesce(s.step < r.valid_steps AND (
                $prefixes::VARCHAR = 'all' OR ($prefixes::VARCHAR = 'people' AND starts_with(r.reason, 'person: '))
            ), false)
        ) AS usable
    FROM steps s JOIN decisions r USING (trajectory_id) JOIN trajectories t USING (trajectory_id)
    WHERE r.route IN ('sft', 'ct')
),
last_shown AS (
    SELECT
        trajectory_id, step,
        if(
            replayed OR context, step,
            max(step) FILTER (NOT context) OVER (PARTITION BY trajectory_id, screenshot, replayed, notes)
        ) AS again
    FROM (
        SELECT *, (trajectory_id, step) IN (SELECT (trajectory_id, step) FROM given_targets WHERE NOT target) AS context
        FROM walked WHERE usable AND acted
    )
),
ways AS (
    SELECT
        trajectory_id,
        list_reduce(
            list([step, again] ORDER BY step),
            lambda way, here: if(here[1] > way[-1], list_append(way, here[2]), way),
            [-1]
        )[2:] AS way
    FROM last_shown GROUP BY trajectory_id
),
imitated AS (
    SELECT trajectory_id, unnest(way) AS step, generate_subscripts(way, 1) - 1 AS place FROM ways
),
grouped AS (
    SELECT
        t.group_id, trajectory_id, step, s.screenshot,
        md5_number(json_array(i.place, coalesce(a.better, nullif(s.thought, ''), a.thought, ''), s.actions)::VARCHAR) AS done
    FROM (FROM trajectories WHERE group_id IS NOT NULL) t
    JOIN imitated i USING (trajectory_id)
    JOIN steps s USING (trajectory_id, step)
    LEFT JOIN thoughts a USING (trajectory_id, step)
),
context AS (
    SELECT
        group_id, trajectory_id, step, bit_xor(done) OVER (PARTITION BY trajectory_id ORDER BY step) AS done,
        list(screenshot) OVER (
            PARTITION BY trajectory_id ORDER BY step ROWS BETWEEN $history_images - 1 PRECEDING AND CURRENT ROW
        ) AS shown
    FROM grouped
),
repeated AS (
    SELECT trajectory_id, step FROM context
    QUALIFY row_number() OVER (PARTITION BY group_id, done, shown ORDER BY trajectory_id, step) > 1
    UNION ALL SELECT trajectory_id, step FROM people_corrections WHERE replaces
    UNION ALL SELECT trajectory_id, step FROM given_targets WHERE NOT target
    UNION ALL SELECT trajectory_id, step FROM faulted ANTI JOIN given_targets USING (trajectory_id, step)
),
questioned AS (SELECT DISTINCT screenshot FROM grounding JOIN steps USING (trajectory_id, step)),
screens AS (
    SELECT min((trajectory_id, step)) AS first_shown FROM walked SEMI JOIN questioned USING (screenshot)
    GROUP BY screenshot HAVING NOT bool_or(usable AND NOT replayed)
),
samples AS (
    SELECT
        false AS grounding, trajectory_id, step, place,
        step < replayed OR (trajectory_id, step) IN (FROM repeated)
        OR continues IS NOT NULL
            AND trajectory_id NOT IN (SELECT trajectory_id FROM people_tries UNION SELECT trajectory_id FROM given_targets)
            AND step > min(step) FILTER (step >= replayed) OVER (PARTITION BY trajectory_id) AS again
    FROM imitated JOIN trajectories USING (trajectory_id)
    UNION ALL
    SELECT true, first_shown[1], first_shown[2], 0, false FROM screens
),
last_corrected AS (SELECT trajectory_id, max(step) AS last FROM taught GROUP BY trajectory_id),
corrections AS (
    SELECT
        false AS grounding, trajectory_id, w.step, p.step IS NULL AS again, true AS corrected,
        row_number() OVER (PARTITION BY trajectory_id ORDER BY w.step) - 1 AS place
    FROM walked w JOIN last_corrected USING (trajectory_id) LEFT JOIN taught p USING (trajectory_id, step)
    WHERE w.step <= last AND (w.acted OR p.step IS NOT NULL)
),
counted AS (
    SELECT task_id, grounding, count(*) FILTER (NOT again) AS n, list_contains($practice::VARCHAR[], task_id) AS practised
    FROM (FROM samples UNION ALL BY NAME FROM corrections) JOIN trajectories USING (trajectory_id)
    GROUP BY task_id, grounding
),
measured AS (
    SELECT task_id, avg(success::INTEGER) AS success FROM evaluations
    WHERE policy_version = $measured AND suite = 'suite' AND success IS NOT NULL AND seed < 2000000
    GROUP BY task_id
),
rated AS (
    SELECT
        *,
        (1 - $balance + $balance * ($floor + 1 - coalesce(success, 0.5)))
        * if(grounding, $grounding_share, 1 - $grounding_share) AS worth
    FROM counted LEFT JOIN measured USING (task_id)
),
summed AS (
    SELECT
        list_sum(list(worth ORDER BY task_id, grounding) FILTER (NOT practised AND n > 0)) AS worth,
        sum(n) FILTER (practised) AS practised
    FROM rated
),
weighed AS (
    SELECT
        r.task_id, r.grounding,
        CASE
            WHEN r.practised THEN if(s.worth IS NULL, 1.0, $practice_share) / s.practised
            ELSE if(s.practised IS NULL, 1.0, 1 - $practice_share) * r.worth / s.worth / r.n
        END AS weight
    FROM rated r CROSS JOIN summed s
)
SELECT
    trajectory_id, step, place, grounding, coalesce(corrected, false) AS corrected, if(again, NULL, weight) AS weight
FROM (FROM samples UNION ALL BY NAME FROM corrections)
JOIN trajectories USING (trajectory_id)
JOIN weighed USING (task_id, grounding)
ORDER BY grounding, corrected, trajectory_id, step
