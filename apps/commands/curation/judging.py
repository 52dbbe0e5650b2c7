"""Implement `flywheel judge`: judge stored trajectories again, and report the differences."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from apps.lakes import open_lake
from schemas.config import Config
from schemas.failure import UsageError
from tasks.running.console import out

if TYPE_CHECKING:
    from tasks.judge import Judged
    from tasks.judge_training import TrainedJudge

COUNTS = (
    "n", "true_positives", "false_positives", "false_negatives", "true_negatives", "precision", "recall", "f1", "kappa",
    "false_accept_rate",
)  # fmt: skip
"""Fields of a judge's comparison with verifiers and people, in `--json`."""


def judge_stored(config: Config, version: str | None, iterations: tuple[int, int] | None) -> "Judged":
    """Judges the trajectories of the lake.

    Args:
        config: the judge, if `version` names no other.
        version: the name or version of the judge.
        iterations: first and end; all if not given.

    Raises:
        UsageError: `version` is not the configured judge.
    """
    from models.judges.registry import required_judge, version_of
    from tasks.judge import judge_again
    from tasks.running.boundary import alone

    lake = open_lake(config)
    judge = required_judge(config.judge)
    if version is not None and version not in (judge.name, judge.version, version_of(judge, config.judge)):
        raise UsageError(
            f"`--version {version}`: the judge of the config is {judge.name}.",
            "Set judge.kind and judge.options to it.",
        )
    with alone(lake, "judge"):
        return judge_again(config, lake, iterations)


def train_on(config: Config, name: str, iterations: tuple[int, int] | None) -> "TrainedJudge":
    """Trains a judge from the verifiers' verdicts in the lake; raises UsageError if there are too few."""
    from tasks.judge_training import train_judge
    from tasks.running.boundary import alone

    lake = open_lake(config)
    with alone(lake, "judge"):
        return train_judge(config, lake, name, iterations)


def show_trained(made: "TrainedJudge") -> None:
    """Prints the trained judge."""
    console = out()
    test = made.test
    names = ("f1", "precision", "recall", "false_accept_rate")
    rates = ", ".join(f"{name} {_share(getattr(test, name))}" for name in names)
    console.print(f"{made.judge}: on {test.n} trajectories of pages that it never saw: {rates}")
    console.print(f"it is in {made.checkpoint}; use it with")
    console.print(" ".join(made.config))


def as_json(report: "Judged") -> dict[str, object]:
    """The report for programs."""
    against = {who: {name: getattr(counts, name) for name in COUNTS} for who, counts in report.against.items()}
    return {**asdict(report), "against": against}


def show_judging(report: "Judged") -> None:
    """The report for people."""
    console = out()
    counts = f"{report.judged} judged, {report.failed} failed, {report.skipped} skipped"
    why = ", ".join(f"{n} {reason}" for reason, n in report.skipped_why.items())
    console.print(f"{report.judge}: {counts}" + (f" ({why})" if why else ""))
    for reason, n in report.failed_why.items():
        console.print(f"no answer on {n}: {reason}", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("against", "n", "accepted rightly", "wrongly", "F1", "kappa", "false accepts"):
        table.add_column(name, justify="left" if name == "against" else "right")
    for against, one in report.against.items():
        rates = [_share(rate) for rate in (one.f1, one.kappa, one.false_accept_rate)]
        table.add_row(against, str(one.n), str(one.true_positives), str(one.false_positives), *rates)
    if report.against:
        console.print(table)
    earlier = report.earlier
    if earlier.compared:
        changed = f"{earlier.to_accept} are now accepted, {earlier.to_reject} rejected"
        console.print(f"of {earlier.compared} judged before, {changed}")
    console.print(f"on probation: {report.probation}" if report.probation else "not on probation")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
