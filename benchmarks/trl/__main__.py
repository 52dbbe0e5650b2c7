"""Compare our trainer with TRL's on a CPU: the same model, data and tokens; speed, first loss, peak memory.

`python -m benchmarks.trl [--short] [--rounds N] [--steps N] --json PATH`

The model is a random Qwen3-VL of about 21 million weights with its real processor. TRL (an environment of its own under
FLYWHEEL_HOME, with the same torch and transformers) gets the prompts as our family writes them and the same replies, so
both have the same tokens. The losses of the first step are compared. Every run is a process of its own with two threads
and one rank, timed from the first read of the data to the last update, reference passes included; ours and TRL's take
turns. TRL runs at its defaults (bf16 autocast, gradient checkpointing), in bf16 without checkpointing, and in fp32
without: the fastest counts.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Bar, add_options, finish
from benchmarks.trl.running import run, trl_python
from benchmarks.trl.workload import SMALL, Scale, write_workload

OURS = ("ours bf16", "ours fp32")
THEIRS = ("trl defaults", "trl bf16", "trl fp32")
BARS = {"sft equal": 1.5, "sft mixed": 2.0, "dpo": 1.2}
CLOSE = 0.01
"""By how much the first losses in fp32 may differ, as a share."""


def main(words: Sequence[str] | None = None) -> int:
    """Prints a row per workload and arm; exit code 1 if a bar is missed."""
    options = _options(words)
    python = trl_python()
    with TemporaryDirectory(prefix="flywheel-trl-") as folder:
        scale = Scale(dict(SMALL), steps=2) if options.short else Scale(steps=options.steps)
        works = write_workload(Path(folder), list(BARS), scale)
        runs = [
            {"work": work.name, "arm": arm, **run(work, arm, python)}
            for number in range(1 if options.short else options.rounds)
            for work in works
            for arm in (_turns() if number % 2 == 0 else reversed(_turns()))
        ]
    rows = [_row(runs, work, arm) for work in BARS for arm in (*OURS, *THEIRS)]
    return finish("trl", rows, list(chain.from_iterable(_bars(rows, work) for work in BARS)), options)


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often every arm runs")
    parser.add_argument("--steps", type=int, default=Scale().steps, help="of 8 samples, in each run")
    return add_options(parser).parse_args(words)


def _turns() -> list[str]:
    """Ours and theirs by turns."""
    return [THEIRS[0], OURS[0], THEIRS[1], OURS[1], THEIRS[2]]


def _row(runs: Sequence[dict[str, Any]], work: str, arm: str) -> dict[str, Any]:
    own = [run for run in runs if (run["work"], run["arm"]) == (work, arm)]
    names = ("samples/s", "first loss", "peak MiB")
    return {"work": work, "arm": arm, **{name: median(run[name] for run in own) for name in names}}


def _bars(rows: Sequence[dict[str, Any]], work: str) -> list[Bar]:
    """Ours at its faster setting against TRL's fastest, and the memory of both; the losses in fp32."""
    own = {row["arm"]: row for row in rows if row["work"] == work}
    ours = max((own[arm] for arm in OURS), key=lambda row: row["samples/s"])
    best = max((own[arm] for arm in THEIRS), key=lambda row: row["samples/s"])
    first, reference = own["ours fp32"]["first loss"], own["trl fp32"]["first loss"]
    return [
        Bar(f"{work}: {ours['arm']} over {best['arm']}", ours["samples/s"] / best["samples/s"], BARS[work], "higher"),
        Bar(f"{work}: peak memory over {best['arm']}", ours["peak MiB"] / best["peak MiB"], 1.0, "lower"),
        Bar(f"{work}: first losses in fp32 differ by", abs(first / reference - 1), CLOSE, "lower"),
    ]


if __name__ == "__main__":
    sys.exit(main())
