-- Count the newest verdicts of each gate and version on the trajectories $ids. The decisions themselves are left out.
SELECT v.gate, v.gate_version, count(*) AS verdicts, count(*) FILTER (WHERE v.passed) AS passed
FROM verdicts v
WHERE v.gate <> 'route' AND v.trajectory_id IN (SELECT unnest($ids::VARCHAR[]))
GROUP BY ALL
ORDER BY verdicts DESC, v.gate, v.gate_version
