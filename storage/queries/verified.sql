-- P(V=1 | iteration), by who acted (`views/verified_rates.sql`).
FROM verified_rates ORDER BY iteration, kind
