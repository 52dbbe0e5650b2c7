-- The policy that each iteration made, the preparation's among them, and whether it was promoted: one that another has
-- replaced is `retired`.
SELECT iteration, policy_version, status IN ('champion', 'retired') AS promoted FROM policies
WHERE kind IN ('initial', 'iteration')
QUALIFY row_number() OVER (PARTITION BY iteration ORDER BY created_at DESC, policy_version DESC) = 1
