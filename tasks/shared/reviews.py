"""Store reviewers' decisions in the lake, and read the valid ones for the stages after the filter.

From the decisions, the module counts the agreement of judges with verifiers and reviewers, by iteration, and decides on
probation. A decision is stored once, with its effects, and overwrites no other decision. The review is written first,
under a key with its revision. A second writer of the same revision writes nothing. The effects (`curation.reviews`)
follow under their own ids. If the process is killed in between, `settle` adds them later.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import cast

from pydantic import ValidationError

from common.text import CONTROL
from curation.agreement import Confusion, agreement_of, probation
from curation.annotation import TrajectoryRoute
from curation.converters.exchanged import ImportedReview
from curation.gates.thoughts import holds_action
from curation.reviews import Effect, effects_of, standing, version_of
from schemas.action import TYPES, Action, action_of, from_json, to_json
from schemas.config.curating import JudgeConfig
from schemas.failure import FlywheelError, UsageError, is_environment_failure
from schemas.keyboard import names_of, single, together
from schemas.problem import problem_of
from schemas.table import utc_now
from schemas.tables.agreement import Against, Agreement
from schemas.tables.annotation import Annotation
from schemas.tables.pair import Pair
from schemas.tables.review import DECISIONS, Decision, Review, review_id
from schemas.tables.step import Step
from schemas.tables.trajectory import Route, Trajectory
from schemas.tables.verdict import PERSON, Verdict
from storage.catalog import answers, ask
from storage.filters import quoted
from storage.lake import Lake
from tasks.shared.trajectories import trajectory_of

FIELDS = ("passed", "route", "reason", "error_step", "valid_steps")


def decisions_of(lake: Lake, iteration: int) -> dict[str, TrajectoryRoute]:
    """Return the valid decisions about an iteration's trajectories, by id."""
    found = ask(lake, "decisions", iteration=iteration)
    rows = zip(*(found[name].to_pylist() for name in FIELDS), strict=True)
    return {name: TrajectoryRoute(*row) for name, row in zip(found["trajectory_id"].to_pylist(), rows, strict=True)}


def renew_agreements(lake: Lake, iteration: int) -> None:
    """Compare the verdicts of all judges on an iteration with verifiers and reviewers, and store the counts.

    A repeated call writes the same keys, and removes counts that depended on an undone decision.
    """
    found = answers(lake, _agreement, "agreements", iteration=iteration)
    lake.upsert("agreements", found)
    counted = {(one.judge_version, one.against) for one in found}
    for old in lake.rows(Agreement, {"iteration": iteration}):
        if (old.judge_version, old.against) not in counted:
            whose = f"against = '{old.against}' AND judge_version = {quoted([old.judge_version])}"
            lake.delete("agreements", f"iteration = {iteration} AND {whose}")


class Standing:
    """Finds judges on probation, from the agreements in the lake at the first call.

    Args:
        lake: the lake with the agreements.
        config: config with the limits.
    """

    def __init__(self, lake: Lake, config: JudgeConfig) -> None:
        self._lake, self._config = lake, config
        self._known: dict[str, str] = {}

    def probation(self, version: str) -> str:
        """Return the reason why this version of a judge is on probation; empty if it is not."""
        if version not in self._known:
            agreements = self._lake.rows(Agreement, {"judge_version": version})
            self._known[version] = probation(agreements, self._config)
        return self._known[version]


def _agreement(judge_version: str, against: Against, iteration: int, **counts: int) -> Agreement:
    return agreement_of(judge_version, against, iteration, Confusion(**counts), utc_now())


NAME = re.compile(r"[\w][\w .@+'’-]{0,59}")
ENVIRONMENT_FAILED = "`decision`: its environment failed, so it is not used in training."
LONGEST = {"thought": 20_000, "note": 4_000, "action": 20_000}
"""Maximum length of a reviewer's texts, in characters."""
ACTION_HINT = 'Give the fields of an action, such as {"type": "hotkey", "key": "ctrl c"}.'
_ON_STEPS = ("correct", "override", "error_step")
_WORDS = ("accept", "reject")
_SAME = ("step", "person", "decision", "action", "thought", "note", "undoes")
_TABLES: dict[str, type[Effect]] = {"verdicts": Verdict, "annotations": Annotation, "pairs": Pair}


@dataclass(frozen=True, slots=True)
class Draft:
    """A decision to write; fields as in `Review`."""

    trajectory_id: str
    revision: int
    person: str
    decision: Decision
    step: int | None = None
    action: str | None = None
    thought: str | None = None
    note: str = ""
    seconds: float = 0.0
    undoes: str | None = None
    route: Route | None = None
    batch: str | None = None


class Conflict(FlywheelError):
    """Raised if another reviewer decided about the same revision first; nothing was written.

    Args:
        others: decisions that the draft does not know, oldest first.
    """

    def __init__(self, others: Sequence[Review]) -> None:
        self.others = list(others)
        self.revision = max((one.revision + 1 for one in self.others), default=0)
        decided = "; ".join(f"{one.person}: {one.decision}" for one in self.others)
        problem = f"This was decided on meanwhile ({decided})." if decided else "The page is out of date."
        super().__init__(problem, "Look at it again, then decide.")


def reviews_of(lake: Lake, trajectory_id: str) -> list[Review]:
    """Return all decisions about a trajectory, oldest first."""
    return sorted(lake.rows(Review, {"trajectory_id": trajectory_id}), key=lambda one: one.revision)


def submit(lake: Lake, draft: Draft) -> Review:
    """Write a decision about a stored trajectory, and its effects. A decision that is sent twice is written once.

    Raises:
        UsageError: the trajectory, step or review does not exist, or the decision is not possible for it. The message
            has the field.
        Conflict: another decision has this revision.
    """
    _require_types(draft)
    draft, trajectory = _canonical(draft), trajectory_of(lake, draft.trajectory_id)
    draft = replace(draft, trajectory_id=trajectory.trajectory_id)
    there = reviews_of(lake, draft.trajectory_id)
    seen, since = there[: max(0, draft.revision)], there[max(0, draft.revision) :]
    require_sense(draft, trajectory, seen)
    step = _step(lake, trajectory, draft.step)
    if since:
        _same_or_conflict(draft, since)  # `write` finds decisions that are written after this
    review = write(
        lake, draft, trajectory.iteration, step and (step.actions[0] if len(step.actions) == 1 else None, step.thought)
    )
    if not any(one.undoes == review.review_id for one in since):  # not undone before it was sent again
        take_effect(lake, trajectory, [*seen, review])
    return review


def newest(lake: Lake, draft: Draft) -> Draft:
    """Return the draft with its trajectory's whole id and newest revision; raises the errors of `submit`."""
    _require_types(draft)
    name = trajectory_of(lake, draft.trajectory_id).trajectory_id
    return replace(draft, trajectory_id=name, revision=len(reviews_of(lake, name)))


def _require_types(draft: Draft) -> None:
    """Raise UsageError with the field if a value has the wrong type, as callers from Python can give."""
    kinds = {"trajectory_id": str, "person": str, "step": int | None, "thought": str | None, "note": str}
    for name, kind in {**kinds, "undoes": str | None}.items():
        value: object = getattr(draft, name)
        if not isinstance(value, kind):
            fix = "Give a number, counted from 0." if name == "step" else "Give a text."
            raise UsageError(f"`{name}`: {str(value)[:80]!r} is a {type(value).__name__}.", fix)


def require_sense(draft: Draft, trajectory: Trajectory, there: Sequence[Review]) -> None:
    """Raise UsageError with the field if a decision is not possible after the existing decisions."""
    if draft.decision not in DECISIONS:
        raise UsageError(f"`decision`: there is no {str(draft.decision)[:40]!r}.", f"One of {', '.join(DECISIONS)}.")
    require_words(draft, trajectory.failure_boundary)
    if not 0 <= draft.revision <= len(there):
        raise UsageError(f"`revision`: {draft.revision} is not in [0, {len(there)}].")
    if draft.decision in _ON_STEPS and draft.step is None:
        raise UsageError(f"`step`: {draft.decision} is about one step.")
    if draft.decision == "override":
        raise UsageError("`decision`: override is of a live session.", "Of a stored step, write `correct`.")
    if draft.decision in _WORDS and draft.step is not None:
        whole = f"{draft.decision} is about the whole trajectory."
        raise UsageError(f"`step`: {whole}", "Leave the step out; of one step, write `correct` or `error_step`.")
    if draft.decision in (*_WORDS, "error_step") and draft.action is not None:
        raise UsageError(
            f"`action`: {draft.decision} takes none.", "To put another action in its place, write `correct`."
        )
    if draft.decision in (*_WORDS, "error_step") and draft.thought:
        raise UsageError(
            f"`thought`: {draft.decision} takes none.", "Why it is so is a `note`; of a step, `correct` it."
        )
    if draft.decision == "note" and not (draft.note.strip() or (draft.thought or "").strip()):
        raise UsageError("`note`: it is empty.", "Write an observation, or a thought.")
    if draft.decision == "undo" and draft.undoes is None:
        raise UsageError("`undoes`: undo needs the `review_id` of the decision that it takes back.")
    if draft.decision == "undo" and draft.undoes not in {one.review_id for one in standing(there)}:
        raise UsageError(f"`undoes`: {str(draft.undoes)[:80]!r} is not a decision on this trajectory that holds.")


def require_words(draft: Draft | ImportedReview, boundary: str | None) -> None:
    """Raise UsageError with the field if a decision is not allowed for a failure at this boundary."""
    require_name(draft.person)
    for name, most in LONGEST.items():
        if len(getattr(draft, name) or "") > most:
            raise UsageError(f"`{name}`: {len(getattr(draft, name)):,} characters, and at most {most:,} are kept.")
    for name, text in _written(draft):
        found = CONTROL.search(text)
        if found:
            raise UsageError(f"`{name}`: the control character {found[0]!r} is not allowed.", "Leave it out.")
        if name == "action.key":
            _require_keys(str(json.loads(draft.action or "{}").get("type")), text)
    if draft.thought and holds_action(draft.thought):
        raise UsageError("`thought`: an action is written in it.", "Write it as the action; a thought has the reason.")
    if draft.decision in ("accept", "error_step") and is_environment_failure(boundary):
        raise UsageError(ENVIRONMENT_FAILED)


def _require_keys(kind: str, keys: str) -> None:
    """Raise UsageError for keys that an action of this kind cannot press. Only a hotkey presses several keys at
    once."""
    try:
        _ = together(names_of(keys)) if kind == "hotkey" else single(keys)
    except ValueError as error:
        example = "`ctrl c`" if kind == "hotkey" else "`ctrl`; several together are a hotkey"
        raise UsageError(f"`action.key`: {error}.", f"Name keys as pyautogui does, such as {example}.") from error


def _written(draft: Draft | ImportedReview) -> Iterator[tuple[str, str]]:
    """Yield the field and text of each of a reviewer's texts, also of the texts in an action.

    The canonical JSON of an action escapes control characters, so its texts are yielded one by one.
    """
    yield "thought", draft.thought or ""
    yield "note", draft.note
    fields = json.loads(draft.action) if draft.action else {}
    yield from ((f"action.{name}", value) for name, value in fields.items() if isinstance(value, str))


def require_name(person: str) -> None:
    """Raise UsageError for an invalid name of a reviewer."""
    if not NAME.fullmatch(person):
        raise UsageError(
            "`person`: write a name of letters, digits, spaces, dots, dashes, apostrophes, + or @, at most 60."
        )


def write(lake: Lake, draft: Draft, iteration: int, original: tuple[str | None, str | None] | None) -> Review:
    """Write a decision without its effects.

    Args:
        lake: the lake.
        draft: the decision.
        iteration: iteration of the trajectory.
        original: the recorded action and thought that the decision is about.

    Raises:
        Conflict: another decision has this revision.
    """
    review = review_of(draft, iteration, original)
    if lake.append("reviews", [review]):
        return review
    since = [one for one in reviews_of(lake, draft.trajectory_id) if one.revision >= draft.revision]
    return _same_or_conflict(draft, since)


def review_of(draft: Draft, iteration: int, original: tuple[str | None, str | None] | None) -> Review:
    """Return the row of a decision. The arguments are those of `write`."""
    action, thought = original or (None, None)
    return Review(
        review_id=review_id(draft.trajectory_id, draft.revision),
        trajectory_id=draft.trajectory_id,
        revision=draft.revision,
        iteration=iteration,
        step=draft.step,
        person=draft.person,
        decision=draft.decision,
        action=draft.action,
        thought=draft.thought,
        original_action=action,
        original_thought=thought,
        note=draft.note,
        seconds=max(0.0, draft.seconds),
        undoes=draft.undoes,
        created_at=utc_now(),
        route=draft.route,
        batch=draft.batch,
    )


def _same_or_conflict(draft: Draft, since: Sequence[Review]) -> Review:
    """Return the first later decision if it equals the draft, which was sent again. Else raise Conflict."""
    if since and all(getattr(since[0], name) == getattr(draft, name) for name in _SAME):
        return since[0]
    raise Conflict(since)


def take_effect(lake: Lake, trajectory: Trajectory, reviews: Sequence[Review]) -> None:
    """Write the effects of the last review of a trajectory."""
    last = reviews[-1]
    write_effects(lake, effects_of(last, trajectory), [one for one in reviews if one.review_id == last.undoes])


def settle(lake: Lake) -> int:
    """Write the missing effects of reviews after a killed process, and return the number of changed rows."""
    reviews = lake.rows(Review)
    if not reviews:
        return 0
    names = sorted({one.trajectory_id for one in reviews})
    trajectories = {one.trajectory_id: one for one in lake.rows(Trajectory, {"trajectory_id": names})}
    known = sorted((one for one in reviews if one.trajectory_id in trajectories), key=lambda one: one.trajectory_id)
    held = [one for _, group in groupby(known, key=lambda one: one.trajectory_id) for one in standing(group)]
    undone = {one.undoes for one in known}
    effects = [row for one in held for row in effects_of(one, trajectories[one.trajectory_id])]
    return write_effects(lake, effects, [one for one in known if one.review_id in undone])


def write_effects(lake: Lake, effects: Iterable[Effect], undone: Sequence[Review]) -> int:
    """Add missing effects, remove the effects of undone reviews, and return the number of changed rows."""
    rows = list(effects)
    changed = sum(lake.append(table, [row for row in rows if isinstance(row, kind)]) for table, kind in _TABLES.items())
    if undone:
        ids, iterations = quoted(one.review_id for one in undone), ", ".join(str(one.iteration) for one in undone)
        words = quoted(f"{one.trajectory_id} {version_of(one)}" for one in undone)
        within = f"iteration IN ({iterations})"
        changed += lake.delete("annotations", f"{within} AND annotation_id IN ({ids})")
        changed += lake.delete("pairs", f"{within} AND pair_id IN ({ids})")
        given = f"gate = '{PERSON}' AND trajectory_id || ' ' || gate_version IN ({words})"
        changed += lake.delete("verdicts", f"{within} AND {given}")
    return changed


def _step(lake: Lake, trajectory: Trajectory, step: int | None) -> Step | None:
    if step is None:
        return None
    where = {"iteration": trajectory.iteration, "trajectory_id": trajectory.trajectory_id, "step": step}
    found = lake.rows(Step, where)
    if not found:
        raise UsageError(f"`step`: {trajectory.trajectory_id} has no step {step}.")
    return found[0]


def _canonical(draft: Draft) -> Draft:
    """Return the draft with its action in canonical form. A correction or override must have an action."""
    if draft.action is None:
        if draft.decision in ("correct", "override"):
            raise UsageError(f"`action`: {draft.decision} needs the action to take.")
        return draft
    try:
        return replace(draft, action=to_json(from_json(draft.action)))
    except ValidationError as error:
        raise _no_action(error) from error


def action_text(action: object) -> str:
    """Return the canonical JSON of an action or of its fields.

    Raises:
        UsageError: the argument is neither, or a field is invalid. The message has the field.
    """
    if type(action) in TYPES.values():
        return to_json(cast(Action, action))
    if not isinstance(action, Mapping):
        raise UsageError(f"`action`: {str(action)[:80]!r} is not an action.", ACTION_HINT)
    try:
        return to_json(action_of(dict(cast(Mapping[str, object], action))))
    except ValidationError as error:
        raise _no_action(error) from error


def _no_action(error: ValidationError) -> UsageError:
    where, problem = problem_of(error)
    return UsageError(f"`{'.'.join(['action', where]).rstrip('.')}`: {problem}.", ACTION_HINT)
