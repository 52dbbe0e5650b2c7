"""Implement the verbs over stored trajectories: `refilter`, `think`, `judge` and `curriculum explain`."""

from dataclasses import asdict
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from apps.calling import call
from apps.options import open_lake
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.curriculum import CurriculumChoice
from storage.lake import Lake
from tasks.running.boundary import alone
from tasks.running.console import make_table, out

if TYPE_CHECKING:
    from tasks.judge import Judged
    from tasks.judge_training import TrainedJudge
    from tasks.refilter import Changes
    from tasks.think.think import ThoughtReport


COUNTS = (
    "n", "true_positives", "false_positives", "false_negatives", "true_negatives", "precision", "recall", "f1", "kappa",
    "false_accept_rate",
)  # fmt: skip
"""Fields of a judge's comparison with verifiers and people, in `--json`."""


def refilter(config: Config, iterations: tuple[int, int] | None) -> "Changes":
    """Runs the configured gates over stored trajectories; returns the changes."""
    open_lake(config)
    return call("flows.data.refilter", config, iterations)


def changes_as_json(found: "Changes") -> dict[str, Any]:
    """Converts the changes to JSON."""
    names = {"was": "from", "now": "to"}
    flips = [{names.get(key, key): value for key, value in asdict(one).items()} for one in found.flips]
    return {**asdict(found), "flips": flips}


def show_changes(found: "Changes") -> None:
    """Prints the changes."""
    console, gates = out(), found.gates
    console.print(f"{found.changed} of {found.trajectories} trajectories change their route")
    table = make_table("<gate", "rejected before", "now", gap=2)
    for gate in sorted({*gates.before, *gates.after}):
        table.add_row(gate, *(str(counts.get(gate, 0)) for counts in (gates.before, gates.after)))
    console.print(table)
    for flip in found.flips:
        names = ", ".join(flip.examples)
        console.print(f"{flip.n} from {flip.was} to {flip.now}, such as {names}: {flip.reason}", soft_wrap=True)


def think_of_stored(config: Config, iterations: tuple[int, int] | None) -> "ThoughtReport":
    """Requests thoughts for stored steps; raises UsageError if no author is configured, or there are no steps."""
    from tasks.think.think import think_again

    lake = open_lake(config)
    with alone(lake, "think"):
        return think_again(config, lake, iterations)


def show_thoughts(found: "ThoughtReport") -> None:
    """Prints the report."""
    console = out()
    for what, by_name in (("thoughts", found.thoughts), ("patterns", found.patterns)):
        counts = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in by_name.items())
        console.print(f"{what}: {counts or 'none'}")
    table = make_table("<author", "step", "asked", "kept", "", gap=2)
    for row in found.kept_by_step:
        table.add_row(row.author, str(row.step), str(row.asked), str(row.kept), f"{row.kept / row.asked:.0%}")
    if found.kept_by_step:
        console.print(table)
        cost = f"{found.tries:,} tries, {found.tokens:,} tokens, {found.seconds:,.1f} s"
        reasons = ", ".join(f"{reason} {n}" for reason, n in found.turned_away.items())
        console.print(f"{cost}; rejected: {reasons or 'none'}")
    for why, n in found.failed.items():
        console.print(f"no answer on {n:,} steps: {why}", markup=False)
    if found.unasked:
        console.print(f"{found.unasked:,} left unasked: raise think.most")


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


def judging_as_json(report: "Judged") -> dict[str, object]:
    """Converts the report to JSON."""
    against = {who: {name: getattr(counts, name) for name in COUNTS} for who, counts in report.against.items()}
    return {**asdict(report), "against": against}


def show_judging(report: "Judged") -> None:
    """Prints the report."""
    console = out()
    counts = f"{report.judged} judged, {report.failed} failed, {report.skipped} skipped"
    why = ", ".join(f"{n} {reason}" for reason, n in report.skipped_why.items())
    console.print(f"{report.judge}: {counts}" + (f" ({why})" if why else ""))
    for reason, n in report.failed_why.items():
        console.print(f"no answer on {n}: {reason}", markup=False)
    table = make_table("<against", "n", "accepted rightly", "wrongly", "F1", "kappa", "false accepts", gap=2)
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


KINDS = ("explorer", "policy", "relay")


def explanation(lake: Lake, task: str) -> list[CurriculumChoice]:
    """Reads the choices for a task, oldest first; there is at least one.

    Raises:
        UsageError: the curriculum never had the task; the message names the nearest task and lists all.
    """
    rows = lake.rows(CurriculumChoice)
    known = sorted({row.task_id for row in rows})
    named = [name for name in known if task in (name, name.rpartition("/")[2])]
    if not named:
        short = [name.rpartition("/")[2] for name in known]
        near = get_close_matches(task, [*known, *short], n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"It holds: {', '.join(short) or 'nothing yet'}."
        raise UsageError(f"The curriculum of {lake.uri} holds no task `{task}`.", hint)
    if len(named) > 1:
        raise UsageError(f"Several environments have a task `{task}`.", f"Write {' or '.join(named)}.")
    return sorted((row for row in rows if row.task_id == named[0]), key=lambda row: row.iteration)


def explained(found: list[CurriculumChoice]) -> dict[str, Any]:
    """Converts the choices to JSON."""
    numbers = {"iteration", "pool", "weight", "successes", "failures", "reason"}
    return {
        "task": found[0].task_id,
        "iterations": [row.model_dump(include=numbers) | row.trajectories for row in found],
    }


def show_explanation(found: list[CurriculumChoice]) -> None:
    """Prints the choices."""
    console = out()
    table = make_table("iteration", "share", *KINDS, "<because")
    for row in found:
        counts = (str(row.trajectories[kind]) for kind in KINDS)
        table.add_row(str(row.iteration), f"{100 * row.weight:.1f} %", *counts, row.reason)
    console.print(found[0].task_id, style="bold")
    console.print(table)
