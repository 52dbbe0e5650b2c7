#!/usr/bin/env bash
# great_expectations 1.24.1 with SQLAlchemy 2.0.58 and pandas 3.1.1 (PyPI), 2026-11-28.
# Guess: an expectation on a table without rows gives the same counts on both engines: 0 of 0 values are unexpected.
# What happens: pandas gives `unexpected_count` 0 and SQL gives null (a sum over no rows), both with success. Code that
#   adds or compares counts fails at the first empty table, but only with a SQL data source.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q great_expectations==1.24.1 SQLAlchemy==2.0.58 pandas==3.1.1
GX_ANALYTICS_ENABLED=false "$folder/venv/bin/python" -W ignore - "$folder/lake.db" 2>"$folder/log" <<'PYTHON' || { tail -5 "$folder/log"; exit 1; }
import sqlite3
import sys

import great_expectations as gx
import great_expectations.expectations as gxe
import pandas as pd

with sqlite3.connect(sys.argv[1]) as database:
    database.execute("create table steps (x integer)")
context = gx.get_context(mode="ephemeral")
sql = context.data_sources.add_sqlite("sql", connection_string=f"sqlite:///{sys.argv[1]}")
table = sql.add_table_asset("steps", table_name="steps").add_batch_definition_whole_table("all").get_batch()
frames = context.data_sources.add_pandas("pandas").add_dataframe_asset("steps")
frame = frames.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": pd.DataFrame({"x": pd.Series(dtype="int64")})})
found = {}
for name, batch in (("SQL", table), ("pandas", frame)):
    checked = batch.validate(gxe.ExpectColumnValuesToBeBetween(column="x", min_value=0, max_value=1))
    found[name] = (checked.success, checked.result["element_count"], checked.result["unexpected_count"])
    print(f"{name}: success {checked.success}, elements {found[name][1]}, unexpected {found[name][2]}")
sys.exit(found != {"SQL": (True, 0, None), "pandas": (True, 0, 0)})
PYTHON
