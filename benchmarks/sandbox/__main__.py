"""Measure how fast trajectories are made: our pool, MiniWoB++'s own Selenium environment, and BrowserGym.

`python -m benchmarks.sandbox [--short] [--json PATH]`, with the Python that `flywheel environments add browsergym`
built, or the one that `FLYWHEEL_BROWSERGYM_PYTHON` names. All roll out the same tasks with the same policy (uniform
random clicks below the instruction, at most ten) and seeds, repeatedly until the time is up, with a screenshot at the
start and after every step. A round has few seeds, drawn evenly from this policy's short and long trajectories. The
settings of all sides take turns within each round. The number is our best against their best within a round: the median
over rounds, and of the tasks' medians the geometric mean.

Our pool loads a fresh page for every trajectory, and BrowserGym starts new browsers. MiniWoB++'s default seeds the old
page again, which is quicker, and trajectories can influence each other. So it is also measured with `refresh_freq=1`.
BrowserGym draws other seeds of pages from its own.

Processor time is that of all processes of a side. It is also compared with the least that a step needs: a changed frame
of the page, drawn and encoded. Many trajectories are played twice, and their ends and pictures are compared.
"""

import asyncio
import statistics
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Bar, finish, options
from benchmarks.sandbox.browsergym_side import SETTINGS as BROWSERGYM
from benchmarks.sandbox.browsergym_side import ask_browsergym, browsergym_python, browsergym_workers
from benchmarks.sandbox.ours import costs, lengths_of, miniwob, run_ours, twice
from benchmarks.sandbox.rounds import COLUMNS, drawn_evenly, mean_ratio, ratio, row_of, summarise
from benchmarks.sandbox.selenium_side import SETTINGS as SELENIUM
from benchmarks.sandbox.selenium_side import ask, find_peer, selenium_workers
from environments.pool import SandboxPool
from schemas.failure import FlywheelError
from tasks.running.console import bar as progress_bar

TASKS = ("click-test", "click-button", "enter-text", "click-checkboxes", "login-user", "use-slider")
OURS = ((1, 1), (1, 2), (2, 2), (2, 4))
"""Browsers and pages per browser."""
PROCESSES = (1, 2)
"""Of BrowserGym."""
ANY, FRESH = ("selenium", "selenium, fresh", "browsergym"), ("selenium, fresh", "browsergym")
DEFAULTS = ("browsergym, defaults",)
PAIRS = {True: 60, False: 1000}
"""Trajectories that are played twice, in the short form and else."""


async def measure(
    tasks: tuple[str, ...], ours: tuple[tuple[int, int], ...], rounds: int, seconds: float, advance: Callable[[], None]
) -> list[dict[str, Any]]:
    """All rounds of all tasks; one row per round and setting."""
    rows: list[dict[str, Any]] = []
    pools = {shape: SandboxPool([miniwob(*shape)]) for shape in ours}
    for pool in pools.values():
        await pool.start()
    with (
        selenium_workers(max(processes for processes, _ in SELENIUM)) as (pipes, pids),
        browsergym_workers(max(PROCESSES)) as gyms,
    ):
        others = (*pids, *(gym.pid for gym in gyms))
        for task in tasks:
            await ask(pipes, task, 0, [0])
            lengths = await lengths_of(next(iter(pools.values())), task)
            for pool in pools.values():
                await run_ours(pool, task, 0.1, [0], others)
            for number, seeds in enumerate(drawn_evenly(lengths, rounds)):
                for processes, fresh in SELENIUM:
                    tally = await ask(pipes[:processes], task, seconds, seeds, fresh)
                    side = "selenium, fresh" if fresh else "selenium"
                    rows.append(row_of(task, number, side, f"{processes} processes", tally))
                for side, settings in BROWSERGYM.items():
                    for processes in PROCESSES:
                        tally = await ask_browsergym(gyms[:processes], task, seconds, seeds, settings)
                        rows.append(row_of(task, number, side, f"{processes} processes", tally))
                for (browsers, pages), pool in pools.items():
                    tally = await run_ours(pool, task, seconds, seeds, others)
                    rows.append(row_of(task, number, "flywheel", f"{browsers} x {pages} pages", tally))
                advance()
    for pool in pools.values():
        await pool.close()
    return rows


async def alone(tasks: tuple[str, ...], pairs: int) -> tuple[float, tuple[int, int, int, int]]:
    """What is measured of ours without the others: a step over a drawn frame, and pairs that are played twice."""
    pool = SandboxPool([miniwob(1, 2)])
    await pool.start()
    try:
        found = [await costs(pool, task, ()) for task in tasks]
        return statistics.geometric_mean(step / frame for step, frame in found), await twice(pool, tasks, pairs)
    finally:
        await pool.close()


def bars_of(rows: list[dict[str, Any]], over: float, played: tuple[int, int, int, int]) -> list[Bar]:
    """What is asked of the numbers."""
    rate, work = "trajectories_s", "step_cpu_ms"
    pairs, alike, screens, equal = played
    return [
        Bar("trajectories/s, best against best", mean_ratio(rows, TASKS, rate, ANY), 8.0, "higher"),
        Bar("trajectories/s, a fresh page on all sides", mean_ratio(rows, TASKS, rate, FRESH), 12.0, "higher"),
        Bar("trajectories/s against BrowserGym's defaults", mean_ratio(rows, TASKS, rate, DEFAULTS), 100.0, "higher"),
        Bar(
            "processor time of a picture, the better peer over ours", mean_ratio(rows, TASKS, work, ANY), 10.0, "higher"
        ),
        Bar("processor time of a step over that of a drawn frame", over, 1.5, "lower"),
        Bar(f"of {pairs} trajectories played twice, alike", alike / pairs, 1.0, "higher"),
        Bar(f"of their {screens} pictures, the same to the byte", equal / screens, 0.98, "higher"),
    ]


def main() -> int:
    """Exit status 0 if the bars are reached, 1 if not or if a peer is missing."""
    arguments = options(__doc__ or "")
    try:
        find_peer()
        browsergym_python()
        rounds, seconds = (2, 1.5) if arguments.short else (5, 4.0)
        with progress_bar() as progress:
            job = progress.add_task("rounds", total=rounds * len(TASKS), message="")
            shapes = OURS[1:3] if arguments.short else OURS
            rows = asyncio.run(measure(TASKS, shapes, rounds, seconds, lambda: progress.advance(job)))
        over, played = asyncio.run(alone(TASKS, PAIRS[arguments.short]))
    except FlywheelError as error:
        print(error, file=sys.stderr)
        return 1
    summary = summarise(rows)
    for what, peers in (("best against best", ANY), ("a fresh page on all sides", FRESH), ("defaults", DEFAULTS)):
        for task in TASKS:
            found = {column: ratio(rows, task, column, peers) for column in COLUMNS}
            summary.append({"task": task, "side": "ratio", "setting": what, **found})
    return finish("sandbox", summary, bars_of(rows, over, played), arguments)


if __name__ == "__main__":
    sys.exit(main())
