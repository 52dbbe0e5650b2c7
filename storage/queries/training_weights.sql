-- Every step a supervised training can imitate, in order, then every screen of a failure that teaches where things are;
-- each with its weight: how often it is drawn, of 1 in all.
--
-- What is imitated of an accepted (`sft`) trajectory is the shortest way through its screens: where a later screen is
-- the same, everything in between was a detour, unless the later step is context by its import's record. So the way
-- begins at the last showing of the first screen and goes on, each time, at the last showing of the screen after it;
-- `place` is a step's place on it. The replayed steps of a correction are all on its way, as the context of what
-- follows, and have no weight: some of them are errors. Nor have
-- those after the corrected one, the first on the way that was not replayed; but those that follow what a person said
-- have. One that nothing saw succeed is never imitated, whatever the gates are. Trajectories of one group that did the
-- very same thing on the way teach it once: a repeated step has no weight. Of failed (`ct`) trajectories each screen
-- comes once, if there are grounding questions about it and nothing that is imitated shows it. The steps before the
-- error of a failed trajectory (`valid_steps`) are imitated as those of an accepted one are, where $prefixes is `all`,
-- or is `people` and a person marked the error.
--
-- A step that a person corrected is no target as it was recorded, but where a verifier accepted its trajectory and nothing
-- verified the correction (`replaces`). What the person put in its place is one (`corrected`),
-- after the very steps that led there, which have no weight; but not where a sandbox refuted it, nor, where $corrections is
-- `verified`, before it was seen to succeed. Where a trajectory shows that it does, that teaches it, unless it was undone;
-- one that took longer than the recorded success shows nothing.
--
-- What is imported from a lake that says which of its steps are targets (`given_targets`) has no others here. Of any other import a
-- step that its own record calls wrong or redundant (`faulted`) is context alone. An export asks this query what to say of its
-- steps.
--
-- A task of the suite weighs by its weakness, 1 - $balance + $balance * ($floor + failure rate of $measured), where a
-- task that was not measured fails in half of its trials; $grounding_share of it goes to its screens of failures, and its
-- samples share equally. The tasks $practice weigh $practice_share together, every sample of them the same.
WITH
taught AS (FROM people_corrections WHERE teaches AND (state = 'verified' OR $corrections::VARCHAR = 'all')),
walked AS (
    SELECT
        s.trajectory_id, s.step, s.screenshot, s.action IS NOT NULL AS acted, s.step < t.replayed AS replayed,
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
            max(step) FILTER (NOT context) OVER (PARTITION BY trajectory_id, screenshot, replayed)
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
        md5_number(json_array(i.place, coalesce(a.better, nullif(s.thought, ''), a.thought, ''), s.action)::VARCHAR) AS done
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
    WHERE policy_version = $measured AND suite = 'suite' AND success IS NOT NULL
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
