"""Measure a policy on the 125 tasks of BrowserGym's benchmark `miniwob`, next to published results by the same rules.

`python -m benchmarks.miniwob_all [--policy explorer|FOLDER|VERSION|champion] [--lake URI] [--seeds N] [--curve]`

A trajectory is greedy, on a test seed (2,000,000 and up, or from `--first-seed` on), from pixels except for the
explorer's. With `--curve`, each champion of the lake is measured, and the rows have the success after every 1,000
trajectories of the run. Processor hours are those of this process and its browsers.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from benchmarks.harness import Bar, add_options, finish
from benchmarks.learning_curve import learning_chart, learning_curve
from curation.intervals import Interval, wilson
from schemas.config import Config, load_config
from schemas.failure import UsageError
from schemas.tables.trajectory import SPLIT_STARTS
from storage.lake import Lake
from tasks.evaluate import Summary
from tasks.measure import Measured, measure_policy
from tasks.running.curve import svg

Row = dict[str, Any]
PROFILE = "miniwob-all"
SEEDS, SHORT_SEEDS = 15, 2
"""Test seeds per task."""
GOAL = 0.5
"""Success of a trained policy of at most 8 million parameters."""
CHANCE = 0.15
"""Success that the explorer must not fall below; with less, fewer tasks can be learned."""
MAX_FAILED = 0.01
"""Share of trajectories that may fail for reasons other than the policy."""
PUBLISHED = Path(__file__).with_name("miniwob_published.json")


class Published(BaseModel):
    """Results of one harness on the same tasks by the same rules."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    rules: str
    tasks: int
    success: dict[str, float]

    def rows(self) -> list[Row]:
        """Return a row per model, with Wilson's interval over its one episode a task."""
        return [
            {"policy": name, **_interval(wilson(round(share * self.tasks), self.tasks)), "source": self.source}
            for name, share in self.success.items()
        ]


def published() -> Published:
    """Read the published results."""
    return Published.model_validate_json(PUBLISHED.read_text())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints the tables, and returns 1 if a bar is missed."""
    options = _options(arguments)
    config = load_config(PROFILE, [f"lake.uri={options.lake}", *options.overrides])
    seeds = (options.first_seed, options.first_seed + options.seeds)
    before = _processor_s()
    measured = measure_policy(config, options.policy, options.tasks, seeds)
    total = total_row(options.policy, measured, _processor_s() - before)
    tasks = task_rows(measured.rates)
    curve = _curve(config, options, seeds) if options.curve else []
    rows = [total, *published().rows(), *curve, *tasks]
    tables = [[total], published().rows(), *([curve] if curve else []), tasks]
    return finish("miniwob_all", rows, bars(options.policy, measured), options, tables)


def total_row(policy: str, measured: Measured, processor_s: float) -> Row:
    """Return the success over all tasks and its cost."""
    rates = measured.rates
    made = len(measured.trajectories)
    return {
        "policy": policy if policy == measured.policy else f"{policy} ({measured.policy})",
        "success": rates.success,
        "low": rates.ci[0],
        "high": rates.ci[1],
        "tasks": len(rates.tasks),
        "tasks without a success": sum(one.success == 0 for one in rates.tasks.values()),
        "trajectories": made,
        "failed": sum(rates.failed.values()),
        "steps": sum(one.n_steps for one in measured.trajectories),
        "processor hours": processor_s / 3600,
        "processor s / trajectory": processor_s / max(1, made),
    }


def task_rows(rates: Summary) -> list[Row]:
    """Return the success of each task with Wilson's interval, the best first."""
    ordered = sorted(rates.tasks.items(), key=lambda one: (-one[1].success, one[0]))
    return [
        {"task": task.rpartition("/")[2], **_interval(wilson(round(rate.success * rate.n), rate.n))}
        for task, rate in ordered
    ]


def bars(policy: str, measured: Measured) -> list[Bar]:
    """Return the targets of a policy."""
    rates = measured.rates
    failed = sum(rates.failed.values()) / max(1, len(measured.trajectories))
    success, goal = (0.0 if rates.success is None else rates.success), (CHANCE if policy == "explorer" else GOAL)
    return [
        Bar(f"success, {'explorer' if policy == 'explorer' else 'trained policy'}", success, goal, "higher"),
        Bar("environment failures, share of trajectories", failed, MAX_FAILED, "lower"),
    ]


def _curve(config: Config, options: argparse.Namespace, seeds: tuple[int, int]) -> list[Row]:
    """Return the learning curve of the lake on these seeds, and write it as a picture next to the JSON."""

    def on_seeds(version: str) -> Interval | None:
        rates = measure_policy(config, version, options.tasks, seeds).rates
        low, high = rates.ci
        if rates.success is None or low is None or high is None:
            return None
        return Interval(rates.success, low, high, sum(one.n for one in rates.tasks.values()))

    points = learning_curve(Lake.open(config.lake, create=False), on_seeds)
    chart = learning_chart(points)
    if chart is not None and options.json is not None:
        options.json.with_suffix(".svg").write_text(svg(chart))
    return [asdict(one) for one in points]


def _interval(of: Interval) -> Row:
    return {"success": of.mean, "low": of.low, "high": of.high, "n": of.n}


def _processor_s() -> float:
    """Return the processor seconds of this process and of its ended children."""
    return sum(os.times()[:4])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.miniwob_all",
        description=__doc__,
        epilog=f"--short: {SHORT_SEEDS} seeds a task.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="changes to the config")
    parser.add_argument("--policy", default="explorer", help="explorer, a folder, a version, or champion")
    parser.add_argument("--lake", default="lake", help="the lake of a champion or a version")
    parser.add_argument("--tasks", type=lambda text: text.split(","), help="some tasks, comma-separated")
    parser.add_argument("--seeds", type=int, help=f"test seeds a task; {SEEDS} if not given")
    parser.add_argument("--first-seed", type=int, default=SPLIT_STARTS["test"], help="the first test seed")
    parser.add_argument("--curve", action="store_true", help="measure every champion of the lake")
    options = add_options(parser).parse_args(arguments)
    if options.first_seed < SPLIT_STARTS["test"]:
        raise UsageError(f"--first-seed {options.first_seed}: test seeds start at 2,000,000.", "Write 2000000 or more.")
    options.seeds = options.seeds or (SHORT_SEEDS if options.short else SEEDS)
    return options


if __name__ == "__main__":
    sys.exit(main())
