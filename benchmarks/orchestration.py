"""Measure the cost of orchestration: an iteration of the profile `miniwob` with a Prefect server, and without.

Two arms make the same two iterations, each from an empty lake in a process of its own: `flywheel run` without a server
(`plain`); and with one, so that log lines, events, a table and a picture go there, too (`server`). Of the second
iteration, each arm has the seconds of its stages' work (sandboxes, models, storage) and those between the stages.
Overhead is the time between stages beyond that of `plain`, as a share of the iteration. The work of the stages varies
by more than that for other reasons: it is in the rows, and in no bar.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Bar, add_options, finish
from schemas.config import Config, load_config

ARMS = ("plain", "server")
MOST = 0.02
ITERATIONS = 2
"""The last is measured: what is imported and made once per lake is behind it."""
SHORT = (
    "collect.trajectories_per_task=8",
    "collect.practice_trajectories=5",
    "evaluate.seeds=3",
    "evaluate.held_out_seeds=1",
    "evaluate.explorer_seeds=2",
    "evaluate.untrained_seeds=1",
    "train.steps_first=60",
    "train.steps=60",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the arms and prints the table; exit code 1 if a bar is missed."""
    options = _options(arguments)
    overrides = [*(SHORT if options.short else ()), *options.overrides]
    if options.arm:
        run_arm(options.arm, load_config(options.config, overrides))
        return 0
    with tempfile.TemporaryDirectory(prefix="flywheel-orchestration-") as folder:
        rows = [measured(arm, Path(folder) / arm.replace(" ", "-"), options.config, overrides) for arm in ARMS]
    plain = rows[0]
    if any(row["stages"] != plain["stages"] for row in rows):
        raise AssertionError(f"The arms have other stages: {rows}")
    for row in rows:
        row["overhead %"] = 100 * (row["between s"] - plain["between s"]) / plain["iteration s"]
    bars = [Bar(f"overhead of {row['arm']}, share", row["overhead %"] / 100, MOST, "lower") for row in rows[1:]]
    return finish("orchestration", rows, bars, options)


def measured(arm: str, folder: Path, config: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Run an arm in a folder of its own; return the seconds of its last iteration."""
    folder.mkdir(parents=True)
    words = [sys.executable, "-m", "benchmarks.orchestration", "--arm", arm, "--config", config]
    environ = {**os.environ, "FLYWHEEL_HOME": str(folder / "home"), "FLYWHEEL__LAKE__URI": str(folder / "lake")}
    for name in ("PREFECT_API_URL", "PREFECT_HOME"):
        environ.pop(name, None)
    subprocess.run([*words, *overrides], env=environ, check=True)
    found = json.loads((folder / "home" / "measured.json").read_text())
    return {"arm": arm, **found}


def run_arm(arm: str, config: Config) -> None:
    """Run the arm's iterations in this process and write the measurement to the work folder."""
    from apps.calling import call
    from apps.process import heeded, ignore, settle
    from common.process import home

    settle()
    with heeded():
        if arm == "plain":
            call("flows.flywheel.flywheel", config, ITERATIONS)
        else:
            _with_a_server(config)
    home().mkdir(parents=True, exist_ok=True)
    (home() / "measured.json").write_text(json.dumps(_last(config)))
    ignore()


def _with_a_server(config: Config) -> None:
    from apps.calling import call
    from apps.schedule.automations import answers, use_server
    from apps.schedule.processes import SERVE, ServiceProcess
    from common.process import home

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    (home() / "prefect").mkdir(parents=True)
    kept = [ServiceProcess("Prefect server", [*SERVE, "--port", port], home() / "server.log")]
    try:
        kept[0].require_ready(lambda: answers(f"http://127.0.0.1:{port}/api"))
        use_server(f"http://127.0.0.1:{port}/api")
        call("flows.flywheel.flywheel", config, ITERATIONS)
    finally:
        for one in kept:
            one.stop()


def _last(config: Config) -> dict[str, Any]:
    from storage.lake import Lake
    from tasks.shared.status import iterations

    lake = Lake.open(config.lake, create=False)
    last = iterations(lake)[-1]
    stages = sorted(lake.read("stages", ["stage"], {"iteration": last.iteration})["stage"].to_pylist())
    work, between = last.wall_s, last.orchestration_s or 0.0
    return {"iteration s": work + between, "work s": work, "between s": between, "stages": stages}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.orchestration",
        description=__doc__,
        epilog="--short: the same suite with few trajectories and little training, so the bar is a stricter one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="changes to the config")
    parser.add_argument("--config", default="miniwob", help="a config file or a profile")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    return add_options(parser).parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
