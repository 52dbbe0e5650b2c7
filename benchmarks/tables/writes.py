"""Compare writing through the lake with Parquet alone, and count rows that concurrent writers lose."""

import hashlib
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.config.sections import LakeConfig
from schemas.tables import TABLES
from storage.lake import Lake

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEPS, PICTURE_BYTES = 3, 20_000
"""Of a trajectory; of a picture: a page of MiniWoB++ takes 3 KB to 6 KB, a desktop 100 KB and more."""
TABLES_WRITTEN = ("screenshots", "steps", "trajectories")
PLAIN: dict[str, Any] = {"compression": "NONE", "use_dictionary": False}
PACKED: dict[str, Any] = {"compression": "ZSTD", "compression_level": 3}
"""As `storage.upkeep.writer_properties` says."""
CHUNK = 500
"""Trajectories of one append, as collection writes them by the chunk."""
_WRITER = """
import sys
from benchmarks.tables.writes import trajectories
from schemas.config.sections import LakeConfig
from storage.lake import Lake
lake, number, appends = Lake.open(LakeConfig(uri=sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
print(sum(lake.append("trajectories", trajectories(range(n, n + 10)))
    for n in range(number * 1_000_000, number * 1_000_000 + appends * 10, 10)))
"""


def trajectories(numbers: range) -> pa.Table:
    """Rows of `trajectories`."""
    base: dict[str, Any] = {
        "iteration": 0, "run_id": "run", "seed": 0, "split": "train", "group_id": None, "attempt": 0,
        "policy": "policy", "policy_version": "policy-0001", "n_steps": STEPS, "reward": 1.0, "success": True,
        "termination": "done", "sampling": "{}", "started_at": NOW, "wall_s": 1.5, "replayed": 0,
    }  # fmt: skip
    rows = [
        {**base, "trajectory_id": _id(n), "task_id": f"synthetic/task-{n % 50}", "instruction": f"Click number {n}."}
        for n in numbers
    ]
    return pa.Table.from_pylist(rows, schema=TABLES["trajectories"].schema)


def steps(numbers: range) -> pa.Table:
    """Rows of `steps`, each with a screenshot of its own."""
    base: dict[str, Any] = {
        "iteration": 0, "screen_width": 160, "screen_height": 210, "action_type": "click", "x": 0.5, "y": 0.25,
        "dialect": "box_v1", "actor": "policy", "policy_version": "policy-0001", "elements": "[]", "observe_ms": 1.0,
        "think_ms": 1.0, "act_ms": 1.0,
    }  # fmt: skip
    rows = [
        {
            **base, "trajectory_id": _id(n), "step": step, "screenshot": _sha(n, step), "next_screenshot": None,
            "thought": f"The button of number {n} is the one, at step {step}.",
            "actions": [f'{{"type":"click","x":0.{n % 1000},"y":0.25}}'],
            "raw_text": f"Thought: the button of number {n}. Action: click(0.{n % 1000}, 0.25)",
        }
        for n in numbers for step in range(STEPS)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TABLES["steps"].schema)


def screenshots(numbers: range) -> pa.Table:
    """Rows of `screenshots`, of random bytes: pictures are compressed already."""
    rng = np.random.default_rng(numbers.start)
    rows = [
        {
            "sha256": _sha(n, step), "iteration": 0, "png": rng.bytes(PICTURE_BYTES), "width": 160, "height": 210,
            "phash": _sha(n, step) * 2,
        }
        for n in numbers for step in range(STEPS)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TABLES["screenshots"].schema)


MADE = {"screenshots": screenshots, "steps": steps, "trajectories": trajectories}


def append_rate(folder: Path, count: int) -> dict[str, Any]:
    """So many trajectories in chunks, through the lake and through pyarrow's writer with the same compression."""
    lake, raw = Lake.open(LakeConfig(uri=str(folder / "lake"))), folder / "raw"
    took = {"lake": 0.0, "raw": 0.0}
    for first in range(0, count, CHUNK):
        made = {name: MADE[name](range(first, first + CHUNK)) for name in TABLES_WRITTEN}
        for way in ("raw", "lake") if first // CHUNK % 2 else ("lake", "raw"):
            began = time.perf_counter()
            for name, rows in made.items():
                if way == "lake":
                    assert lake.append(name, rows) == rows.num_rows
                else:
                    _write_raw(raw / name / f"{first}.parquet", rows)
            took[way] += time.perf_counter() - began
    return {
        "append": f"{count:,} trajectories", "steps": count * STEPS, "lake_s": took["lake"], "raw_s": took["raw"],
        "share": took["raw"] / took["lake"],
    }  # fmt: skip


def writers(folder: Path, count: int, appends: int) -> dict[str, Any]:
    """So many processes that append to one table at once: what each was told is written, and what is there."""
    lake = Lake.open(LakeConfig(uri=str(folder)))
    began = time.perf_counter()
    running = [
        subprocess.Popen([sys.executable, "-c", _WRITER, lake.uri, str(n), str(appends)], stdout=subprocess.PIPE)
        for n in range(count)
    ]
    written = sum(int(one.communicate()[0]) for one in running)
    there = lake.read("trajectories", ["trajectory_id"])["trajectory_id"].to_pylist()
    lost = count * appends * 10 - len(set(there)) + abs(written - len(there))
    return {
        "writers": count,
        "appends_each": appends,
        "rows": len(there),
        "lost": lost,
        "s": time.perf_counter() - began,
    }


def _write_raw(path: Path, rows: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    how = PLAIN if path.parent.name == "screenshots" else PACKED
    pq.write_table(rows, path, **how)


def _id(number: int) -> str:
    return hashlib.sha256(f"t {number}".encode()).hexdigest()[:24]


def _sha(number: int, step: int) -> str:
    return hashlib.sha256(f"s {number} {step}".encode()).hexdigest()
