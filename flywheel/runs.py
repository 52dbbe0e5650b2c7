"""Run iterations from Python, in a separate process."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

from common.log import VARIABLE
from common.process import ours
from flywheel.lake import OpenLake
from schemas import failure
from schemas.config import load_config
from schemas.config.profiles import config_file
from schemas.failure import FlywheelError
from storage.lake import Lake as StoredLake
from tasks.shared.paths import lake_if_any
from tasks.shared.status import IterationStatus

COMMAND = (sys.executable, "-m", "apps.cli", "run")


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run."""

    lake: OpenLake
    iterations: list[IterationStatus]
    """Iterations that the run finished, oldest first."""
    champion: str
    """Version of the champion after the run."""
    report: Path
    """Path of the report."""


def run(config: str | Path | None = None, overrides: Sequence[str] = (), *, iterations: int | None = None) -> RunResult:
    """Run iterations. The arguments are those of `flywheel.run`."""
    resolved = load_config(config, overrides)
    file = ["--config", str(config_file(config))]  # the command alone would take the config of the folder's last run
    number = [] if iterations is None else ["--iterations", str(iterations)]
    there = lake_if_any(resolved)
    before = _finished(OpenLake(there)) if there else {}
    report = Path(_output([*COMMAND, "--json", *file, *number, *overrides])["report"])
    lake = OpenLake(StoredLake.open(resolved.lake, create=False))
    made = [row for at, row in _finished(lake).items() if at not in before]
    return RunResult(lake, made, lake.champion(), report)


def _finished(lake: OpenLake) -> dict[int, IterationStatus]:
    return {row.iteration: row for row in lake.iterations() if row.finished}


def _output(command: Sequence[str]) -> dict[str, Any]:
    """Run a command, print its messages, and return its JSON. Raise the error of a failed command."""
    environ, error = ours({**os.environ, VARIABLE: "json"}), None
    with (
        tempfile.TemporaryFile() as out,
        subprocess.Popen(command, stdout=out, stderr=PIPE, text=True, env=environ) as child,
    ):
        assert child.stderr is not None
        try:
            for message in _messages(child.stderr):
                if "exit_code" in message:
                    kind = getattr(failure, message["error"], FlywheelError)
                    error = kind(message["message"], message["hint"])
                else:
                    print(message["message"], file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)  # the child releases its leases; finished stages are kept
            raise
        status = child.wait()
        if status:
            raise error or FlywheelError(f"The run ended with status {status}.", "The messages above have the reason.")
        out.seek(0)
        return json.load(out)


def _messages(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Read messages with one JSON object per line. Other lines, such as those of a traceback, become messages."""
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            yield {"message": line.rstrip()}
