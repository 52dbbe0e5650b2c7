-- Grounding questions: the `name` of the element that is asked for on a step's screenshot, and the element's centre.
SELECT
    trajectory_id, step, thought AS name,
    (action ->> 'x')::DOUBLE::FLOAT AS x, (action ->> 'y')::DOUBLE::FLOAT AS y
FROM annotations
WHERE kind = 'grounding' AND action ->> 'type' = 'click'
