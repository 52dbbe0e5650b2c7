"""Judge stored trajectories again, in batches, and report verdicts, agreement and changes.

The verdicts of a batch are written before the next batch starts, so a repeated command continues after an interruption.
Routes do not change until the filter runs again. A judge never decides about tasks that have a verifier.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice

from common.text import counted
from curation.agreement import Confusion, totals
from models.judges.registry import required_judge, version_of
from schemas.config import Config
from schemas.failure import FlywheelError, UsageError
from schemas.tables.agreement import Against, Agreement
from storage.lake import Lake
from tasks.running.cluster import divided, part_task, share_out, shares_out
from tasks.running.console import bar
from tasks.shared.gate_facts import Stored, VerdictHistory
from tasks.shared.reviews import Standing, renew_agreements
from tasks.shared.trajectories import stored, trajectories_of

TOGETHER = 64
"""Number of trajectories in a batch. Their screens are in memory at the same time."""


@dataclass(slots=True)
class Judging:
    """Counts of judged trajectories so far."""

    seen: int = 0
    judged: int = 0
    tokens: int = 0
    failed: Counter[str] = field(default_factory=Counter[str])
    """Number of trajectories without an answer, by reason."""
    skipped: Counter[str] = field(default_factory=Counter[str])
    """Number of trajectories that the judge was not asked about, by reason."""
    seconds: float = 0.0
    flips: Counter[str] = field(default_factory=Counter[str])
    """Number of verdicts that differ from the earlier verdict of another judge or version, by kind of change."""

    def add(self, other: "Judging") -> None:
        """Add the counts of another part."""
        for count in fields(self):
            setattr(self, count.name, getattr(self, count.name) + getattr(other, count.name))


@dataclass(frozen=True, slots=True)
class Earlier:
    """Counts of trajectories with an earlier verdict, and of changed verdicts."""

    compared: int
    to_accept: int
    to_reject: int


@dataclass(frozen=True, slots=True)
class Judged:
    """Report of `flywheel judge`."""

    judge: str
    iterations: Sequence[int]
    trajectories: int
    judged: int
    failed: int
    failed_why: Mapping[str, int]
    skipped: int
    skipped_why: Mapping[str, int]
    seconds_per_trajectory: float | None
    tokens_per_trajectory: float | None
    against: Mapping[Against, Confusion]
    """Confusion counts, by the reference of the comparison."""
    earlier: Earlier
    probation: str
    """Reason for the judge's probation; empty if it is not on probation."""


def judge_again(config: Config, lake: Lake, iterations: tuple[int, int] | None) -> Judged:
    """Ask the configured judge about every stored trajectory that has no failure and no verdict of this judge.

    Args:
        config: config with the section `judge`.
        lake: the lake with the trajectories, which also receives verdicts and agreements.
        iterations: the first iteration and the iteration after the last; all if not given.

    Raises:
        UsageError: no judge is configured, or the iterations have no trajectory.
        FlywheelError: the judge cannot start, or gave no answer at all.
    """
    judge = required_judge(config.judge)
    judge.require()
    chosen = _iterations(lake, iterations)
    done, version = Judging(), version_of(judge, config.judge)
    for iteration, count in chosen.items():
        if shares_out(config):
            names = lake.read("trajectories", ["trajectory_id"], {"iteration": iteration})["trajectory_id"].to_pylist()
            for found in judge_in_parts(config, iteration, sorted(names)):
                done.add(found)
        else:
            _judge(VerdictHistory(config, lake, iteration), trajectories_of(lake, iteration), count, done)
        renew_agreements(lake, iteration)
    if done.failed and not done.judged:
        ((why, _),) = done.failed.most_common(1)
        raise FlywheelError(f"The judge answered on none of {counted(done.failed.total(), 'trajectory')}: {why}.", "")
    return _report(config, lake, version, list(chosen), done)


def judge_in_parts(config: Config, iteration: int, names: Sequence[str]) -> list[Judging]:
    """Ask the judge about the open trajectories of an iteration, on the machines of `cluster`."""
    given = {"config": config, "iteration": iteration}
    return share_out(config, judge_part, [{**given, "names": mine} for mine in divided(config, names)], "judge, parts")


@part_task("judge-part")
def judge_part(config: Config, iteration: int, names: list[str]) -> Judging:
    """Ask the judge about the named trajectories, except trajectories that it has judged or cannot judge."""
    lake, done = Lake.open(config.lake, create=False), Judging()
    chunks = (names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER))
    trajectories = (one for some in chunks for one in stored(lake, some))
    _judge(VerdictHistory(config, lake, iteration), trajectories, len(names), done)
    return done


def _judge(history: VerdictHistory, trajectories: Iterator[Stored], count: int, done: Judging) -> None:
    """Ask the judge about the trajectories, chunk by chunk."""
    with bar() as progress:
        shown = progress.add_task("judge", total=count, message="")
        while chunk := list(islice(trajectories, TOGETHER)):
            _ask(history, chunk, done)
            progress.advance(shown, len(chunk))


def _ask(history: VerdictHistory, chunk: Sequence[Stored], done: Judging) -> None:
    """Ask the judge about the open trajectories of a chunk, and count the results."""
    done.skipped.update(why for one in chunk if (why := history.why_not(one)))
    began = time.perf_counter()
    asked = history.ask(history.open(chunk))
    done.seconds += time.perf_counter() - began
    done.seen += len(chunk)
    done.judged += len(asked.verdicts)
    done.failed += asked.failures
    done.tokens += asked.tokens
    for trajectory, _ in chunk:
        earlier, now = history.earlier.get(trajectory.trajectory_id), history.own.get(trajectory.trajectory_id)
        if earlier and now:
            changed = "" if earlier.passed == now.passed else "to accept" if now.passed else "to reject"
            done.flips[changed] += 1


def _iterations(lake: Lake, wanted: tuple[int, int] | None) -> dict[int, int]:
    """Return the number of trajectories of each wanted iteration, in order."""
    counts = Counter(lake.read("trajectories", ["iteration"])["iteration"].to_pylist())
    chosen = {one: counts[one] for one in sorted(counts) if wanted is None or wanted[0] <= one < wanted[1]}
    if not chosen:
        there = f"{min(counts)} to {max(counts)}" if counts else "none"
        raise UsageError(
            "`--iterations`: there is no trajectory in them.",
            f"The lake's iterations are {there}; B is left out of A:B.",
        )
    return chosen


def _report(config: Config, lake: Lake, version: str, iterations: list[int], done: Judging) -> Judged:
    rows = lake.rows(Agreement, {"judge_version": version, "iteration": iterations})
    return Judged(
        judge=version,
        iterations=iterations,
        trajectories=done.seen,
        judged=done.judged,
        failed=done.failed.total(),
        failed_why=dict(done.failed.most_common(10)),
        skipped=done.skipped.total(),
        skipped_why=dict(done.skipped.most_common()),
        seconds_per_trajectory=_each(done.seconds, done),
        tokens_per_trajectory=_each(done.tokens, done),
        against=dict(sorted(totals(rows).items())),
        earlier=Earlier(done.flips.total(), done.flips["to accept"], done.flips["to reject"]),
        probation=Standing(lake, config.judge).probation(version),
    )


def _each(amount: float, done: Judging) -> float | None:
    asked = done.judged + done.failed.total()
    return round(amount / asked, 6) if asked else None
