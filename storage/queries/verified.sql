-- Read P(V=1 | iteration) by actor (`views/verified_rates.sql`).
FROM verified_rates ORDER BY iteration, kind
