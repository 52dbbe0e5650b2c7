"""What the desk's pages cost over a large lake: seconds of server time, and whether ten people at once lose anything.

`python -m benchmarks.desk [--short] [--lakes DIR] --json PATH`

A synthetic lake of 100,000 trajectories (`benchmarks.shared.synthetic_lake`; 5,000 with `--short`), three in ten
judged, is served by the real application in this process; pages are asked for without a network, so what is timed is
the server's own work. Each page of the queue follows a decision, after which the order is another. `start` is the
desk's start, which asks for the order of the whole lake. Ten people then decide at once, each again on top of what
others decided until the decision stands. With `--lakes`, the lake is kept there and used again.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from apps.desk.app import make_app
from benchmarks.shared.report import Bar, add_options, finish
from benchmarks.shared.synthetic_lake import MEAN_STEPS, TASKS, fill
from schemas.config.load import config_of
from storage.lake import Lake

SIZES = {False: 100_000, True: 5_000}
MOST_S = 0.3
"""A page of the queue opens in less."""
PEOPLE, EACH = 10, 5
"""Who decide at once, and on how many trajectories each."""
Took = tuple[float, float]
"""Seconds by the clock, and of the process's own work, which other programs do not lengthen."""
TIMES = {False: 30, True: 10}
_JUDGED = """
SELECT
    trajectory_id, 'judge' AS gate, 'synthetic' AS gate_version, iteration, score >= 0.5 AS passed, score,
    NULL::INTEGER AS error_step, 'synthetic' AS reason, 'ct' AS route, NULL::INTEGER AS valid_steps,
    $now::TIMESTAMPTZ AS created_at
FROM (SELECT *, ((hash(trajectory_id) % 1000) / 1000.0)::FLOAT AS score FROM trajectories)
WHERE hash(trajectory_id, 7) % 10 < 3
"""


def main() -> int:
    """Measures, prints and writes; 0 if every bar is met."""
    parser = add_options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--lakes", type=Path, help="where lakes are kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake = _lake((args.lakes or Path(folder)) / f"desk-{SIZES[args.short]}", SIZES[args.short])
        rows, lost = measure(lake, TIMES[args.short])
    queue = next(row for row in rows if row["page"] == "queue")
    bars = [
        Bar("a page of the queue, s (95 %)", queue["p95_s"], MOST_S, "lower"),
        Bar("decisions lost", lost, 0, "lower"),
    ]
    return finish("desk", rows, bars, args.json)


def measure(lake: Lake, times: int) -> tuple[list[dict[str, Any]], int]:
    """The time of each page, and how many decisions of ten people at once are not in the lake."""
    config = config_of({"environments": {"fake": {}}, "suite": {"tasks": ["click-one"]}, "lake": {"uri": lake.uri}})
    rows: list[dict[str, Any]] = []
    client = TestClient(make_app(config, lake), "http://127.0.0.1:8750")
    rows.append(_row("start", [_timed(client.__enter__)]))
    with ExitStack() as stack:
        stack.push(client.__exit__)
        waits: list[Took] = []
        decisions: list[Took] = []
        for number in range(times):
            place = client.get("/api/queue", params={"limit": 1}).json()[0]
            decisions.append(_timed(_decide, client, place["trajectory_id"], "ada"))
            waits.append(_timed(_get, client, f"/queue?page={number}"))
        rows += [_row("queue", waits), _row("decision", decisions)]
        places = client.get("/api/queue", params={"limit": times}).json()
        paths = {
            "review": [f"/review/{one['trajectory_id']}" for one in places],
            "screenshot": [f"/screenshot/{one['screenshot']}?iteration={one['iteration']}" for one in places],
            "funnel": ["/funnel"],
        }
        rows += [_row(page, [_timed(_get, client, path) for path in asked]) for page, asked in paths.items()]
        names = [one["trajectory_id"] for one in places[:EACH]]
        with ThreadPoolExecutor(PEOPLE) as threads:
            waits = sum(threads.map(lambda person: _annotate(client, names, person), range(PEOPLE)), list[Took]())
        rows.append(_row("ten at once", waits))
    kept = lake.read("reviews", ["trajectory_id", "person"], {"trajectory_id": names}).to_pylist()
    found = {(row["trajectory_id"], row["person"]) for row in kept}
    return rows, len({(name, f"person {person}") for name in names for person in range(PEOPLE)} - found)


def _annotate(client: TestClient, names: list[str], person: int) -> list[Took]:
    return [_timed(_decide, client, name, f"person {person}") for name in names]


def _decide(client: TestClient, name: str, person: str) -> None:
    revision = 0
    while True:
        sent = {"trajectory_id": name, "revision": revision, "person": person, "decision": "reject"}
        answer = client.post("/api/reviews", json=sent)
        if answer.status_code != 409:
            break
        revision = answer.json()["revision"]
    assert answer.status_code == 201, answer.text


def _get(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text


def _timed(work: Callable[..., object], *arguments: Any) -> Took:
    began, busy = time.perf_counter(), time.process_time()
    work(*arguments)
    return time.perf_counter() - began, time.process_time() - busy


def _row(page: str, took: list[Took]) -> dict[str, Any]:
    seconds, busy = np.array(took).T
    middle, high = np.quantile(seconds, [0.5, 0.95])
    numbers = {"p50_s": float(middle), "p95_s": float(high), "max_s": float(seconds.max())}
    return {"page": page, "n": len(took), **numbers, "cpu_p50_s": float(np.median(busy))}


def _lake(place: Path, trajectories: int) -> Lake:
    lake = Lake.open(config_of({"suite": {"tasks": []}, "lake": {"uri": str(place)}}).lake)
    if lake.count("curriculum"):
        return lake
    fill(lake, trajectories * MEAN_STEPS)
    with lake.connect(["trajectories"]) as connection:
        now = {"now": datetime(2026, 1, 1, tzinfo=UTC)}
        lake.append("verdicts", connection.sql(_JUDGED, params=now).to_arrow_table())
    newest = max(lake.read("trajectories", ["iteration"])["iteration"].to_pylist())
    common = {"explorer_trajectories": 1, "policy_trajectories": 1, "relay_trajectories": 0, "pool": "learnable"}
    weights = [(number + 1) / sum(range(TASKS + 1)) for number in range(TASKS)]
    lake.append(
        "curriculum",
        [
            {
                "iteration": newest,
                "task_id": f"synthetic/task-{number}",
                "weight": weight,
                "successes": 1.0,
                "failures": 1.0,
                "reason": "synthetic",
                **common,
            }
            for number, weight in enumerate(weights)
        ],
    )
    return lake


if __name__ == "__main__":
    sys.exit(main())
