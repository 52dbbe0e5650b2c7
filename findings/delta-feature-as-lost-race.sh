#!/usr/bin/env bash
# deltalake 1.6.6 (PyPI), pyarrow 26.0.1; 2026-11-27.
#
# Another engine switched on row tracking in a Delta table, a writer feature that deltalake does not support.
# An expert would guess: an append raises DeltaProtocolError, as reading a table with an unsupported reader feature does.
# CommitFailedError would mean that another writer was first, and that a retry may succeed.
# What happens: the append raises CommitFailedError ("Unsupported table features required") at every try. A retry loop for
# lost races never ends, or reports a busy table.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q deltalake==1.6.6 pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder/table" <<'PYTHON'
import json
import sys

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

place = sys.argv[1]
rows = pa.table({"row": [1, 2, 3]})
write_deltalake(place, rows)
protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
actions = [{"commitInfo": {"timestamp": 1, "operation": "UPGRADE PROTOCOL"}}, {"protocol": protocol}]
text = "".join(json.dumps(action) + "\n" for action in actions)
open(f"{place}/_delta_log/00000000000000000001.json", "w").write(text)

raised = []
for attempt in range(3):
    try:
        write_deltalake(DeltaTable(place), rows, mode="append")
        raised.append("nothing")
    except DeltaError as error:
        raised.append(type(error).__name__)
        print(f"try {attempt + 1}: {type(error).__name__}: {error}")
sys.exit(raised != [CommitFailedError.__name__] * 3)
PYTHON
