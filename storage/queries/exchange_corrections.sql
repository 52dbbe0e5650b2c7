-- What people put in the place of recorded steps, for an export. `taught`: it is a target there, as training_weights.sql has
-- it; where $corrections is `verified`, only once it was seen to succeed.
SELECT
    p.trajectory_id, p.step, p.action, p.thought, p.state,
    coalesce(
        p.teaches AND (p.state = 'verified' OR $corrections::VARCHAR = 'all') AND d.route IN ('sft', 'ct'), false
    ) AS taught
FROM people_corrections p LEFT JOIN decisions d USING (trajectory_id)
