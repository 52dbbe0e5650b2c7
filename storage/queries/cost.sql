-- Sum the cost of one iteration so far: sandbox steps (collected and evaluated), seconds of its stages, and tokens.
-- Tokens are those that policies wrote, that thinkers were charged, and that servers counted for judges, proposers and
-- teachers (`charged` in a stage's metrics). The charged tokens of thinkers are skipped there, because rows of `thinking` hold
-- them. Replayed steps count, because a sandbox performed them.
SELECT
    (SELECT count(*) FROM steps WHERE iteration = $iteration)
    + (SELECT coalesce(sum(n_steps), 0) FROM evaluations WHERE iteration = $iteration)::BIGINT AS steps,
    (SELECT coalesce(sum(wall_s), 0.0) FROM stages WHERE iteration = $iteration)::DOUBLE AS seconds,
    (SELECT coalesce(sum(len(token_ids)), 0) FROM steps WHERE iteration = $iteration)::BIGINT
    + (SELECT coalesce(sum(tokens), 0) FROM thinking WHERE iteration = $iteration)::BIGINT
    + (
        SELECT
            coalesce(sum(try_cast(result ->> '$.charged.judge' AS BIGINT)), 0)
            + coalesce(sum(try_cast(result ->> '$.charged.reflect' AS BIGINT)), 0)
            + coalesce(sum(try_cast(result ->> '$.charged.train' AS BIGINT)), 0)
        FROM stages WHERE iteration = $iteration
    )::BIGINT AS tokens
