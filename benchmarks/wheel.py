"""Measure the success of the flywheel, and compare arms of equal trajectories and equal training compute.

Arms: the full flywheel; explorer data alone (uniform tasks, no trajectory of the policy's own); the flywheel without
curriculum (uniform tasks and training). Every arm collects the same number of trajectories and takes the same optimizer
steps. After every iteration the champion is measured, greedily, on test seeds (2,000,000 and up). No run uses them; the
authors have seen them while comparing variants of the recipe (docs/measurements.md, "Seeds"). Each arm is a lake, so an
interrupted run resumes there.

Differences of arms are paired by run seed, task and test seed, with two 95 % intervals: trajectories as if
independent, and clusters of (run seed, task) resampled whole; the bar is on the lower end of both. Memory is the
peak of the whole process tree while an arm runs. It is unknown, and its bar missed, where every run was interrupted.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from benchmarks.arms import Arm, root_of
from benchmarks.harness import Bar, add_options, finish, print_rows
from benchmarks.paired import difference, outcomes
from schemas.config import Config, load_config

Row = dict[str, Any]
ARMS: dict[str, list[str]] = {
    "wheel": [],
    "explorer only": [
        "curriculum.method=uniform",
        "collect.policy_share=0",
        "collect.relay_share=0",
        "train.task_balance=0",
    ],
    "no curriculum": ["curriculum.method=uniform", "train.task_balance=0"],
}
FIRST = "policy-initial"
SHORT = ["train.steps_first=60", "collect.trajectories_per_task=20", "evaluate.seeds=5", "promote.unparsable=1"]
MOST_GIB, MOST_MB = 6.0, 200.0
WHO = ("arm", "seed", "iteration")
SUCCESS = (*WHO, "reigns", "success", "95 %", "trajectories")
COST = (*WHO, "stages s", "between s", "peak GiB", "lake MB")
"""Columns of the tables for people."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the arms and prints the tables; exit code 1 if a bar is missed."""
    options = _options(arguments)
    config = load_config(options.config, options.overrides)
    rows: list[Row] = []
    for seed in range(options.seeds):
        for arm in options.arms:
            rows += _rows(config, options, arm, seed)
            print_rows(_some(rows, SUCCESS), f"wheel, after {arm} with run seed {seed}")
    lifts = [_lift_row(config, rows, arm, options.iterations - 1) for arm in options.arms if arm != "wheel"]
    lifts = [row for pair in lifts for row in pair]
    bars = _bars(config, rows, lifts, options)
    tables = [_some(rows, SUCCESS), _some(rows, COST), _summary(config, rows), *([lifts] if lifts else [])]
    return finish("wheel", [*rows, *lifts], bars, options, tables)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.wheel",
        description=__doc__,
        epilog="--short: one seed of the full wheel, one iteration, few trajectories.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="changes to the config, for every arm"
    )
    parser.add_argument("--config", default="configs/miniwob.toml")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3, help="run seeds per arm")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--test-seeds", type=int, default=40, help="test seeds per task")
    options = add_options(parser).parse_args(arguments)
    if options.short:
        options.iterations, options.seeds, options.arms, options.test_seeds = 1, 1, ["wheel"], 10
        options.overrides = [*options.overrides, *SHORT]
    return options


def _rows(config: Config, options: argparse.Namespace, name: str, seed: int) -> list[Row]:
    """Turns one arm, or goes on with it; a row for the first policy and one for every iteration."""
    folder = root_of(options.config, options.overrides) / f"{name.replace(' ', '-')}-{seed}"
    arm_overrides = (*options.overrides, f"lake.uri={folder}/lake", f"seed={seed}", *ARMS[name])
    arm = Arm(name, seed, options.config, folder, arm_overrides)
    arm.run_until(options.iterations)
    turned = arm.iterations()[: options.iterations]
    cost, explorer = arm.cost(), arm.measure_explorer(config.suite.tasks, options.test_seeds)
    champion, rows = FIRST, []
    for row in [None, *turned]:
        champion = row["policy"] if row and row["promoted"] else champion
        measured = arm.measure(champion, config.suite.tasks, options.test_seeds)
        rows.append(_row(arm, row, champion, measured, explorer, cost))
    return rows


def _row(arm: Arm, row: Row | None, champion: str, measured: Row, explorer: dict[str, float], cost: Row) -> Row:
    return {
        "arm": arm.name,
        "seed": arm.seed,
        "iteration": row["iteration"] if row else -1,
        "reigns": champion,
        "success": measured["success"],
        "95 %": "{:.2f} to {:.2f}".format(*measured["ci"]),
        "ci": measured["ci"],
        "trajectories": row["trajectories"] if row else 0,
        "stages s": row["wall_s"] if row else None,
        "between s": row["orchestration_s"] if row else None,
        "peak GiB": cost["peak_gib"],
        "lake MB": cost["lake_mb"],
        "tasks": {task: value["success"] for task, value in measured["tasks"].items()},
        "plays": measured["plays"],
        "explorer": explorer,
        "stages_s": row["stages_s"] if row else {},
        "code": cost["code"],
        "turns": cost["turns"],
    }


def _some(rows: list[Row], columns: Sequence[str]) -> list[Row]:
    return [{column: row[column] for column in columns} for row in rows]


def _summary(config: Config, rows: list[Row]) -> list[Row]:
    """Success by arm and iteration, over run seeds, beside the explorer's on the same test seeds."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["arm"], row["iteration"]), []).append(row)
    return [
        {
            "arm": arm,
            "iteration": iteration,
            "run seeds": len(some),
            "mean success": fmean(row["success"] for row in some),
            "least": min(row["success"] for row in some),
            "most": max(row["success"] for row in some),
            "on hard tasks": _mean(some, "tasks", config.suite.hard),
            "explorer": _mean(some, "explorer", config.suite.tasks),
            "explorer on hard tasks": _mean(some, "explorer", config.suite.hard),
        }
        for (arm, iteration), some in found.items()
    ]


def _mean(rows: list[Row], who: str, tasks: Sequence[str]) -> float | None:
    """The mean success on these tasks; None without any."""
    return fmean(row[who][task] for row in rows for task in tasks) if tasks else None


def _lift_row(config: Config, rows: list[Row], arm: str, last: int) -> list[Row]:
    """Subtract an arm from the full wheel after an iteration, on hard tasks and on the suite."""
    lines = list[Row]()
    for name, tasks in (("hard tasks", config.suite.hard), ("the suite", config.suite.tasks)):
        ours, theirs = (outcomes(rows, arm=one, iteration=last) for one in ("wheel", arm))
        chosen = {key: won for key, won in ours.items() if key[1] in tasks}
        lines.append({"wheel minus": arm, "on": name, **difference(chosen, theirs).row()})
    return lines


def _bars(config: Config, rows: list[Row], lifts: list[Row], options: argparse.Namespace) -> list[Bar]:
    last = options.iterations - 1
    final = [row for row in rows if row["arm"] == "wheel" and row["iteration"] == last]
    bars = [Bar("untrained success", max(r["success"] for r in rows if r["iteration"] < 0), 0.0, "lower")]
    if final and last >= 3:
        mean = sum(row["success"] for row in final) / len(final)
        bars.append(Bar(f"success after {options.iterations} iterations", mean, 0.80 if last >= 11 else 0.70, "higher"))
        first = [row["success"] for row in rows if row["arm"] == "wheel" and row["iteration"] == 0]
        bars.append(Bar("rise from the first iteration to the last", mean - sum(first) / len(first), 0.0, "higher"))
    if final and last >= 11:
        for task in ("click-button", "click-test-2", "click-widget"):
            rate = sum(row["tasks"][task] for row in final) / len(final)
            bars.append(Bar(f"{task} against the explorer", rate, final[0]["explorer"][task], "higher"))
    bars += [bar for line in lifts for bar in _lift_bars(line)]
    return bars + _cost_bars(rows, options)


def _lift_bars(line: Row) -> list[Bar]:
    what = f"wheel minus {line['wheel minus']} on {line['on']}"
    if line["on"] == "the suite":
        return [Bar(what, line["mean"], -0.01, "higher")]
    return [
        Bar(f"{what}, lower end over {kind}", line[f"{kind}, low"], 0.0, "higher")
        for kind in ("trajectories", "clusters")
    ]


def _cost_bars(rows: list[Row], options: argparse.Namespace) -> list[Bar]:
    seen = [row["peak GiB"] for row in rows if row["peak GiB"] is not None]
    bars = [Bar("peak memory of the process tree, GiB", max(seen, default=math.nan), MOST_GIB, "lower")]
    if options.iterations <= 4:
        lake = max(row["lake MB"] for row in rows)
        bars.append(Bar(f"lake after {options.iterations} iterations, MB", lake, MOST_MB, "lower"))
    collected = {(row["arm"], row["seed"]): 0 for row in rows}
    for row in rows:
        collected[row["arm"], row["seed"]] += row["trajectories"]
    if len(collected) > 1:
        ratio = max(collected.values()) / max(1, min(collected.values()))
        bars.append(Bar("trajectories of an arm, most over fewest", ratio, 1.01, "lower"))
    return bars


if __name__ == "__main__":
    sys.exit(main())
