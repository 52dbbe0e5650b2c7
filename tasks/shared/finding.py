"""Find trajectories by task, outcome, policy, iteration, route, gate and text, for commands, pages and Python.

The query is `storage/queries/found_trajectories.sql`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

import pyarrow as pa

from common.text import counted
from schemas.failure import UsageError
from schemas.tables.evaluation_trajectory import EvaluationTrajectory
from schemas.tables.trajectory import RecordedTrajectory, Trajectory
from schemas.tables.verdict import ROUTES
from storage.catalog import session
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
_FEW = 200
"""Maximum number of trajectories that the query of decisions looks up one by one, before it sorts the decisions."""
Run = Callable[..., pa.Table]
"""Runs a query of a session (`storage.catalog.session`)."""
MAX_TEXT = 1_000
"""Maximum characters of a text to find. The search compiles the text; its time grows faster than the text."""


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
        if len(self.text or "") > MAX_TEXT:
            raise UsageError(f"`text`: {len(self.text or ''):,} characters.", f"Search for {MAX_TEXT:,} at most.")
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
class Matching:
    """One page of the ids of the trajectories that match, and facts about all that match."""

    ids: list[str]
    iterations: list[int]
    """Iteration of each trajectory of the page."""
    total: int
    """Number of all trajectories that match."""
    ahead: int
    """Number of matching trajectories before the page."""
    members: str
    """Fingerprint of all that match, which is the same for the same trajectories in any order."""


@dataclass(frozen=True, slots=True)
class Found:
    """One page of the trajectories that match."""

    rows: list[FoundTrajectory]
    matching: Matching

    def __iter__(self) -> Iterator[FoundTrajectory]:
        return iter(self.rows)

    @property
    def total(self) -> int:
        """Number of all trajectories that match."""
        return self.matching.total

    @property
    def before(self) -> str | None:
        """The first trajectory of the page, if others are before it."""
        return self.matching.ids[0] if self.rows and self.matching.ahead else None

    @property
    def after(self) -> str | None:
        """The last trajectory of the page, if others are after it."""
        return self.matching.ids[-1] if self.matching.ahead + len(self.rows) < self.total and self.rows else None


def find(
    lake: Lake,
    wanted: Wanted,
    limit: int = 20,
    order: str = "newest",
    after: str | None = None,
    before: str | None = None,
) -> Found:
    """Find trajectories. The arguments and errors are those of `matching`."""
    kind = EvaluationTrajectory if wanted.evaluations else Trajectory
    with session(lake, "found_trajectories", "found_decisions") as run:
        page = _matching(lake, run, wanted, limit, order, after, before)
        return Found(_found(run, kind, page.ids, page.iterations), page)


def matching(
    lake: Lake,
    wanted: Wanted,
    limit: int = 20,
    order: str = "newest",
    after: str | None = None,
    before: str | None = None,
) -> Matching:
    """Find the ids of trajectories. The page is relative to a trajectory, so that new trajectories do not shift it.

    Args:
        lake: the lake.
        wanted: the conditions.
        limit: maximum number of trajectories of the page.
        order: one of `ORDERS`; for `reward`, `steps` and `seconds`, the largest first.
        after: start the page after this trajectory, which need not match.
        before: end the page before this trajectory, which need not match. Where fewer than `limit` are before it, the
            page is the first one.

    Raises:
        UsageError: the order is unknown, the limit is below 1 or too large, or there is no trajectory `after` or
            `before`, or both are given.
    """
    with session(lake, "found_trajectories") as run:
        return _matching(lake, run, wanted, limit, order, after, before)


def _matching(
    lake: Lake, run: Run, wanted: Wanted, limit: int, order: str, after: str | None, before: str | None
) -> Matching:
    _require_fitting("limit", limit, 1)
    if order not in ORDERS:
        raise UsageError(f"`sort`: {order!r} is unknown.", f"Take one of {', '.join(ORDERS)}.")
    if after is not None and before is not None:
        raise UsageError("`after`, `before`: both are given.", "Give one of them.")
    for field, name in (("after", after), ("before", before)):
        if name is not None:
            _require_listed(lake, wanted.evaluations, field, name)
    conditions = {**asdict(wanted), "policy": _policy(lake, wanted.policy), "text": wanted.text or None}
    place = {"limit": limit, "sort": order, "after": after, "before": before}
    rows = run("found_trajectories", **conditions, **place, with_text=_with_text(lake, wanted))
    total, members, ahead = (rows[name][0].as_py() for name in ("total", "members", "ahead"))
    ids, iterations = (rows[name].drop_null().to_pylist() for name in ("trajectory_id", "iteration"))
    if before is not None and len(ids) < limit:
        return _matching(lake, run, wanted, limit, order, None, None)
    return Matching(ids, iterations, total, ahead, members)


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
            hint = _elsewhere(lake, wanted, name) or "`flywheel trajectories` without it lists all of them."
            raise UsageError(f"`{name}`: {what}.", hint)


def _elsewhere(lake: Lake, wanted: Wanted, name: str) -> str:
    """Return a hint if a condition holds for trajectories of evaluations but no collected one, or the reverse; else an
    empty text."""
    if name == "gate":
        return ""
    there = find(lake, Wanted(**{name: getattr(wanted, name)}, evaluations=not wanted.evaluations), 1).total
    if not there:
        return ""
    if wanted.evaluations:
        return f"Without `--evaluations`, it finds {counted(there, 'trajectory', 'trajectories')}."
    return f"Evaluations kept {counted(there, 'trajectory', 'trajectories')} of it: add `--evaluations`."


def found_of(lake: Lake, name: str) -> FoundTrajectory:
    """Return a trajectory with the decision about it; raises UsageError if no trajectory has this id."""
    row = episode_of(lake, name)
    with session(lake, "found_decisions") as run:
        return _found(run, type(row), [row.trajectory_id], [row.iteration])[0]


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


def _require_listed(lake: Lake, evaluations: bool, field: str, name: str) -> None:
    """Raise UsageError if there is no such trajectory, which has a place in every order."""
    table = "evaluation_trajectories" if evaluations else "trajectories"
    if not lake.count(table, {"trajectory_id": name}):
        problem = f"`{field}`: there is no trajectory {name[:40]!r} in this list."
        raise UsageError(problem, "Open the list again from its first page.")


def _with_text(lake: Lake, wanted: Wanted) -> pa.Table:
    """Return the trajectories that hold the text, or an empty table without a text."""
    kept = ("evaluation_trajectories", "evaluation_steps")
    tables = (*(kept if wanted.evaluations else ("trajectories", "steps")), "verdicts")
    return lake.find_text(wanted.text or "", tables if wanted.text else (), wanted.iteration)


def _found(
    run: Run, kind: type[RecordedTrajectory], ids: Sequence[str], iterations: Sequence[int]
) -> list[FoundTrajectory]:
    """Return trajectories, which are in these iterations, with the decisions about them."""
    if not ids:
        return []
    found = pa.table({"trajectory_id": pa.array(ids, pa.string())})
    few = list(ids) if len(ids) <= _FEW else None
    rows = run("found_decisions", found=found, few=few, iterations=sorted(set(iterations))).to_pylist()
    about = {row["trajectory_id"]: row for row in rows}
    return [
        FoundTrajectory(
            kind.model_construct(**{name: row[name] for name in kind.model_fields}),
            row["route"],
            row["reason"] or "",
            row["screenshot"],
        )
        for row in (about[name] for name in ids)
    ]
