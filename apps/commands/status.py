"""Implement `flywheel status`: show the lake's status to people and programs."""

import json
import time
from dataclasses import asdict, dataclass
from itertools import compress
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from common.text import counted, lasting
from flywheel import OpenLake
from rollout.failures import FailedTask
from schemas.failure import UsageError
from schemas.tables.quality import OVERRIDES
from schemas.tables.stage import PREPARE, STAGES, chronological, label_of
from schemas.tables.trajectory import IMPORT
from storage.lake import Lake
from tasks.overrides import overridden
from tasks.promote.events import ROLLED_BACK, PromotionEvent, decisions, outcomes, rolled_back
from tasks.running.budget import pause_of
from tasks.running.console import make_table, out
from tasks.running.run_status import RunStatus, dead_run, run_statuses
from tasks.shared.general import general_checks
from tasks.shared.lease import lease_owner
from tasks.shared.policies import policy_row
from tasks.shared.proposals import Proposals, proposals_of
from tasks.shared.runs import runs_of
from tasks.shared.status import Ends, IterationStatus, PolicySuccess, Success, begun_iterations, failing, success_of
from tasks.shared.trajectories import SHORT_ID

COLUMNS = ("iteration", "success", "<", "95 %", "rollouts", "seconds", "<policy", "<outcome")
WIDTH = 80
SPARED = ("<", "rollouts", "seconds")
"""Columns that a terminal of less than `WIDTH` characters omits."""
SPARKS = "▁▂▃▄▅▆▇█"
BAR_WIDTH, SHORT_BAR = 10, 8
SHOWN = 10
"""Maximum printed decisions other than the iterations'; `--json` has all."""
FINISHED_BY = {
    "retrained": "the same `flywheel retrain` without `--train-only`",
    "merged": "the same `flywheel merge`",
    "adopted": "the same `flywheel adopt`",
}
"""Command that evaluates a policy and compares it with the champion, by the policy's kind."""
COLOURS = {"promoted": "green", ROLLED_BACK: "red"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy outside the iterations that was not compared with the champion yet."""

    policy: str
    kind: str
    method: str
    steps: int
    """Optimiser steps of its training; 0 without a training."""
    loss: float | None
    """Last loss of its training."""
    success: PolicySuccess | None
    """Success on the suite; None if it was not evaluated."""

    @property
    def text(self) -> str:
        """Returns the training, and the command that evaluates the policy."""
        trained = f"{self.method}, {counted(self.steps, 'step')}" if self.steps else self.method
        loss = "" if self.loss is None else f", loss {self.loss:.3f}"
        state = f"success {self.success.text}" if self.success else "not evaluated"
        todo = "compares it with the champion" if self.success else "evaluates it"
        return f"{self.policy}: {trained}{loss}; {state}; {FINISHED_BY[self.kind]} {todo}"


def candidates(lake: Lake) -> list[Candidate]:
    """Returns the policies outside the iterations that were not compared with the champion yet, oldest first."""
    found: list[Candidate] = []
    for event in decisions(lake):
        if event.decision == "candidate" and event.kind in FINISHED_BY:
            name, row = event.policy, policy_row(lake, event.policy)
            steps = lake.read("training_steps", ["step"], {"policy_version": name})["step"].to_pylist()
            loss = json.loads(row.metrics).get("loss")
            found.append(Candidate(name, event.kind, row.method, max(steps, default=0), loss, success_of(lake, name)))
    return found


def status_of(stored: Lake) -> dict[str, Any]:
    """The output of `flywheel status --json`, which only lists finished iterations."""
    from tasks.shared.training_ledger import learned_from_people

    lake, rows = OpenLake(stored), begun_iterations(stored)
    champion = lake.champion()
    why = {policy: event.reason for policy, event in rolled_back(stored).items()}
    finished = [asdict(row) | {"rolled_back": why.get(row.policy or "")} for row in rows if row.finished]
    pause = pause_of(stored)
    return {
        "lake": lake.uri,
        "champion": champion,
        "champion_success": lake.success(champion),
        "iterations": [{key: value for key, value in row.items() if key != "n"} for row in finished],
        "runs": [asdict(run) | {"started_at": run.started_at.isoformat()} for run in runs_of(stored)],
        "current": _current(stored, rows),
        "imported": _imported(stored),
        "proposals": {name: one.model_dump() | {"retired": one.retired} for name, one in proposals_of(stored).items()},
        "people": learned_from_people(stored),
        "paused": pause and pause.model_dump(mode="json"),
        "decisions": [asdict(one) for one in decisions(stored)],
        "candidates": [asdict(one) for one in candidates(stored)],
        "general": {
            name: asdict(one) | {"forgets": one.forgets, "needed": one.needed}
            for name, one in general_checks(stored).items()
        },
        "failing": [asdict(one) for one in _failing(stored, rows)],
        "overridden": [one.model_dump(exclude={"broke"}) for one in overridden(stored, stored.version(OVERRIDES.name))],
    }


def _current(lake: Lake, rows: list[IterationStatus]) -> dict[str, Any] | None:
    """Describes the unfinished iteration, or another part of a run, and its progress; None without either."""
    live = [one for one in run_statuses(lake) if one.part is None and (one.stage or one.iteration is not None)]
    if live:
        one = max(live, key=lambda status: (status.iteration is not None, status.heard))
        kept = ("iteration", "flow", "stage", "label", "done", "total", "left_s", "message", "host", "process")
        return {
            "running": True,
            **{name: getattr(one, name) for name in kept},
            "stage_s": max(0.0, one.heard - one.since) if one.since else None,
        }
    if not rows or rows[-1].finished:
        return None
    stage = next((name for name in STAGES if name not in rows[-1].stages_s), STAGES[-1])
    running, at = lease_owner(lake) is not None, rows[-1].iteration
    dead = None if running else dead_run(lake, at)
    ended = {"ended": {name: getattr(dead, name) for name in ("host", "process", "stage", "heard")}} if dead else {}
    return {"running": running, "iteration": at, "stage": stage, **ended}


def show_status(lake: Lake) -> None:
    """Prints the status, including an unfinished iteration."""
    out().print(view(lake))


def watch_status(lake: Lake, every_s: float) -> None:
    """Prints the status every `every_s` seconds until a signal arrives; raises UsageError without a terminal."""
    from rich.live import Live

    console = out()
    if not console.is_terminal:
        raise UsageError("`--watch` is for a terminal.", "Programs can use `flywheel status --json`.")
    with Live(view(lake), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            live.update(view(lake), refresh=True)


def view(lake: Lake) -> Group:
    """Builds the printed status of a lake, which fits 80 columns, or a narrower terminal with fewer columns."""
    rows, champion = begun_iterations(lake), OpenLake(lake).champion()
    shown = [name not in SPARED or out().width >= WIDTH for name in COLUMNS]
    table = make_table(*compress(COLUMNS, shown))
    decided, stand = decisions(lake), outcomes(lake)
    for row in rows:
        table.add_row(*compress(_cells(row, stand.get(row.policy or "")), shown))
    trend = sparkline([row.success for row in rows if row.success is not None])
    explorer = f"{rows[-1].explorer_name} {_number(rows[-1].explorer)}" if rows else f"explorer {_number(None)}"
    text = f"\nsuccess {trend or '-'}   {explorer}   champion {champion or 'none'}"
    if success := _measured(rows, champion) or OpenLake(lake).success(champion):
        text += f"\nthe champion's success {success.text}"
    own = [row.verified for row in rows if row.verified]
    fixed = [row.verified_fixed_mix for row in rows if row.verified_fixed_mix]
    unseen = [row.held_out for row in rows if row.held_out]
    if own:
        text += f"\nown trajectories that succeed, P(V=1 | iteration) {_trend([one.rate for one in own], own[-1].ci)}"
    if fixed:
        text += f"\nthe same of a fixed mix of {counted(fixed[-1].tasks, 'task')} "
        text += _trend([one.rate for one in fixed], fixed[-1].ci)
    made = [row.synthesized for row in rows if row.synthesized]
    if unseen:
        text += f"\ntasks that are never trained on {_trend([one.success for one in unseen], unseen[-1].ci)}"
    if made:
        text += f"\nmade tasks {_trend([one.success for one in made], made[-1].ci)}"
    if checks := general_checks(lake):
        version, check = list(checks.items())[-1]
        text += f"\n{version}: {check.text}"
    text += "".join(f"\nproposals of {name}: {_proposals(one)}" for name, one in proposals_of(lake).items())
    text += _runs(lake) + _rollbacks(lake) + _overrides(lake) + "".join(f"\n{one.text}" for one in _failing(lake, rows))
    text += "\nin brackets: 95 % intervals over trajectories"
    others = [one for one in decided if one.kind != "iteration"]
    other_runs = [Text(), _decisions(others)] if others else []
    waiting = "".join(f"{one.text}\n" for one in candidates(lake)[-SHOWN:])
    last = Text(f"{waiting}lake {lake.uri}\n{_now(lake, rows)}")
    return Group(table if rows else _not_begun(lake), Text(text), *other_runs, last)


def _measured(rows: list[IterationStatus], policy: str) -> Success | None:
    """Returns the success rate of a policy of one of these iterations."""
    row = next((row for row in rows if row.policy == policy), None)
    return Success(row.success, row.ci, row.n) if row and row.ci and row.success is not None else None


def _not_begun(lake: Lake) -> str:
    brought = _imported(lake)
    also = f" {counted(brought, 'imported trajectory', 'imported trajectories')}." if brought else ""
    return f"No iteration has begun yet.{also}"


def _imported(lake: Lake) -> int:
    """Counts imported trajectories."""
    return lake.count("trajectories", {"policy": IMPORT})


def _decisions(found: list[PromotionEvent]) -> Table:
    """Lists the last promotion decisions other than the iterations', and rollbacks."""
    table = make_table("<challenger", "<decision", "<difference", "<against")
    for one in found[-SHOWN:]:
        at = "{:+.3f} ({:+.2f} to {:+.2f})".format(one.difference, *one.ci) if one.ci else "-"
        table.add_row(one.policy, one.decision, at, one.against or "-")
    return table


def _failing(lake: Lake, begun: list[IterationStatus]) -> list[FailedTask]:
    """Lists the tasks without a working trajectory in the last begun iteration."""
    return failing(lake, begun[-1].iteration) if begun else []


def _proposals(one: Proposals) -> str:
    """Describes the proposals of a maker: those accepted, and why the others were rejected."""
    retired = f", {one.retired} retired" if one.retired else ""
    return f"{one.accepted} of {one.proposed} accepted{retired}" + (f"; {one.why}" if one.why else "")


def _runs(lake: Lake) -> str:
    """Makes a line with the newest three runs, if there are several."""
    runs = runs_of(lake)
    if len(runs) < 2:
        return ""
    named: list[str] = []
    for run in runs[-3:]:
        numbers = [label_of(at).removeprefix("iteration ") for at in run.iterations if at != PREPARE]
        named.append(f"{run.run_id[:SHORT_ID]} ({', '.join(numbers)})")
    return f"\nruns, with their iterations: {'; '.join(named)}"


def _rollbacks(lake: Lake) -> str:
    """Makes a line for each of the newest three rollbacks, with the reason."""
    newest = list(rolled_back(lake).items())[-3:]
    return "".join(f"\n{policy} {ROLLED_BACK}: {event.reason}" for policy, event in newest)


def _overrides(lake: Lake) -> str:
    """Makes a line for each of the newest three reasons for overriding the quality gate."""
    rows = overridden(lake, lake.version(OVERRIDES.name))
    found = {(row.iteration, row.person, row.reason) for row in rows}
    newest = sorted(found, key=lambda one: chronological(one[0]))[-3:]
    return "".join(f"\nquality of {label_of(at)} overridden by {who}: {why}" for at, who, why in newest)


def _now(lake: Lake, rows: list[IterationStatus]) -> str:
    """Describes the current activity, and the pause, if any."""
    pause = pause_of(lake)
    paused = f"{pause.text} `flywheel resume` ends that.\n" if pause else ""
    moments, turn = [one for one in run_statuses(lake) if one.stage], lease_owner(lake)
    lines = [f"now {_under_way(one, rows)}; process {one.process} of {one.host}" for one in moments]
    if turn is not None and (turn.process, turn.host) not in [(one.process, one.host) for one in moments]:
        done = rows[-1].stages_s if rows and not rows[-1].finished else {}
        stage = next((one for one in STAGES if one not in done), STAGES[-1])
        lasts = f" for {_since(lake):.0f} s" if rows else ""
        lines.insert(0, f"now {stage}{lasts}{_last_time(stage, rows)}; process {turn.process} of {turn.host}")
    return (paused + "\n".join(lines)).rstrip() or "no iteration is running" + _ended(lake, rows)


def _ended(lake: Lake, rows: list[IterationStatus]) -> str:
    """Describes how the last process of an unfinished iteration died; empty if it is unknown."""
    if not rows or rows[-1].finished or (dead := dead_run(lake, rows[-1].iteration)) is None:
        return ""
    ago = lasting(max(0.0, time.time() - dead.heard))
    during = f" during {dead.stage}" if dead.stage else ""
    return f": process {dead.process} of {dead.host} ended{during}, {ago} ago; `flywheel run` continues the iteration"


def _under_way(status: RunStatus, rows: list[IterationStatus]) -> str:
    """Describes a stage, its progress, and its remaining or last duration."""
    turned = status.iteration is not None
    head = "" if turned or status.flow in ("", status.stage) else f"{status.flow}: "
    so_far = f"{head}{status.stage} for {max(0.0, status.heard - status.since):.0f} s"
    if not status.total:
        return so_far + (_last_time(status.stage, rows) if turned else "")
    left = "" if status.left_s is None else f", about {lasting(status.left_s)} left"
    return f"{so_far}, {status.done:,.0f} of {status.total:,.0f}{left}"


def _last_time(stage: str, rows: list[IterationStatus]) -> str:
    before = [row.stages_s[stage] for row in rows if stage in row.stages_s]
    return f", {before[-1]:.0f} s the last time" if before else ""


def _since(lake: Lake) -> float:
    """Returns the seconds since the last finished stage."""
    ended = lake.read("stages", ["started_at", "wall_s"]).to_pylist()
    return max(0.0, time.time() - max((row["started_at"].timestamp() + row["wall_s"] for row in ended), default=0.0))


def bar(share: float | None, width: int = BAR_WIDTH) -> str:
    """Draws a share in [0, 1] as a bar of eighths of characters."""
    eighths = round((share or 0.0) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width, "·")


def sparkline(shares: list[float]) -> str:
    """Draws shares in [0, 1] as small columns."""
    return "".join(SPARKS[min(len(SPARKS) - 1, int(share * len(SPARKS)))] for share in shares)


def _cells(row: IterationStatus, decided: str | None) -> list[str | Text]:
    word = decided or ("promoted" if row.promoted else "kept old")
    outcome = Text(word, COLOURS.get(word, "")) if row.finished else "unfinished"
    return [
        str(row.iteration),
        _number(row.success),
        Text(bar(row.success, SHORT_BAR), "cyan"),
        "{:.2f} to {:.2f}".format(*row.ci) if row.ci else "-",
        str(row.trajectories),
        f"{row.wall_s:.0f}",
        row.policy or "-",
        outcome,
    ]


def _trend(shares: list[float], ci: Ends) -> str:
    """Draws shares as columns, and writes the last share with its interval."""
    return "{} {:.3f} ({:.2f} to {:.2f})".format(sparkline(shares), shares[-1], *ci)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
