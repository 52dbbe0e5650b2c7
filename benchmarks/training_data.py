"""What a supervised training costs before its first step, by the size of the lake: seconds and memory.

`python -m benchmarks.training_data [--short] [--lakes DIR] --json PATH`

The stage runs as it does in the wheel, in a process of its own, on a synthetic lake
(`benchmarks.shared.synthetic_lake`): it weighs every step of the lake, draws the samples of the whole default training
(520 steps of 16), writes them with their pictures, and starts the trainer. `start_s` ends with the trainer's first
report, ten steps in, so it holds the start of the trainer and of `torch` too; `cpu_s` is the stage's own, before that.
Memory is watched in a second run, a hundred steps longer, in which the trainer's cache of screens fills, and summed
over all processes (`benchmarks.shared.memory`). Beside the model is the most of what the stage holds alone and of what
all hold less what the trainer's processes hold in the same training on a lake of 200 steps (the model, gradients,
moments, activations, `torch`). With `--lakes`, lakes are kept there and used again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.shared.memory import PeakMemory
from benchmarks.shared.report import Bar, add_options, finish
from benchmarks.shared.synthetic_lake import fill
from learning.job import TrainerReport
from schemas.config import Config
from schemas.config.load import config_of
from schemas.tables.stage import PREPARE
from storage.lake import Lake
from tasks.launching.trainer_process import TrainerProcess
from tasks.prepare import INITIAL
from tasks.shared.material import PolicyRecipe
from tasks.shared.policies import Origin, register
from tasks.train.supervised import supervised
from tasks.train.train import job_of, pins_of

SMALL, SIZES = 200, (10_000, 100_000, 1_000_000)
"""Steps of the lakes: of one for what the trainer holds of itself, and of those that are compared."""
WATCHED = {False: 120, True: 10}
"""Training steps after which a full and a short run end."""
_PROGRAMS = {"stage_gib": "benchmarks.training_data", "trainer_gib": "learning.trainer"}
MOST_GIB, MOST_S = 1.0, 20.0


class _Watched(Exception):
    """The trainer has gone on for long enough."""


def run_stage(uri: str, folder: Path, steps: int) -> dict[str, Any]:
    """A stage up to so many steps of its training, and how long it takes to its parts."""
    began, busy = time.perf_counter(), time.process_time()
    config = _config(uri)
    lake = Lake.open(config.lake, create=False)
    recipe = PolicyRecipe("measured", INITIAL, 0, pins_of(lake))
    material = supervised(config, lake, recipe)
    weighed = time.perf_counter()
    job = job_of(config, lake, recipe, folder, material)
    written, used = time.perf_counter(), time.process_time() - busy
    reported: list[float] = []

    def watch(message: TrainerReport) -> None:
        if message.step is not None:
            reported.append(time.perf_counter() - began)
            if message.step >= steps:
                raise _Watched

    with suppress(_Watched), TrainerProcess(job, folder) as trainer:
        trainer.listen(watch)
    return {
        "samples": material.samples,
        "weigh_s": weighed - began,
        "write_s": written - weighed,
        "cpu_s": used,
        "start_s": reported[0],
    }


def measure(uri: str, short: bool) -> dict[str, Any]:
    """The stage on a lake, in processes of its own: its times, then the most that it, its trainer and both hold.

    Apart, since counting the pages of large processes ten times a second takes most of a core.
    """
    with _stage(uri, WATCHED[True]) as stage:
        times = _ended(stage)
    with _stage(uri, WATCHED[short]) as stage, PeakMemory(stage.pid, 0.1) as watched:
        _ended(stage)
    held = {name: watched.peak.programs.get(program, 0) / 2**30 for name, program in _PROGRAMS.items()}
    return {**times, **held, "all_gib": watched.peak.gib}


@contextmanager
def _stage(uri: str, steps: int) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.training_data", "--stage", uri, folder, str(steps)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as stage:
            yield stage


def _ended(stage: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What the stage prints at its end."""
    printed, _ = stage.communicate()
    if stage.returncode:
        raise SystemExit(f"{stage.args}: exit status {stage.returncode}")
    return json.loads(printed)


def make(folder: Path, steps: int) -> str:
    """The address of a lake of so many steps with an untrained policy; made there unless it is."""
    uri = str(folder / str(steps))
    lake = Lake.open(_config(uri).lake)
    if lake.count("policies"):
        return uri
    if not lake.count("screenshots"):
        fill(lake, steps)
    from models.tiny.build import build_tiny  # the process of a stage does not load `torch`

    with tempfile.TemporaryDirectory() as made:
        build_tiny(_config(uri).policy, [f'Click on the button "{word}".' for word in range(100)], 0, Path(made))
        checkpoint = lake.blobs.put_directory(Path(made), f"checkpoints/{INITIAL}")
    register(lake, _config(uri), Origin(INITIAL, "initial", "random", None, PREPARE), checkpoint, {}, 0)
    return uri


def bars_of(rows: list[dict[str, Any]]) -> list[Bar]:
    """The largest lake's cost, and by how much the cost grew from lake to lake for each time that the lake did."""
    last, pairs = rows[-1], list(pairwise(rows))
    grown = {
        name: max(after[name] / max(before[name], 1e-9) / (after["steps"] / before["steps"]) for before, after in pairs)
        for name in ("start_s", "beside_gib")
    }
    return [
        Bar(f"GiB beside the model, {last['steps']:,} steps", last["beside_gib"], MOST_GIB, "lower"),
        Bar(f"seconds to the first report, {last['steps']:,} steps", last["start_s"], MOST_S, "lower"),
        Bar("seconds: growth over the lake's", grown["start_s"], 1.0, "lower"),
        Bar("memory: growth over the lake's", grown["beside_gib"], 1.0, "lower"),
    ]


def main() -> int:
    """Measures each size in turn."""
    parser = add_options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--lakes", type=Path, help="where the lakes are kept")
    parser.add_argument("--stage", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.stage:
        uri, folder, steps = chosen.stage
        print(json.dumps(run_stage(uri, Path(folder), int(steps))))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.lakes or Path(scratch)
        own = measure(make(folder, SMALL), chosen.short)["trainer_gib"]
        rows = []
        for steps in SIZES[: 2 if chosen.short else None]:
            made = measure(make(folder, steps), chosen.short)
            rows.append({"steps": steps, **made, "beside_gib": max(made["stage_gib"], made["all_gib"] - own)})
    return finish("training_data", rows, bars_of(rows), chosen.json)


def _config(uri: str) -> Config:
    return config_of({"lake": {"uri": uri}, "suite": {"tasks": ["click-test"], "held_out": []}})


if __name__ == "__main__":
    sys.exit(main())
