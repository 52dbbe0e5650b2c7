#!/usr/bin/env bash
# duckdb 2.0.1, deltalake 1.6.6, pyarrow 26.0.1 (PyPI); 2026-11-27.
#
# A Delta table without partitions has a column `seed`, and is in the folder of an experiment, `seed=3/table`, as sweeps
# name their folders. deltalake lists its files, and DuckDB's read_parquet reads them without any option.
# An expert would guess: the values are those in the files, as with Arrow and deltalake, because only the table has
# partition columns.
# What happens: DuckDB reads the folder above the table as a partition, and its value hides the files' own column: every
# row has seed 3.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q duckdb==2.0.1 deltalake==1.6.6 pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder/seed=3/table" <<'PYTHON'
import sys
from urllib.parse import unquote

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

place = sys.argv[1]
write_deltalake(place, pa.table({"seed": [1, 2], "reward": [0.5, 1.0]}))
table = DeltaTable(place)
files = [unquote(one).removeprefix("file://") for one in table.file_uris()]
arrow = sorted(table.to_pyarrow_table()["seed"].to_pylist())
plain = duckdb.sql(f"SELECT seed FROM read_parquet({files!r})").fetchall()
off = duckdb.sql(f"SELECT seed FROM read_parquet({files!r}, hive_partitioning = false) ORDER BY seed").fetchall()
print(f"Arrow: {arrow}; DuckDB: {plain}; DuckDB with hive_partitioning = false: {off}")
sys.exit((arrow, plain, off) != ([1, 2], [(3,), (3,)], [(1,), (2,)]))
PYTHON
