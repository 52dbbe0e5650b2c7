"""Draw rounds in which all sides take turns, summarize them, and sum the processor time of processes."""

import random
import statistics
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import psutil

from benchmarks.sandbox.clicks import Tally


def cpu_seconds(pid: int | None = None, without: Collection[int] = ()) -> float:
    """So far, of a process (this one if none is named) and all below it but some; of those that ended, what their
    parents have waited for."""
    total, waiting = 0.0, [psutil.Process(pid)]
    while waiting:
        process = waiting.pop()
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
            waiting += [child for child in process.children() if child.pid not in without]
    return total


SEEDS = 4
"""Different seeds of one round: few, so that the slower side comes to them all and both make trajectories as long."""
RATES = ("trajectories_s", "steps_s")
COLUMNS = (*RATES, "cpu_ms", "step_cpu_ms")


def drawn_evenly(lengths: dict[int, int], rounds: int) -> list[list[int]]:
    """Each round's seeds, one from every quarter of the seeds by the length of their trajectory.

    Args:
        lengths: steps by seed.
        rounds: how many; at most a quarter of the seeds.
    """
    ordered = sorted(lengths, key=lambda seed: (lengths[seed], seed))
    size = len(ordered) // SEEDS
    quarters = [ordered[start : start + size] for start in range(0, SEEDS * size, size)]
    for number, quarter in enumerate(quarters):
        random.Random(number).shuffle(quarter)
    return [[quarter[number] for quarter in quarters] for number in range(rounds)]


def row_of(task: str, number: int, side: str, setting: str, tally: Tally) -> dict[str, Any]:
    """What a side made in a round; a step has one screenshot, a trajectory one more."""
    rates = {"trajectories_s": tally.trajectories / tally.seconds, "steps_s": tally.steps / tally.seconds}
    cpu_ms = 1000 * tally.cpu_seconds
    each = {"cpu_ms": cpu_ms / tally.trajectories, "step_cpu_ms": cpu_ms / (tally.steps + tally.trajectories)}
    return {"task": task, "round": number, "side": side, "setting": setting, **rates, **each}


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over rounds, one row per task and setting."""
    summary = []
    for key in dict.fromkeys((row["task"], row["side"], row["setting"]) for row in rows):
        same = [row for row in rows if (row["task"], row["side"], row["setting"]) == key]
        medians = {column: statistics.median(row[column] for row in same) for column in COLUMNS}
        summary.append({"task": key[0], "side": key[1], "setting": key[2], **medians})
    return summary


def ratio(rows: list[dict[str, Any]], task: str, column: str, peers: tuple[str, ...]) -> float:
    """How many times better our best setting is than the best of these peers within a round, the median over rounds."""

    def best(here: list[dict[str, Any]], sides: tuple[str, ...]) -> float:
        return max(row[column] if column in RATES else 1 / row[column] for row in here if row["side"] in sides)

    rounds = [
        [row for row in rows if (row["task"], row["round"]) == (task, number)]
        for number in sorted({row["round"] for row in rows})
    ]
    return statistics.median(best(here, ("flywheel",)) / best(here, peers) for here in rounds)


def mean_ratio(rows: list[dict[str, Any]], tasks: tuple[str, ...], column: str, peers: tuple[str, ...]) -> float:
    """The geometric mean of the tasks' ratios."""
    return statistics.geometric_mean(ratio(rows, task, column, peers) for task in tasks)
