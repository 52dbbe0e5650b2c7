-- The policy that each iteration made, including the preparation's, and whether it was promoted. Lakes from before the
-- promotion log store this in `status`.
SELECT
    iteration,
    policy_version,
    status IN ('champion', 'retired') OR policy_version IN (SELECT champion FROM promotions) AS promoted
FROM policies
WHERE kind IN ('initial', 'iteration')
QUALIFY row_number() OVER (PARTITION BY iteration ORDER BY created_at DESC, policy_version DESC) = 1
