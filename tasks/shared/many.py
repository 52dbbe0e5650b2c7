"""Decide on many trajectories at once. Such an operation is stored as ordinary decisions that have one batch."""

import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from curation.reviews import effects_of, is_word, standing
from schemas.failure import UsageError, is_environment_failure
from schemas.tables.review import Review
from schemas.tables.trajectory import Route, Trajectory
from storage.lake import Lake
from tasks.shared.finding import ROUTES
from tasks.shared.reviews import ENVIRONMENT_FAILED, Draft, require_name, require_sense, review_of, write_effects
from tasks.shared.trajectories import whole_ids

Word = Literal["accept", "reject"]
ROUTE = "route:"
"""Prefix of a decision about the route, such as `route:ct`."""
MOST = 100_000
"""Maximum number of trajectories of one operation."""
NEWEST = 5
"""Maximum number of batches in an error message."""


@dataclass(frozen=True, slots=True)
class Decided:
    """Result of an operation on many trajectories."""

    batch: str
    """Id by which the operation is undone; empty if nothing was decided."""
    trajectories: list[str]
    """Trajectories that were decided on, or would be."""
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of trajectories without a new decision, by reason."""


def decide_all(
    lake: Lake, names: Sequence[str], decision: str, person: str, note: str = "", dry_run: bool = False
) -> Decided:
    """Accept, reject or route many trajectories, with one write for each table.

    Trajectories on which this is not possible, or that have this decision already, are counted in the result.

    Args:
        lake: the lake.
        names: ids of trajectories, which may be abbreviated.
        decision: `accept`, `reject`, or `route:` with a route, such as `route:ct`.
        person: the reviewer's name.
        note: free text for each decision.
        dry_run: count only, and write nothing.

    Raises:
        UsageError: the decision, name or note is invalid; a trajectory does not exist or is of an evaluation; or there
            are none or too many. Nothing is written.
    """
    word, route = _parsed(decision)
    require_name(person)
    names = list(dict.fromkeys(names))
    if not 0 < len(names) <= MOST:
        raise UsageError(f"`ids`: {len(names):,} trajectories.", f"Select 1 to {MOST:,}.")
    names = whole_ids(lake, names)
    rows = {one.trajectory_id: one for one in lake.rows(Trajectory, {"trajectory_id": names})}
    there = _by_trajectory(lake.rows(Review, {"trajectory_id": names}))
    batch, left_out, drafts = uuid.uuid4().hex[:12], Counter[str](), list[Draft]()
    for name in names:
        earlier = there.get(name, [])
        draft = Draft(name, len(earlier), person, word, note=note, route=route, batch=batch)
        if reason := _left_out(draft, rows[name], earlier):
            left_out[reason] += 1
        else:
            drafts.append(draft)
    if dry_run:
        return Decided("", [one.trajectory_id for one in drafts], dict(left_out))
    reviews = _written(lake, [review_of(one, rows[one.trajectory_id].iteration, None) for one in drafts])
    write_effects(lake, [row for one in reviews for row in effects_of(one, rows[one.trajectory_id])], [])
    if missing := len(drafts) - len(reviews):
        left_out["another reviewer decided meanwhile"] += missing
    return Decided(batch if reviews else "", [one.trajectory_id for one in reviews], dict(left_out))


def undo_batch(lake: Lake, batch: str, person: str) -> Decided:
    """Undo the decisions of an operation that still hold. The undo is stored as decisions, too.

    Raises:
        UsageError: no operation has this id, or nothing of it holds. The message has the newest operations.
    """
    require_name(person)
    mine = {one.review_id: one for one in lake.rows(Review, {"batch": batch}) if one.decision != "undo"}
    if not mine:
        known = newest_batches(lake)
        fix = f"The newest are {', '.join(known)}." if known else "No operation on many trajectories is stored."
        raise UsageError(f"`batch`: there is no operation {batch[:40]!r}.", fix)
    names = sorted({one.trajectory_id for one in mine.values()})
    there = _by_trajectory(lake.rows(Review, {"trajectory_id": names}))
    undone = [one for name in names for one in standing(there[name]) if one.review_id in mine]
    if not undone:
        raise UsageError(f"`batch`: {batch} was undone already.", "Nothing of it holds.")
    new = uuid.uuid4().hex[:12]
    rows = [
        review_of(
            Draft(one.trajectory_id, len(there[one.trajectory_id]), person, "undo", undoes=one.review_id, batch=new),
            one.iteration,
            None,
        )
        for one in undone
    ]
    written = {one.undoes for one in _written(lake, rows)}
    write_effects(lake, [], [one for one in undone if one.review_id in written])
    meanwhile = len(undone) - len(written)
    left_out = {"another reviewer decided meanwhile": meanwhile} if meanwhile else {}
    return Decided(new, [one.trajectory_id for one in undone if one.review_id in written], left_out)


def newest_batches(lake: Lake) -> list[str]:
    """Return the ids of the newest operations on many trajectories, the newest first."""
    rows = lake.read("reviews", ["batch", "created_at", "decision"]).to_pylist()
    kept = sorted((row["created_at"], row["batch"]) for row in rows if row["batch"] and row["decision"] != "undo")
    return list(dict.fromkeys(batch for _, batch in reversed(kept)))[:NEWEST]


def _parsed(decision: str) -> tuple[Word, Route | None]:
    """Return the decision, and the route if it is not the decision's own."""
    if decision == "accept" or decision == "reject":
        return decision, None
    for route in ROUTES:
        if decision == f"{ROUTE}{route}":
            return "accept" if route == "sft" else "reject", route
    known = ", ".join(["accept", "reject", *(f"{ROUTE}{one}" for one in ROUTES)])
    raise UsageError(f"`decision`: there is no {decision[:40]!r} for many trajectories.", f"One of {known}.")


def _left_out(draft: Draft, row: Trajectory, earlier: Sequence[Review]) -> str:
    """Return the reason why a trajectory gets no decision; empty if it does."""
    try:
        require_sense(draft, row, earlier)
    except UsageError as error:
        if not error.problem.startswith("`decision`"):
            raise
        return error.problem
    if is_environment_failure(row.failure_boundary):  # the filter keeps its route `none`, whatever a reviewer decides
        return ENVIRONMENT_FAILED
    words = [one for one in standing(earlier) if is_word(one)]
    same = bool(words) and (words[-1].decision, words[-1].route) == (draft.decision, draft.route)
    return "the same decision holds already" if same else ""


def _written(lake: Lake, reviews: Sequence[Review]) -> list[Review]:
    """Write reviews, and return those whose revision no other reviewer wrote first."""
    if lake.append("reviews", reviews) == len(reviews):
        return list(reviews)
    ids = [one.review_id for one in reviews]
    mine = {one.review_id for one in lake.rows(Review, {"review_id": ids}) if one.batch == reviews[0].batch}
    return [one for one in reviews if one.review_id in mine]


def _by_trajectory(reviews: Sequence[Review]) -> dict[str, list[Review]]:
    found: dict[str, list[Review]] = defaultdict(list)
    for one in sorted(reviews, key=lambda row: row.revision):
        found[one.trajectory_id].append(one)
    return found
