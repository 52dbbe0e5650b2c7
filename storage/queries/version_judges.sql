-- Count the verdicts of each judge in a data version.
SELECT gate_version AS judge, count(*) AS verdicts FROM verdicts WHERE gate = 'judge' GROUP BY gate_version ORDER BY judge
