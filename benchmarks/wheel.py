"""What the wheel learns, and what the wheel itself adds: arms of equal trajectories and equal training compute.

Arms: the full wheel; explorer data alone (uniform tasks, no play of the policy's own); the wheel without curriculum
(uniform tasks and training). Every arm collects the same number of trajectories and takes the same optimiser steps.
All are measured, after every iteration, on test seeds (2,000,000 and up) that no choice has seen. A run that was cut
short goes on where it stood: each arm is a lake.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._report import Bar, finish, say
from schemas.config import load_config
from schemas.config.sections import Config

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
ROOT = Path(os.environ.get("FLYWHEEL_HOME", ".flywheel")) / "benchmarks" / "wheel"


def main(words: Sequence[str] | None = None) -> int:
    """Runs the arms and prints the table; exit code 1 if a bar is missed."""
    options = _options(words)
    config = load_config(options.config)
    rows = []
    for seed in range(options.seeds):
        for arm in options.arms:
            rows += _run(config, options, arm, seed)
            say(rows)
    return finish("wheel", rows, _bars(config, rows, options), options.json)


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wheel", description=__doc__)
    parser.add_argument("--config", default="configs/laptop.toml")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3, help="training seeds per arm")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--test-seeds", type=int, default=40, help="test seeds per task")
    parser.add_argument("--short", action="store_true", help="one seed of the full wheel, one iteration, few plays")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    if options.short:
        options.iterations, options.seeds, options.arms, options.test_seeds = 1, 1, ["wheel"], 10
    return options


def _run(config: Config, options: argparse.Namespace, arm: str, seed: int) -> list[dict[str, Any]]:
    folder = ROOT / f"{arm.replace(' ', '-')}-{seed}{'-short' if options.short else ''}"
    folder.mkdir(parents=True, exist_ok=True)
    words = [f"lake.uri={folder}/lake", f"seed={seed}", *ARMS[arm]]
    if options.short:
        words += ["train.steps_first=60", "collect.trajectories_per_task=20", "evaluate.seeds=5"]
    _turn(options, words, folder)
    status = json.loads(_flywheel(["status", "--json", "--config", options.config, *words]))
    versions = ["policy-initial", *(row["policy"] for row in status["iterations"][: options.iterations])]
    rows = []
    for number, version in enumerate(versions):
        measured = _measure(config, options, words, folder, version)
        stage = status["iterations"][number - 1] if number else None
        rows.append(
            {
                "arm": arm,
                "seed": seed,
                "iteration": number - 1,
                "policy": version,
                "success": measured["success"],
                "ci": measured["ci"],
                "tasks": {task: value["success"] for task, value in measured["tasks"].items()},
                "plays": measured["plays"],
                "wall_s": stage["wall_s"] if stage else None,
                "trajectories": stage["trajectories"] if stage else 0,
                "explorer": _explorer(options, words, folder),
            }
        )
    return rows


def _turn(options: argparse.Namespace, words: list[str], folder: Path) -> None:
    """Turns the wheel to the asked number of iterations; what the lake holds already is not turned again."""
    lake = folder / "lake" / "flywheel.json"
    done = 0
    if lake.exists():
        status = json.loads(_flywheel(["status", "--json", "--config", options.config, *words]))
        done = len(status["iterations"])
    if done < options.iterations:
        clock = time.perf_counter()
        command = ["run", "--config", options.config, "--iterations", str(options.iterations - done), *words]
        _flywheel(command, show=True)
        (folder / "wall.json").write_text(json.dumps({"wall_s": time.perf_counter() - clock, "from": done}))


def _measure(
    config: Config, options: argparse.Namespace, words: list[str], folder: Path, version: str
) -> dict[str, Any]:
    kept = folder / f"test-{version}-{options.test_seeds}.json"
    if not kept.exists():
        seeds = f"2000000:{2_000_000 + options.test_seeds}"
        tasks = ",".join(config.suite.tasks)
        chosen = ["--policy", version, "--tasks", tasks, "--seeds", seeds]
        kept.write_text(_flywheel(["evaluate", *chosen, "--json", "--plays", "--config", options.config, *words]))
    return json.loads(kept.read_text())


def _explorer(options: argparse.Namespace, words: list[str], folder: Path) -> dict[str, float]:
    """The explorer's rate by task on the same test seeds; it depends on nothing an arm does."""
    kept = ROOT / f"explorer-{options.test_seeds}.json"
    if not kept.exists():
        seeds = f"2000000:{2_000_000 + options.test_seeds}"
        kept.write_text(
            _flywheel(
                ["evaluate", "--policy", "explorer", "--seeds", seeds, "--json", "--config", options.config, *words]
            )
        )
    return {task: value["success"] for task, value in json.loads(kept.read_text())["tasks"].items()}


def _flywheel(words: list[str], show: bool = False) -> str:
    command = [sys.executable, "-m", "apps.cli", *words]
    done = subprocess.run(command, stdout=None if show else subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` ended with {done.returncode}")
    return done.stdout or ""


def _bars(config: Config, rows: list[dict[str, Any]], options: argparse.Namespace) -> list[Bar]:
    last = options.iterations - 1
    final = [row for row in rows if row["arm"] == "wheel" and row["iteration"] == last]
    bars = [Bar("untrained success", max(r["success"] for r in rows if r["iteration"] < 0), 0.0, "lower")]
    if final:
        mean = sum(row["success"] for row in final) / len(final)
        bars.append(Bar(f"success after {options.iterations} iterations", mean, 0.80 if last >= 11 else 0.70, "higher"))
    if final and last >= 11:
        for task in ("click-button", "click-test-2", "click-widget"):
            rate = sum(row["tasks"][task] for row in final) / len(final)
            bars.append(Bar(f"{task} against the explorer", rate, final[0]["explorer"][task], "higher"))
    for arm in options.arms:
        if arm != "wheel":
            bars += _lift(config, rows, arm, last)
    return bars


def _lift(config: Config, rows: list[dict[str, Any]], arm: str, last: int) -> list[Bar]:
    bars = []
    for name, tasks in (("hard tasks", set(config.suite.hard)), ("the suite", None)):
        mean, low, _ = paired(rows, arm, last, tasks)
        value, bar = (low, 0.0) if tasks else (mean, -0.01)
        what = "lower end of wheel minus" if tasks else "wheel minus"
        bars.append(Bar(f"{what} {arm} on {name}", value, bar, "higher"))
    return bars


def paired(rows: list[dict[str, Any]], arm: str, last: int, tasks: set[str] | None) -> tuple[float, float, float]:
    """Mean difference wheel - arm over the same (training seed, task, test seed), with its 95 % interval."""
    played: dict[str, dict[tuple[int, str, int], bool]] = {"wheel": {}, arm: {}}
    for row in rows:
        if row["iteration"] == last and row["arm"] in played:
            for task, seed, success in row["plays"]:
                if success is not None and (tasks is None or task in tasks):
                    played[row["arm"]][row["seed"], task, seed] = success
    shared = [key for key in played["wheel"] if key in played[arm]]
    gaps = [float(played["wheel"][key]) - float(played[arm][key]) for key in shared]
    if not gaps:
        return math.nan, math.nan, math.nan
    mean = sum(gaps) / len(gaps)
    half = 1.96 * math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / max(1, len(gaps) - 1) / len(gaps))
    return mean, mean - half, mean + half


if __name__ == "__main__":
    sys.exit(main())
