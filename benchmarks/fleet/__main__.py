"""Where 10,000 sandboxes would wait: a simulation with what a sandbox, a row, a commit and a gate take here.

`python -m benchmarks.fleet [--short] [--json PATH] [--per-machine N] [--cores N] [--answer-s S] [--commit-s S]`

The costs are measured first: MiniWoB++ trajectories of the explorer in two browsers of four pages (processor time of
all that takes part, memory, failures), written to a lake in a folder, and asked about by the gates. Then fleets of 10
to 10,000 sandboxes collect in a simulation, a machine each for `--per-machine` of them, with a policy that answers
after `--answer-s` seconds, as often as it is asked. Beside the simulated pace stands, on paper, what each part could
bear alone: the least of these is the bottleneck, the one after it the next. The gates run after that, on one machine.
`--commit-s` takes another store's commit (`benchmarks.object_store` measures one).
"""

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.fleet.costs import measure
from benchmarks.fleet.simulation import Costs, Fleet, Outcome, collect, paces
from benchmarks.pool.__main__ import BROWSERS, PAGES, TASKS
from benchmarks.shared.report import Bar, add_options, finish
from schemas.config import config_of

SIZES = (10, 100, 1000, 10_000)
EACH = 6
"""Trajectories by sandbox, at least."""
LEAST = 2000
"""Trajectories of a small fleet."""
REPLACE_S = 0.2
"""From a browser's death to the next lease (docs/measurements.md, the pool)."""
MTBF_S, DOWN_S = 30 * 86_400.0, 60.0
"""Of a machine: assumed, once in thirty days; and until its part is begun anew."""
CHUNK = 64
"""`collect.chunk`."""


def main() -> int:
    """Prints costs and fleets; exit code 1 where the simulation and the paper disagree, or trajectories are missing."""
    args = _options()
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(
            {
                "name": "fleet",
                "lake": {"uri": str(Path(folder) / "lake"), "min_free_mb": 10},
                "environments": {"miniwob": {"browsers": BROWSERS, "pages": PAGES}},
                "suite": {"tasks": TASKS},
            }
        )
        costs = measure(config, 300 if args.short else 3000, REPLACE_S)
    if args.commit_s:
        costs = replace(costs, commit_s=args.commit_s)
    rows, bars = list[Mapping[str, Any]](), list[Bar]()
    for size in SIZES[: -1 if args.short else None]:
        fleet = Fleet(size, args.per_machine, args.cores, args.answer_s, CHUNK, MTBF_S, DOWN_S)
        count = max(EACH * size, LEAST)
        found, paper = collect(costs, fleet, count), paces(costs, fleet)
        least = min(pace for part, pace in paper.items() if part != "gates")
        rows.append(_row(costs, fleet, found, paper))
        bars += [
            Bar(f"{size} sandboxes: simulated pace by the paper's", found.pace / least, 0.8, "higher"),
            Bar(f"{size} sandboxes: simulated pace by the paper's", found.pace / least, 1.1, "lower"),
            Bar(f"{size} sandboxes: trajectories missing", count - found.committed, 0, "lower"),
        ]
    return finish("fleet", [_costs(costs), *rows], bars, args.json, tables=[[_costs(costs)], rows])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--per-machine", type=int, default=128, help="sandboxes of a machine")
    parser.add_argument("--cores", type=int, default=16, help="processors of a machine")
    parser.add_argument("--answer-s", type=float, default=1.0, help="seconds until the policy answers")
    parser.add_argument("--commit-s", type=float, help="seconds of a chunk's commits; else measured in a folder")
    return add_options(parser).parse_args()


def _costs(costs: Costs) -> dict[str, Any]:
    return {
        "what": "measured",
        "processor ms a screen": costs.screen_s * 1e3,
        "steps a trajectory": sum(costs.steps) / len(costs.steps),
        "ms a trajectory's rows": costs.rows_s * 1e3,
        "ms a chunk's commits": costs.commit_s * 1e3,
        "ms a trajectory's gates": costs.gates_s * 1e3,
        "failures a trajectory, at most": costs.failing,
        "MB a sandbox": costs.sandbox_mb,
    }


def _row(costs: Costs, fleet: Fleet, found: Outcome, paper: Mapping[str, float]) -> dict[str, Any]:
    first, after, *_ = sorted((part for part in paper if part != "gates"), key=lambda part: paper[part])
    return {
        "sandboxes": fleet.sandboxes,
        "machines": fleet.machines,
        "GB a machine": min(fleet.per_machine, fleet.sandboxes) * costs.sandbox_mb / 1e3,
        **{f"{part}/s": pace for part, pace in paper.items()},
        "simulated/s": found.pace,
        "waits for": first,
        "then for": after,
        "processors busy": found.processors,
        "log busy": found.log,
        "asked of the policy/s": found.asked,
        "begun anew": found.again,
        "machines that died": found.deaths,
    }


if __name__ == "__main__":
    raise SystemExit(main())
