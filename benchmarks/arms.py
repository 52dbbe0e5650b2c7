"""Run one arm of a learning benchmark, so that it can be interrupted and resumed anywhere.

An arm is a lake in its own folder, below a folder named after the config, so configs do not mix. Measurements are kept
next to the lake; each file is written whole or not at all. A lock, which the process of the arm holds too, keeps a
second benchmark from an arm that still runs.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peak_memory import PeakMemory, folder_bytes
from schemas.config import load_config
from storage.lake import Lake

FIRST_TEST_SEED = 2_000_000
"""Seeds from here on are for no choice."""


def root_of(config: str, overrides: Sequence[str]) -> Path:
    """Return the folder of the arms of a config."""
    resolved = load_config(config, overrides)
    digest = hashlib.sha256(resolved.canonical().encode()).hexdigest()[:8]
    home = Path(os.environ.get("FLYWHEEL_HOME", ".flywheel"))
    return home.absolute() / "benchmarks" / "wheel" / f"{resolved.name}-{digest}"


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm with one run seed."""

    name: str
    seed: int
    config: str
    folder: Path
    overrides: tuple[str, ...]
    """Of the config, beside the file."""

    @property
    def lake(self) -> Path:
        """Its lake."""
        return self.folder / "lake"

    def flywheel(self, verb: str, *options: str) -> str:
        """Return the output of a command that reads."""
        return _call([verb, *options, "--config", self.config, *self.overrides])

    def iterations(self) -> list[dict[str, Any]]:
        """Return the finished iterations of `flywheel status --json`."""
        if not (self.lake / "flywheel.json").exists():
            return []
        return json.loads(self.flywheel("status", "--json"))["iterations"]

    def run_until(self, iterations: int) -> None:
        """Run iterations until the lake has so many."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _alone(self.folder) as lock:
            done = len(self.iterations())
            if done < iterations:
                self._run(iterations - done, done, lock)

    def _run(self, more: int, done: int, lock: int) -> None:
        arguments = ["run", "--config", self.config, "--iterations", str(more), *self.overrides]
        command, started = _command(arguments), time.perf_counter()
        with (
            subprocess.Popen(command, pass_fds=(lock,)) as wheel,
            PeakMemory(wheel.pid) as memory,
        ):
            code = wheel.wait()
        turn = {
            "from": done,
            "to": done + more,
            "wall_s": time.perf_counter() - started,
            "peak_gib": memory.peak.gib,
            "by_program_gib": {name: size / 2**30 for name, size in memory.peak.programs.items()},
        }
        with (self.folder / "turns.jsonl").open("a") as kept:
            kept.write(json.dumps(turn) + "\n")
        if code:
            raise SystemExit(f"`{' '.join(command)}` ended with {code}")

    def cost(self) -> dict[str, Any]:
        """Return the peak memory of the whole runs, the size of the lake, and the commits of the code that made it."""
        turns = self.folder / "turns.jsonl"
        seen = [json.loads(line) for line in turns.read_text().splitlines()] if turns.exists() else []
        lake = Lake.open(load_config(self.config, self.overrides).lake, create=False)
        return {
            "peak_gib": max((turn["peak_gib"] for turn in seen), default=None),
            "lake_mb": folder_bytes(self.lake) / 1e6,
            "code": sorted(set(lake.read("policies", ["code"])["code"].to_pylist())),
            "turns": seen,
        }

    def measure(self, version: str, tasks: Sequence[str], seeds: int, first: int = FIRST_TEST_SEED) -> dict[str, Any]:
        """A policy's greedy trajectories on test seeds, from the first on."""
        kept = self.folder / f"test-{version}-{seeds}{f'-from-{first}' if first != FIRST_TEST_SEED else ''}.json"
        return _kept(kept, lambda: self._evaluate(version, tasks, seeds, first=first))

    def sample(self, version: str, tasks: Sequence[str], seeds: int, attempts: int) -> dict[str, Any]:
        """A policy's trajectories on test seeds, several drawn per seed: [task, seed, success, attempt, steps] each."""
        kept = self.folder / f"test-{version}-{seeds}-{attempts}-{zlib.crc32(','.join(tasks).encode()):08x}.json"
        return _kept(kept, lambda: self._evaluate(version, tasks, seeds, "--attempts", str(attempts)))

    def measure_explorer(self, tasks: Sequence[str], seeds: int) -> dict[str, float]:
        """The explorer's rate by task on the same seeds; it depends on nothing an arm does."""
        kept = self.folder.parent / f"explorer-{seeds}.json"
        measured = _kept(kept, lambda: self._evaluate("explorer", tasks, seeds))
        return {task: value["success"] for task, value in measured["tasks"].items()}

    def _evaluate(self, policy: str, tasks: Sequence[str], seeds: int, *more: str, first: int = FIRST_TEST_SEED) -> str:
        chosen = ["--tasks", ",".join(tasks), "--seeds", f"{first}:{first + seeds}"]
        return self.flywheel("evaluate", "--policy", policy, *chosen, "--json", "--plays", *more)


def _kept(path: Path, make: Any) -> dict[str, Any]:
    """Read the JSON of a file, and make the file if it is missing."""
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(make())
        part.replace(path)
    return json.loads(path.read_text())


@contextmanager
def _alone(folder: Path) -> Iterator[int]:
    """Hold the folder's lock, and yield its descriptor for child processes."""
    with (folder / "lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"{folder}: another process still runs this arm. Wait for it, or end it.") from None
        yield held.fileno()


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "apps.cli", *arguments]


def _call(arguments: Sequence[str]) -> str:
    done = subprocess.run(_command(arguments), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(_command(arguments))}` ended with {done.returncode}")
    return done.stdout
