"""Find trajectories by task, outcome, policy, iteration, route, gate and text, for commands, pages and Python.

The query is `storage/queries/found_trajectories.sql`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from schemas.failure import UsageError
from schemas.tables.evaluation_trajectory import EvaluationTrajectory
from schemas.tables.trajectory import RecordedTrajectory, Trajectory
from schemas.tables.verdict import ROUTES
from storage.catalog import answers, ask
from storage.lake import Lake
from tasks.shared.policies import champion_if_any
from tasks.shared.trajectories import episode_of

Outcome = Literal["success", "failure", "environment", "unknown"]
"""`environment`: a failure that is not the policy's. `unknown`: an import without an outcome."""
Order = Literal["newest", "oldest", "reward", "steps", "seconds"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
ORDERS: tuple[Order, ...] = get_args(Order)
_TEXTS = ("task", "outcome", "policy", "route", "gate", "text", "tag")
_BITS = {"iteration": 32, "seed": 64, "limit": 64}
"""Sizes of the integers that the query takes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Conditions on trajectories. A field that is None holds for every trajectory."""

    task: str | None = None
    """The task's id, or its last part, such as `click-test`."""
    outcome: str | None = None
    """One of `OUTCOMES`."""
    policy: str | None = None
    """A policy version, `champion`, or a kind such as `explorer`."""
    iteration: int | None = None
    route: str | None = None
    """One of `schemas.tables.verdict.ROUTES`; a trajectory that no filter has processed has none."""
    gate: str | None = None
    """A gate that rejected the trajectory."""
    text: str | None = None
    """A text in the instruction, a thought, an action or a reason, in any case."""
    seed: int | None = None
    tag: str | None = None
    evaluations: bool = False
    """Find the trajectories that evaluations keep, instead of collected ones. They have no route and no gate."""

    def __post_init__(self) -> None:
        for name in _TEXTS:
            try:
                (getattr(self, name) or "").encode()
            except UnicodeEncodeError:
                raise UsageError(f"`{name}`: the text is not valid Unicode.", "Write the text in UTF-8.") from None
        for name in ("iteration", "seed"):
            _require_fitting(name, getattr(self, name))
        for name in ("route", "gate"):
            if self.evaluations and getattr(self, name) is not None:
                fix = f"Leave `{name}` out, or find collected trajectories."
                raise UsageError(f"`{name}`: trajectories of evaluations are never filtered, so they have none.", fix)
        for name, allowed in (("outcome", OUTCOMES), ("route", ROUTES)):
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise UsageError(f"`{name}`: {value!r} is unknown.", f"Take one of {', '.join(allowed)}.")


@dataclass(frozen=True, slots=True)
class FoundTrajectory:
    """A trajectory with the decision about it."""

    row: RecordedTrajectory
    route: str | None
    """None if no filter has processed the trajectory."""
    reason: str
    """Reason of the route."""
    screenshot: str | None
    """sha256 of its last screen; None without steps."""

    @property
    def outcome(self) -> Outcome:
        """One of `OUTCOMES`."""
        return outcome_of(self.row)


@dataclass(frozen=True, slots=True)
class Found:
    """One page of the trajectories that match."""

    rows: list[FoundTrajectory]
    total: int
    """Number of all trajectories that match."""

    def __iter__(self) -> Iterator[FoundTrajectory]:
        return iter(self.rows)


@dataclass(frozen=True, slots=True)
class _FoundId:
    trajectory_id: str
    iteration: int
    total: int
    place: int


def find(lake: Lake, wanted: Wanted, limit: int = 20, offset: int = 0, order: str = "newest") -> Found:
    """Find trajectories.

    Args:
        lake: the lake.
        wanted: the conditions.
        limit: maximum number of rows.
        offset: number of matching trajectories before the first row.
        order: one of `ORDERS`; for `reward`, `steps` and `seconds`, the largest first.

    Raises:
        UsageError: the order is unknown, or the limit is below 1 or too large.
    """
    _require_fitting("limit", limit, 1)
    if order not in ORDERS:
        raise UsageError(f"`sort`: {order!r} is unknown.", f"Take one of {', '.join(ORDERS)}.")
    conditions = {**asdict(wanted), "policy": _policy(lake, wanted.policy)}
    text = conditions.pop("text")
    pattern = re.escape(text) if text else None
    parameters = {**conditions, "pattern": pattern, "limit": limit, "offset": offset, "sort": order}
    places = answers(lake, _FoundId, "found_trajectories", **parameters)
    if not places:
        return Found([], 0 if offset == 0 else _total(lake, parameters))
    ids, iterations = [one.trajectory_id for one in places], sorted({one.iteration for one in places})
    kind = EvaluationTrajectory if wanted.evaluations else Trajectory
    rows = {row.trajectory_id: row for row in lake.rows(kind, {"iteration": iterations, "trajectory_id": ids})}
    return Found(_with_decisions(lake, [rows[one] for one in ids]), places[0].total)


def refuse_unknown(lake: Lake, wanted: Wanted) -> None:
    """Raise UsageError that names a task, policy, iteration, gate, seed or tag which no trajectory of the lake has."""
    if wanted.evaluations and not find(lake, Wanted(evaluations=True), 1).total:
        fix = "Set `evaluate.keep_failures` or `evaluate.keep_successes` above 0; later evaluations then keep theirs."
        raise UsageError("`evaluations`: the lake keeps no trajectory of an evaluation.", fix)
    for name in ("task", "policy", "iteration", "gate", "seed", "tag"):
        value = getattr(wanted, name)
        if value is not None and not find(lake, Wanted(**{name: value}, evaluations=wanted.evaluations), 1).total:
            shown = _policy(lake, value) if name == "policy" else value
            what = f"no trajectory was rejected by {value!r}" if name == "gate" else f"no trajectory has {shown!r}"
            raise UsageError(f"`{name}`: {what}.", "`flywheel trajectories` without it lists all of them.")


def found_of(lake: Lake, name: str) -> FoundTrajectory:
    """Return a trajectory with the decision about it; raises UsageError if no trajectory has this id."""
    row = episode_of(lake, name)
    return _with_decisions(lake, [row])[0]


def outcome_of(row: RecordedTrajectory) -> Outcome:
    """Return the outcome of a trajectory."""
    if row.success is None:
        return "unknown" if row.failure_boundary is None else "environment"
    return "success" if row.success else "failure"


def _policy(lake: Lake, name: str | None) -> str | None:
    """Return the version for the name `champion`; other names stay, and also this one in a lake without policies."""
    now = champion_if_any(lake) if name == "champion" else None
    return now.policy_version if now else name


def _require_fitting(name: str, value: int | None, least: int | None = None) -> None:
    """Raise UsageError if a number is below the least allowed one, or is no integer of the query's size."""
    most = 2 ** (_BITS[name] - 1) - 1
    lowest = -most - 1 if least is None else least
    if value is not None and not lowest <= value <= most:
        raise UsageError(f"`{name}`: {value} is out of range.", f"Set {name} between {lowest} and {most}.")


def _total(lake: Lake, parameters: dict[str, Any]) -> int:
    first = answers(lake, _FoundId, "found_trajectories", **{**parameters, "limit": 1, "offset": 0})
    return first[0].total if first else 0


def _with_decisions(lake: Lake, rows: Sequence[RecordedTrajectory]) -> list[FoundTrajectory]:
    ids, iterations = [row.trajectory_id for row in rows], sorted({row.iteration for row in rows})
    table = ask(lake, "found_decisions", ids=ids, iterations=iterations)
    about = {one["trajectory_id"]: one for one in table.to_pylist()}
    return [
        FoundTrajectory(row, found["route"], found["reason"] or "", found["screenshot"])
        for row in rows
        for found in [about[row.trajectory_id]]
    ]
