"""Merge two policies, trained by GRPO from one champion on half of its tasks each, and measure the result.

The weights are searched on held-out seeds of their own. Each specialist, the merged policy and the champion are
measured greedily on test seeds of the specialist's tasks.
"""

import argparse
import json

from benchmarks.arms import Arm
from benchmarks.harness import Bar, finish
from benchmarks.learning._start import adopt, branch, champion_of, lake_of, overrides_for, start_of
from benchmarks.paired import mean_with_interval, outcomes
from schemas.config import load_config
from schemas.failure import FlywheelError

KEPT = 0.95


def run(options: argparse.Namespace) -> int:
    """Trains the specialists of every run seed, merges them, and prints the table."""
    tasks = load_config(options.config, options.overrides).suite.tasks
    halves = {"specialist-a": tasks[0::2], "specialist-b": tasks[1::2]}
    rows = []
    for seed in range(options.seeds):
        start = start_of(options, seed)
        together = branch(start, "merged")
        champion = champion_of(start)
        for name, own in halves.items():
            arm = branch(start, name, "train.method=grpo", *overrides_for(own))
            arm.run_until(options.start + options.iterations)
            adopt(lake_of(together), lake_of(arm), _last(arm), name, champion)
        merged = _merged(together, list(halves))
        for name, own in halves.items():
            for who, version in (("start", champion), ("specialist", name), ("merged", merged)):
                measured = together.measure(version, tasks, options.test_seeds)
                mine = [row for row in measured["plays"] if row[0] in own]
                rows.append(_row(seed, name, who, version, mine))
    bars = [Bar(f"merged over {name} on its own tasks", _ratio(rows, name), KEPT, "higher") for name in halves]
    return finish("merge", rows, bars, options)


def _last(arm: Arm) -> str:
    """The policy that the arm trained last."""
    trained = [row["policy"] for row in arm.iterations() if row["policy"]]
    if not trained:
        raise FlywheelError(f"{arm.folder}: nothing was trained.", "Turn more iterations.")
    return trained[-1]


def _merged(arm: Arm, names: list[str]) -> str:
    """The merged policy's version; merged once."""
    there = lake_of(arm).read("policies", ["policy_version"], {"method": "merge"})["policy_version"].to_pylist()
    return there[0] if there else json.loads(arm.flywheel("merge", *names, "--json"))["policy"]


def _row(seed: int, name: str, who: str, version: str, trajectories: list[list]) -> dict:
    row = {
        "seed": seed,
        "tasks of": name,
        "who": who,
        "policy": version,
        "success": None,
        "95 %": "",
        "plays": trajectories,
    }
    found = mean_with_interval(outcomes([row]))
    return row | {"success": found["mean"], "95 %": f"{found['low']:.2f} to {found['high']:.2f}"}


def _ratio(rows: list[dict], name: str) -> float:
    merged, own = (_mean(rows, name, who) for who in ("merged", "specialist"))
    return merged / own if own else float("nan")


def _mean(rows: list[dict], name: str, who: str) -> float:
    found = [row["success"] for row in rows if row["tasks of"] == name and row["who"] == who]
    return sum(found) / len(found)
