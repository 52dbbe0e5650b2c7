"""Web applications: whether every task can be done and is scored rightly, and what a sandbox costs.

`python -m benchmarks.webapps [--short] [--json PATH] --from DIR`. DIR is a checkout of CUA-Gym-Hub, whose applications
are built into a folder that is thrown away, or a folder that they were built in (docs/webapps.md). Each task is played
by its script over several seeds, one at a time; before it the application as it stands is verified, and after it, in
another session, the golden state and the near-misses. A row for each application: how long it took to build and how
large that is, the median time from the lease to the first screenshot, steps per second (an action, what it makes of the
page, and a screenshot), and how many trajectories were solved and verdicts were right.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.shared.report import Bar, add_options, finish
from environments.pool import SandboxPool
from environments.webapp.build import build, record_of
from environments.webapp.environment import WebAppConfig, WebAppEnvironment
from environments.webapp.sandbox import WebAppReward, WebAppSandbox
from environments.webapp.tasks import NotThere, action_for

REWARD = WebAppReward()


@dataclass(slots=True)
class Tally:
    """Of one application."""

    first_s: list[float] = field(default_factory=list[float])
    step_s: list[float] = field(default_factory=list[float])
    solved: int = 0
    played: int = 0
    right: int = 0
    verdicts: int = 0
    unlike: list[str] = field(default_factory=list[str])
    """Tasks whose first picture differs between two leases of one seed."""


async def play(environment: WebAppEnvironment, pool: SandboxPool, name: str, seed: int, tally: Tally) -> bytes:
    """One trajectory by the script; returns its first picture."""
    begun = time.perf_counter()
    async with pool.lease(environment.task(name), seed) as sandbox:
        assert isinstance(sandbox, WebAppSandbox) and sandbox.instance is not None
        first = (await sandbox.observe()).png
        tally.first_s.append(time.perf_counter() - begun)
        count(tally, (await sandbox.verify(REWARD)).reward == 0)
        tally.played += 1
        try:
            for move in sandbox.instance.script:
                seen = await sandbox.observe(elements=True)
                begun = time.perf_counter()
                await sandbox.perform(action_for(move, seen.elements))
                await sandbox.observe()
                tally.step_s.append(time.perf_counter() - begun)
        except NotThere:
            return first
        tally.solved += (await sandbox.verify(REWARD)).reward == 1
    return first


async def verify(environment: WebAppEnvironment, pool: SandboxPool, name: str, seed: int, tally: Tally) -> bytes:
    """The golden state and the near-misses, of the application's own state; returns the first picture."""
    async with pool.lease(environment.task(name), seed) as sandbox:
        assert isinstance(sandbox, WebAppSandbox) and sandbox.instance is not None
        first = (await sandbox.observe()).png
        initial, _ = await sandbox.states()
        one = sandbox.instance
        for state, wanted in ((one.golden(initial), 1), *((state, 0) for state in one.near(initial))):
            await sandbox.put(state)
            count(tally, (await sandbox.verify(REWARD)).reward == wanted)
    return first


def count(tally: Tally, right: bool) -> None:
    """One verdict."""
    tally.verdicts += 1
    tally.right += right


async def measure(environment: WebAppEnvironment, seeds: int) -> dict[str, Tally]:
    """All tasks over so many seeds, by application."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    async with SandboxPool([environment]) as pool:
        for name in environment.entries:
            tally = tallies[environment.instance(name, 0)[0]]
            for seed in range(1, seeds + 1):
                played = await play(environment, pool, name, seed, tally)
                if played != await verify(environment, pool, name, seed, tally):
                    tally.unlike.append(name)
    return tallies


def main() -> int:
    """Exit status 0 if all tasks are solved and all verdicts are right."""
    parser = add_options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--from", dest="source", type=Path, required=True, help="a checkout, or what was built of it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        source: Path = arguments.source.expanduser().absolute()
        folder = Path(made) if (source / "websites").is_dir() else source
        config = WebAppConfig(kind="webapp", folder=str(folder), browsers=1, pages=1, start_timeout_s=60)
        environment = WebAppEnvironment("webapp", config)
        if folder != source:
            build(source, folder, environment.served, lambda line: print(line, file=sys.stderr))
        tallies = asyncio.run(measure(environment, 1 if arguments.short else 3))
        rows = [row(folder / name, name, tally) for name, tally in tallies.items()]
    shares = {
        "share of trajectories solved by their script": ("solved", "played"),
        "share of right verdicts on initial, golden and near states": ("right", "verdicts"),
    }
    bars = [Bar(what, sum(one[a] for one in rows) / sum(one[b] for one in rows), 1.0, "higher")
            for what, (a, b) in shares.items()]  # fmt: skip
    return finish("webapps", rows, bars, arguments.json)


def row(folder: Path, name: str, tally: Tally) -> dict[str, Any]:
    """One application."""
    built = record_of(folder)
    return {
        "application": name,
        "build_s": built.seconds if built else None,
        "kb": round(built.bytes / 1000) if built else None,
        "first_screenshot_ms": round(statistics.median(tally.first_s) * 1000),
        "steps_s": round(1 / statistics.median(tally.step_s), 1) if tally.step_s else None,
        "solved": tally.solved,
        "played": tally.played,
        "right": tally.right,
        "verdicts": tally.verdicts,
        "first_picture_differs": ", ".join(sorted(set(tally.unlike))),
    }


if __name__ == "__main__":
    sys.exit(main())
