"""The machine part of annotation: grounding targets from the page's elements, what failed trajectories still show.

Grounding (UI-TARS's perception data) asks where an element is that stands on the very screen of the step, and answers
with a click on its centre. Only what has one answer is asked for: names that stand for one element of the page, kinds
of which there is one, and nothing that others stand in. Of failures it also keeps what is true whatever they were meant
for: the action between two screens, and what changed.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest

from curation.gates.actions import fault_of
from curation.perception.caption import listed_elements
from curation.perception.screen import holds
from curation.transitions import NOTHING, caption
from schemas.action import TERMINAL, Click, from_json, to_json
from schemas.observation import Element, elements_of
from schemas.tables.annotation import Annotation, Kind
from schemas.tables.step import Step
from schemas.tables.trajectory import Route
from schemas.tables.verdict import Verdict

MAX_NAME = 40
"""Longer element texts are paragraphs, not names."""
MOST_TARGETS = 12
"""Grounding targets kept per screen; the trainer draws from them."""


@dataclass(frozen=True, slots=True)
class TrajectoryRoute:
    """What holds for a trajectory's data: the word of the filter, or a person's in its place."""

    passed: bool
    route: Route
    reason: str
    error_step: int | None
    valid_steps: int | None = None
    """How many of the first steps of one that was turned away stay usable."""

    @classmethod
    def of(cls, verdict: Verdict) -> "TrajectoryRoute":
        """The same as a gate gave it."""
        return cls(verdict.passed, verdict.route, verdict.reason, verdict.error_step, verdict.valid_steps)

    @property
    def decided_by(self) -> str:
        """The gate whose word it was."""
        return self.reason.partition(": ")[0]


def annotations_of(
    decisions: Mapping[str, TrajectoryRoute], trajectories: Iterable[Sequence[Step]], now: datetime
) -> Iterator[Annotation]:
    """Grounding for accepted and for failed steps; of failed ones also what was done and changed from screen to screen,
    and the error step where a rule can tell.

    Args:
        decisions: by trajectory; those of route `quarantine` or `none`, and trajectories without one, are left out.
        trajectories: the steps of each, in order.
        now: when they are made.
    """
    asked: set[str] = set()
    for steps in trajectories:
        decision = decisions.get(steps[0].trajectory_id) if steps else None
        if decision is None or decision.route in ("quarantine", "none"):
            continue
        if decision.route == "ct":
            yield from comparisons(steps, now)
        for step in steps:
            if step.step == decision.error_step:
                yield error_annotation(step, decision.reason, now)
            if step.screenshot not in asked:
                asked.add(step.screenshot)
                yield from grounding_annotations(step, elements_of(step.elements), MOST_TARGETS, now)


def name_of(element: Element) -> str:
    """What an element is called in a grounding question: its text, else its kind."""
    return element.name if element.name else element.kind


def grounding_targets(elements: Sequence[Element], most: int) -> list[Element]:
    """The elements that can be asked for with one answer, the interactive ones first; at most `most`."""
    names, kinds = Counter(name_of(one).casefold() for one in elements), Counter(one.kind for one in elements)
    sole = [
        one
        for one in elements
        if 0 < len(name_of(one)) <= MAX_NAME
        and names[name_of(one).casefold()] == 1
        and (one.name or kinds[one.kind] == 1)
        and not any(holds(one, other) for other in elements)
    ]
    return sorted(sole, key=lambda element: not element.interactive)[:most]


def grounding_annotations(
    step: Step, elements: Sequence[Element], most: int, now: datetime, author: str = "page"
) -> list[Annotation]:
    """One grounding target per element that can be asked for; `author` knows where they are."""
    rows: list[Annotation] = []
    for number, element in enumerate(grounding_targets(elements, most)):
        x, y = (min(1.0, max(0.0, part)) for part in element.centre)
        click = to_json(Click(x=round(x, 4), y=round(y, 4)))
        rows.append(annotation(step, "grounding", author, name_of(element), click, now, number))
    return rows


def inverse_annotation(step: Step, now: datetime) -> Annotation | None:
    """The action that led from the step's screen to the next, where one was performed and the screen shows it."""
    if not step.action or fault_of(step) or step.next_screenshot in (None, step.screenshot):
        return None
    if from_json(step.action).type in TERMINAL:
        return None
    return _compared(step, annotation(step, "inverse_dynamics", "play", "", step.action, now, 0))


def transition_annotation(
    step: Step, before: Sequence[Element], after: Sequence[Element] | None, now: datetime
) -> Annotation | None:
    """What the step's action changed, by the elements before and after; None where a rule cannot tell.

    Args:
        step: screenshot and next_screenshot are read.
        before, after: the elements of the two screens; `after` is None where nobody recorded them.
    """
    if fault_of(step) or step.next_screenshot is None:
        return None
    same = step.next_screenshot == step.screenshot
    changed = NOTHING if same else caption(before, after) if before and after else ""
    return _compared(step, annotation(step, "transition", "page", changed, None, now, 0)) if changed else None


def error_annotation(step: Step, reason: str, now: datetime) -> Annotation:
    """The step at which a failed trajectory went wrong, where a rule can tell."""
    return annotation(step, "error_step", "rules", reason, None, now, 0)


def comparisons(steps: Sequence[Step], now: datetime) -> Iterator[Annotation]:
    """What a failed trajectory's screens tell of each other: the elements after a step are those the next recorded."""
    for step, following in zip_longest(steps, steps[1:]):
        yield from (one for one in (inverse_annotation(step, now), changed(step, following, now)) if one)


def changed(step: Step, following: Step | None, now: datetime) -> Annotation | None:
    """What changed from a step's screen to the next, of what is known of both; also where only time passed."""
    after = None
    if following is not None and following.screenshot == step.next_screenshot:
        after = listed_elements(following)
    return transition_annotation(step, listed_elements(step), after, now)


def _compared(step: Step, made: Annotation) -> Annotation:
    return made.model_copy(update={"before": step.screenshot, "after": step.next_screenshot})


def annotation(
    step: Step, kind: Kind, author: str, thought: str, action: str | None, now: datetime, number: int
) -> Annotation:
    """An annotation of a step, the `number`th of its kind by its author; who makes it again makes the same key."""
    name = f"{step.trajectory_id}|{step.step}|{kind}|{author}|{number}"
    return Annotation(
        annotation_id=hashlib.sha256(name.encode()).hexdigest()[:24],
        trajectory_id=step.trajectory_id,
        step=step.step,
        iteration=step.iteration,
        kind=kind,
        author=author,
        thought=thought,
        action=action,
        before=None,
        after=None,
        created_at=now,
    )
