"""Measure finding trajectories by text and in every order, as the page of trajectories does.

`python -m benchmarks.finding [--short] [--lake DIR] --json PATH`

The synthetic lake (`benchmarks.tables.wide`) has 100,000 trajectories with 500,000 steps in 20 iterations. `first` is
the first search of a process, which reads the texts of all data files. `s` is the best of five later ones, as the page
needs them: 20 rows with their decisions and last screens. `cpu` is the least processor time of these; where other
programs take the processors, it is the better measure.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Bar, add_options, finish
from benchmarks.tables.wide import fill_iterations
from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tasks.shared.finding import ORDERS, Wanted, find

TRAJECTORIES, ITERATIONS, STEPS = {False: 5_000, True: 100}, 20, 5
"""Trajectories of one iteration, iterations, and steps of a trajectory."""
TEXTS = {
    "none": None,
    "in no step": "nothing holds this",
    "in one trajectory": "number 1234 ",
    "in half of the steps": "MAY BE the one",
    "in every step": "e",
    "with escapes in JSON": 'said "Stra\u00dfe"\n',
}
"""Texts to find, by where they are."""
TIMES = 5
MAX_S = 0.3


def measured(lake: Lake, text: str | None, order: str) -> dict[str, Any]:
    """Find trajectories several times, and return the first and the best duration."""
    took: list[tuple[float, float]] = []
    matching = 0
    for _ in range(TIMES + 1):
        began, worked = time.perf_counter(), time.process_time()
        matching = find(lake, Wanted(text=text), order=order).total
        took.append((time.perf_counter() - began, time.process_time() - worked))
    best, cpu = (min(each) for each in zip(*took[1:], strict=True))
    return {"order": order, "matching": matching, "first": took[0][0], "s": best, "cpu": cpu}


def main() -> int:
    """Measure each text in each order."""
    parser = add_options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--lake", type=Path, help="where the lake is kept")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        lake = Lake.open(LakeConfig(uri=str(chosen.lake or Path(scratch) / "lake")))
        if not lake.count("trajectories"):
            fill_iterations(lake, TRAJECTORIES[chosen.short], ITERATIONS, STEPS)
        rows = [{"text": name, **measured(lake, text, order)} for name, text in TEXTS.items() for order in ORDERS]
    bars = [
        Bar(
            f"{name}, slowest, {kind}",
            max(row[key] for row in rows if (row["text"] == "none") is plain),
            MAX_S,
            "lower",
        )
        for name, plain in (("any order without a text", True), ("any text in any order", False))
        for key, kind in (("s", "s"), ("cpu", "processor s"))
    ]
    return finish("finding", rows, bars, chosen)


if __name__ == "__main__":
    sys.exit(main())
