"""`flywheel run` and other verbs as a process of its own: started, ended, and what is left of it."""

import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "FLYWHEEL_TEST_RUN"
"""Variable that every process of a run inherits, whatever session or group it is in."""
CONFIG = """
name = "small"
[lake]
uri = "{lake}"
min_free_mb = 10
[environments.fake]
sandboxes = 4
[suite]
tasks = ["click-target", "two-steps"]
[collect]
trajectories_per_task = 20
chunk = 4
relay_share = 0.2
[policy]
hidden = 64
vision_hidden = 64
layers = 1
vision_layers = 1
max_new_tokens = 8
[train]
processes = 1
steps_first = 30
steps = 30
batch = 4
warmup = 1
[evaluate]
seeds = 4
explorer_seeds = 4
[promote]
unparsable = 1
"""
SHORT = CONFIG.replace("trajectories_per_task = 20", "trajectories_per_task = 8").replace("= 30", "= 4")
"""The same stages with less in each: half of the time."""


@dataclass
class Command:
    """A run under way."""

    process: subprocess.Popen[bytes]
    mark: str
    log: Path
    """What it says on the terminal, standard output and standard error alike."""

    def left(self) -> list[str]:
        """The commands of its processes that are still there."""
        found = []
        for one in psutil.process_iter():
            try:
                mine = one.environ().get(MARK) == self.mark and one.status() != psutil.STATUS_ZOMBIE
                found += [" ".join(one.cmdline())] if mine else []
            except psutil.Error:
                continue
        return found

    def tree(self) -> list[psutil.Process]:
        """Its processes, itself first."""
        if self.process.poll() is not None:
            return []
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    def left_after(self, seconds: float) -> list[str]:
        """What is left when so much time has passed, or as soon as nothing is."""
        until = time.monotonic() + seconds
        while (found := self.left()) and time.monotonic() < until:
            time.sleep(0.1)
        return found


def start(config: Path, iterations: int = 1) -> Command:
    """`flywheel run` for a config whose folder also takes its work folder and its logs."""
    return start_verb(config, "run", "--iterations", str(iterations))


def start_verb(config: Path, *verb: str) -> Command:
    """`flywheel VERB` for such a config."""
    folder, mark = config.parent, uuid.uuid4().hex
    environ = {**os.environ, "FLYWHEEL_HOME": str(folder / "home"), MARK: mark}
    log = folder / f"{mark}.log"
    words = [sys.executable, "-m", "apps.cli", *verb, "--config", str(config)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            words, env=environ, stdout=out, stderr=out, start_new_session=True, preexec_fn=heeding_ctrl_c
        )
    return Command(process, mark, log)


def heeding_ctrl_c() -> None:
    """What a shell's foreground has; whoever runs the tests in a shell's background ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
