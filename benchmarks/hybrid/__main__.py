"""The hybrid sandbox: how fast a lease is up, whether every task can be solved, whether anything leads out of it.

`python -m benchmarks.hybrid [--short] [--json PATH]`. A lease is measured from the request to the first screenshot, in
one browser that runs already; a command from the request to its output. Every task of the catalog is solved by its own
way for several seeds. Every way out of the shell is tried, and after each of them the next lease must be solved too.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.hybrid.escapes import MARK, SECRET, escapes, host, leftovers, tried
from benchmarks.shared.report import Bar, finish, options
from environments.hybrid.environment import HybridConfig, HybridEnvironment
from environments.hybrid.sandbox import HybridSandbox
from environments.hybrid.scripted import solve
from environments.hybrid.tasks.catalog import FAMILIES
from environments.pool import SandboxPool
from schemas.failure import FlywheelError, TrajectoryFailure

BAR_MS = 200.0
ENVIRONMENT = HybridEnvironment("hybrid", HybridConfig(kind="hybrid", browsers=1, pages=2))
FIRST_SEED = 2_000_000
Row = dict[str, Any]


@asynccontextmanager
async def leased(pool: SandboxPool, template: str, seed: int) -> AsyncIterator[HybridSandbox]:
    """A started sandbox of a task."""
    async with pool.lease(ENVIRONMENT.task(template), seed) as sandbox:
        assert isinstance(sandbox, HybridSandbox)
        yield sandbox


async def lease_times(pool: SandboxPool, count: int) -> list[float]:
    """Milliseconds from the request to the first screenshot; the first lease, which opens the page, is left out."""
    times = []
    for seed in range(count + 1):
        start = time.perf_counter()
        async with leased(pool, "files-open", seed) as sandbox:
            await sandbox.observe()
            times.append(1000 * (time.perf_counter() - start))
    return times[1:]


async def command_times(pool: SandboxPool, count: int) -> list[float]:
    """Milliseconds of a command that does nothing, from the request to its end."""
    times = []
    async with leased(pool, "files-open", 0) as sandbox:
        for _ in range(count):
            start = time.perf_counter()
            await sandbox.workspace.terminal.run(":")
            times.append(1000 * (time.perf_counter() - start))
    return times


async def solved(pool: SandboxPool, template: str, seed: int) -> bool:
    """Whether its way solves the task."""
    try:
        async with leased(pool, template, seed) as sandbox:
            return (await solve(sandbox)).reaches(1)
    except TrajectoryFailure as failure:
        print(f"{template}, seed {seed}: {failure}", file=sys.stderr)
        return False


async def catalog(pool: SandboxPool, seeds: int) -> list[Row]:
    """By family, how many instances there were and how many were solved."""
    rows: list[Row] = []
    for family in FAMILIES:
        asked = [(name, FIRST_SEED + seed) for name in family.templates for seed in range(seeds)]
        found = await asyncio.gather(*(solved(pool, name, seed) for name, seed in asked))
        rows.append(
            {"what": f"family {family.name}", "tasks": len(family.templates), "tried": len(asked), "well": sum(found)}
        )
    return rows


async def contained(pool: SandboxPool) -> list[Row]:
    """By way out, whether it led nowhere and the next lease was solved."""
    rows: list[Row] = []
    with host() as there:
        for name, command in escapes(there).items():
            async with leased(pool, "files-delete", 1) as sandbox:
                answer = await tried(sandbox, command)
            out = MARK in answer or SECRET in answer or there.asked or leftovers()
            rows.append({"what": name, "tried": 1, "well": int(not out and await solved(pool, "files-delete", 2))})
    return rows


async def measure(short: bool) -> tuple[list[Row], list[Bar]]:
    """Rows and bars."""
    async with SandboxPool([ENVIRONMENT]) as pool:
        leases, commands = (
            await lease_times(pool, 20 if short else 100),
            await command_times(pool, 100 if short else 1000),
        )
        families, ways = await catalog(pool, 1 if short else 5), await contained(pool)
    rows: list[Row] = [
        {
            "what": name,
            "tried": len(times),
            "median_ms": statistics.median(times),
            "p90_ms": statistics.quantiles(times, n=10)[8],
        }
        for name, times in (("lease to first screenshot", leases), ("command", commands))
    ]
    tried_, well = (sum(row[key] for row in families) for key in ("tried", "well"))
    bars = [
        Bar("lease to first screenshot, median, ms", statistics.median(leases), BAR_MS, "lower"),
        Bar(
            f"share of {tried_} instances of {sum(row['tasks'] for row in families)} tasks solved by their ways",
            well / tried_,
            1.0,
            "higher",
        ),
        Bar(
            f"share of {len(ways)} ways out that lead nowhere and leave the pool working",
            sum(row["well"] for row in ways) / len(ways),
            1.0,
            "higher",
        ),
    ]
    return [*rows, *families, *ways], bars


def main() -> int:
    """Exit status 0 if the bars are reached, 1 if not or if no shell can be isolated here."""
    arguments = options(__doc__ or "")
    try:
        for probe in ENVIRONMENT.probes():
            if probe.required:
                probe.examine()
        rows, bars = asyncio.run(measure(arguments.short))
    except FlywheelError as error:
        print(error, file=sys.stderr)
        return 1
    times, families, ways = rows[:2], rows[2 : 2 + len(FAMILIES)], rows[2 + len(FAMILIES) :]
    return finish("hybrid", rows, bars, arguments.json, [times, families, ways])


if __name__ == "__main__":
    sys.exit(main())
