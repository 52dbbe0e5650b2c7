-- How many verdicts of each judge a data version holds.
SELECT gate_version AS judge, count(*) AS verdicts FROM verdicts WHERE gate = 'judge' GROUP BY gate_version ORDER BY judge
