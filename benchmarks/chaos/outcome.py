"""Reduce a lake to comparable rows by table, without columns that hold times or numbers of commits.

Two lakes of one config and one lake id must have the same rows, however often one of them was disturbed. Only log
probabilities are compared within rounding: time decides which prompts share a batch, and the bf16 sums of a row depend
on the number of rows.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from schemas.tables import TABLES
from schemas.tables.policy import PolicyVersion
from schemas.tables.verdict import DECISION
from storage.lake import Lake

CLOCKS = (
    "run_id", "wall_s", "observe_ms", "think_ms", "act_ms", "seconds", "data_versions", "code",
    "samples_per_s", "tokens_per_s", "mfu", "peak_memory_gb",
)  # fmt: skip
"""Columns that are not compared, beside those that hold an instant: durations, paces, a process's memory, the ids of
runs, numbers of commits, and the commit of the code."""
AVERAGES = (
    "entropy", "kl", "clipped", "advantage_std", "thought_tokens", "reply_tokens", "truncated", "staleness", "mismatch",
)  # fmt: skip
"""Columns of `training_steps` that are averages since the report before, of which a training that is resumed has
others; loss, gradient norm and learning rate are of the very step, and are compared."""
ROUNDED = "logprobs"
"""The column of `steps` that is compared within rounding."""
NUMBERS = ("metrics", "result", "config")
"""Columns of JSON, of which keys that tell a duration, how often a training was started, where a lake is, or numbers of
commits, are left out."""
_CLOCK = re.compile(r"seconds|.*_s|resumed_at|restarts|say|waited|lake|trainer_idle|sandbox_idle|versions")
WEIGHTS = "weights"
"""The name of what is no table: the sha256 of every stored policy's weights."""
Rows = Counter[str]

_HALF_WRITTEN = """
SELECT count(*) FROM (
    SELECT t.trajectory_id FROM trajectories t LEFT JOIN steps s USING (trajectory_id)
    GROUP BY t.trajectory_id, t.n_steps HAVING count(s.step) <> t.n_steps
    UNION ALL
    SELECT s.trajectory_id FROM steps s ANTI JOIN screenshots p ON s.screenshot = p.sha256
    UNION ALL
    SELECT s.trajectory_id FROM steps s ANTI JOIN trajectories t USING (trajectory_id)
)
"""


def outcome(lake: Lake) -> dict[str, Rows]:
    """The rows of every table, as often as they are there, and the weights of every policy."""
    found = {name: _rows(lake, name) for name in TABLES}
    return {**found, WEIGHTS: _weights(lake)}


def differences(undisturbed: Mapping[str, Rows], disturbed: Mapping[str, Rows]) -> dict[str, str]:
    """By table: how many rows are missing and how many too many, in how many of them each column is another, and one of
    each or what tells the two apart; empty where all agree."""
    found: dict[str, str] = {}
    for name, rows in undisturbed.items():
        missing, surplus = rows - disturbed[name], disturbed[name] - rows
        if missing or surplus:
            found[name] = f"{missing.total()} missing, {surplus.total()} too many: {_example(name, missing, surplus)}"
    return found


def _example(name: str, missing: Rows, surplus: Rows) -> str:
    """Which columns are others in how many rows, and of one row what it is known by with those columns; a row that has
    no counterpart whole."""
    key = TABLES[name].key if name in TABLES else ("policy_version",)
    others = {tuple(row[part] for part in key): row for row in map(json.loads, surplus)}
    columns, first = Counter[str](), ""
    for row in map(json.loads, missing):
        other = others.get(tuple(row[part] for part in key), {})
        apart = {
            column: [row[column], other[column]] for column in row if column in other and row[column] != other[column]
        }
        columns.update(apart)
        first = first or (json.dumps({part: row[part] for part in key} | apart)[:4000] if apart else "")
    return f"{dict(columns)}, such as {first or next(iter(missing or surplus))[:1000]}"


def most_apart(undisturbed: Lake, disturbed: Lake) -> float:
    """The largest difference of a token's log probability in steps that both lakes have; infinite where a step has
    another number of tokens."""
    mine, others = _log_probabilities(disturbed), _log_probabilities(undisturbed)
    both = mine.keys() & others.keys()
    if any(len(mine[key]) != len(others[key]) for key in both):
        return math.inf
    return max((abs(a - b) for key in both for a, b in zip(mine[key], others[key], strict=True)), default=0.0)


def _log_probabilities(lake: Lake) -> dict[tuple[str, int], list[float]]:
    rows = lake.read("steps", ["trajectory_id", "step", ROUNDED]).to_pylist()
    return {(row["trajectory_id"], row["step"]): row[ROUNDED] or [] for row in rows}


def accepted(lake: Lake) -> Counter[str]:
    """How often each trajectory is there that the filter routed to training."""
    routed = lake.read("verdicts", ["trajectory_id"], {"gate": DECISION, "route": "sft"})["trajectory_id"].to_pylist()
    there = lake.read("trajectories", ["trajectory_id"], {"trajectory_id": sorted(set(routed))})
    return Counter(there["trajectory_id"].to_pylist())


def half_written(lake: Lake) -> int:
    """Policies whose pinned versions hold a trajectory without all of its steps and pictures, or steps without one."""
    found = 0
    for policy in lake.rows(PolicyVersion):
        if policy.pins:
            with lake.connect(("trajectories", "steps", "screenshots"), policy.pins) as connection:
                rows = connection.sql(_HALF_WRITTEN).fetchall()
            found += rows[0][0] > 0
    return found


def compared(name: str) -> list[str]:
    """The columns of a table that are compared."""
    left_out = (*CLOCKS, *AVERAGES, ROUNDED)
    return [one.name for one in TABLES[name].schema if one.name not in left_out and not pa.types.is_timestamp(one.type)]


def _rows(lake: Lake, name: str) -> Rows:
    return Counter(
        json.dumps({column: _plain(column, value) for column, value in row.items()}, default=str)
        for batch in lake.batches(name, compared(name))
        for row in batch.to_pylist()
    )


def _plain(column: str, value: Any) -> Any:
    """A value for JSON: of bytes their sha256, of a column of JSON what does not tell the time."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    return _timeless(json.loads(value)) if column in NUMBERS else value


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(one) for key, one in sorted(value.items()) if not _CLOCK.fullmatch(key)}
    return value


def _weights(lake: Lake) -> Rows:
    found: Rows = Counter()
    for policy in lake.rows(PolicyVersion):
        files = lake.blobs.sums(policy.checkpoint)
        sums = {file: digest for file, digest in files.items() if file.endswith(".safetensors")}
        found[json.dumps({"policy_version": policy.policy_version, **sums}, sort_keys=True)] += 1
    return found
