#!/usr/bin/env bash
# deltalake 1.6.6 (PyPI), pyarrow 26.0.1; 2026-11-27.
#
# Another engine deleted six of a Delta table's 40 rows with a deletion vector (the inline vector of the Delta protocol's
# own example). deltalake's query engine returns 34 rows.
# An expert would guess: DeltaTable.count() returns 34, or refuses the table as to_pyarrow_dataset() does.
# What happens: count() returns 40, because it adds up the files' statistics. A batch size, an epoch's length or a quality
# gate computed from it is wrong without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q deltalake==1.6.6 pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder/table" <<'PYTHON'
import json
import sys

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaProtocolError

place = sys.argv[1]
write_deltalake(place, pa.table({"row": list(range(40))}))
log = f"{place}/_delta_log/0000000000000000000"
added = next(action["add"] for action in map(json.loads, open(f"{log}0.json")) if "add" in action)
feature = ["deletionVectors"]
vector = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 6,
}
gone = {key: added[key] for key in ("path", "partitionValues", "size")}
actions = [
    {"commitInfo": {"timestamp": 1, "operation": "DELETE"}},
    {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": feature, "writerFeatures": feature}},
    {"remove": {**gone, "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True}},
    {"add": {**added, "deletionVector": vector}},
]
open(f"{log}1.json", "w").write("".join(json.dumps(action) + "\n" for action in actions))

table = DeltaTable(place)
rows = QueryBuilder().register("t", table).execute("SELECT row FROM t").read_all().num_rows
try:
    dataset = str(table.to_pyarrow_dataset().count_rows())
except DeltaProtocolError:
    dataset = "DeltaProtocolError"
print(f"rows by QueryBuilder: {rows}; to_pyarrow_dataset(): {dataset}; count(): {table.count()}")
sys.exit((rows, dataset, table.count()) != (34, "DeltaProtocolError", 40))
PYTHON
