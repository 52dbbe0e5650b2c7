-- Corrections that are not imitated: they did not succeed, the reviewer's correction that they tried was undone, or
-- they take more steps than the success that they continue.
SELECT trajectory_id FROM trajectories WHERE continues IS NOT NULL AND success IS NOT TRUE
UNION
SELECT trajectory_id FROM people_tries
ANTI JOIN people_corrections p ON p.trajectory_id = continues AND p.step = people_tries.step
    AND p.action = people_tries.action
UNION
SELECT trajectory_id FROM people_tries WHERE longer
