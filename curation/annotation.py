"""Make annotations automatically: grounding targets from the page's elements, and facts about failed trajectories.

Grounding (UI-TARS's perception data) asks for the place of an element that is visible on the step's screen, and answers
with a click on its centre. Only questions with a single answer are asked: for a name or a kind that only one element of
the page has, and never for an element that contains others. For failures, annotations also record facts that do not
depend on the trajectory's purpose: the action between two screens, and the change.

Rules on the elements before and after a step describe the changes between the screens.

The captions are for continual training (state-transition captioning, UI-TARS, arXiv 2501.12326, section 4): they are
true for any purpose of the action. An element is identified by its kind and name if no other element has both.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest

from curation.gates.actions import fault_of
from curation.perception.caption import listed_elements
from curation.perception.screen import MAX_NAME, holds
from schemas.action import TERMINAL, Click, from_json, to_json
from schemas.observation import Element, elements_of
from schemas.tables.annotation import Annotation, Kind
from schemas.tables.step import Step
from schemas.tables.trajectory import Route
from schemas.tables.verdict import Verdict

NOTHING = "Nothing."
"""Caption of two screens with equal pixels."""
MOST = 3
"""Maximum number of listed changes; additional changes are only counted."""
MAX_TEXT = 40
"""Maximum length of a repeated name or value, in characters; longer texts are paragraphs."""
LEAST_MOVE = 0.02
"""Minimum distance of a move, as a share of the screen."""

Key = tuple[str, str]


def caption(before: Sequence[Element], after: Sequence[Element]) -> str:
    """Describe the changes in a sentence; empty if the elements show none."""
    found = changes(before, after)
    listed = found[:MOST] + ([f"{len(found) - MOST} more"] if len(found) > MOST else [])
    return "; ".join(listed) + "." if listed else ""


def changes(before: Sequence[Element], after: Sequence[Element]) -> list[str]:
    """Return every change as text: changed values, new elements, removed elements, moves; in that order."""
    old, new = _by_key(before), _by_key(after)
    both = [(old[key][0], new[key][0]) for key in old if len(old[key]) == len(new.get(key, ())) == 1]
    counts = Counter({key: len(found) for key, found in new.items()})
    counts.subtract({key: len(found) for key, found in old.items()})
    return [
        *(_holds(now) for was, now in both if was.value != now.value),
        *(f"{_called(new[key][0])} appeared" for key, more in counts.items() if more > 0),
        *(f"{_called(old[key][0])} went away" for key, more in counts.items() if more < 0),
        *(f"{_called(now)} moved {way}" for was, now in both if (way := _way(was, now))),
    ]


def _by_key(elements: Sequence[Element]) -> dict[Key, list[Element]]:
    found: dict[Key, list[Element]] = {}
    for element in elements:
        found.setdefault((element.kind, element.name), []).append(element)
    return found


def _called(element: Element) -> str:
    return f'{element.kind} "{element.name}"' if 0 < len(element.name) <= MAX_TEXT else element.kind


def _holds(element: Element) -> str:
    value = f'"{element.value}"' if len(element.value) <= MAX_TEXT else "a long text"
    return f"{_called(element)} now holds {value if element.value else 'nothing'}"


def _way(was: Element, now: Element) -> str:
    """Return `left`, `right`, `up` or `down`, the direction of the larger part of a move; empty without a move."""
    right, down = (now.centre[axis] - was.centre[axis] for axis in (0, 1))
    if max(abs(right), abs(down)) < LEAST_MOVE:
        return ""
    if abs(right) >= abs(down):
        return "right" if right > 0 else "left"
    return "down" if down > 0 else "up"


MOST_TARGETS = 12
"""Maximum number of grounding targets per screen; the trainer samples from them."""


@dataclass(frozen=True, slots=True)
class TrajectoryRoute:
    """Decision on the use of a trajectory's data, by the filter or by a reviewer."""

    passed: bool
    route: Route
    reason: str
    error_step: int | None
    valid_steps: int | None = None
    """Number of usable first steps of a rejected trajectory."""

    @classmethod
    def of(cls, verdict: Verdict) -> "TrajectoryRoute":
        """Convert a gate's verdict."""
        return cls(verdict.passed, verdict.route, verdict.reason, verdict.error_step, verdict.valid_steps)

    @property
    def decided_by(self) -> str:
        """Name of the gate that decided."""
        return self.reason.partition(": ")[0]


def annotations_of(
    decisions: Mapping[str, TrajectoryRoute], trajectories: Iterable[Sequence[Step]], now: datetime
) -> Iterator[Annotation]:
    """Annotate accepted and failed steps with grounding targets.

    Failed trajectories also get the action and the change between screens, and the error step if a rule finds it.

    Args:
        decisions: decisions by trajectory. Trajectories without a decision, or with the route `quarantine` or `none`,
            are left out.
        trajectories: the steps of each, in order.
        now: creation time of the annotations.
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
                yield annotation(step, "error_step", "rules", decision.reason, None, now, 0)
            if step.screenshot not in asked:
                asked.add(step.screenshot)
                yield from grounding_annotations(step, elements_of(step.elements), MOST_TARGETS, now)


def name_of(element: Element) -> str:
    """Return an element's name in a grounding question: its text, or else its kind."""
    return element.name or element.kind


def grounding_targets(elements: Sequence[Element], most: int) -> list[Element]:
    """Return at most `most` elements that a question with one answer can ask for, the interactive ones first."""
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
    """Make one grounding target per element that can be asked for; `author` is the source of the elements."""
    rows: list[Annotation] = []
    for number, element in enumerate(grounding_targets(elements, most)):
        x, y = (min(1.0, max(0.0, part)) for part in element.centre)
        click = to_json(Click(x=round(x, 4), y=round(y, 4)))
        rows.append(annotation(step, "grounding", author, name_of(element), click, now, number))
    return rows


def inverse_annotation(step: Step, now: datetime) -> Annotation | None:
    """Annotate the action that led from the step's screen to the next, if one was performed and the screen shows it."""
    if len(step.actions) != 1 or fault_of(step) or step.next_screenshot in (None, step.screenshot):
        return None
    if from_json(step.actions[0]).type in TERMINAL:
        return None
    return _compared(step, annotation(step, "inverse_dynamics", "play", "", step.actions[0], now, 0))


def transition_annotation(
    step: Step, before: Sequence[Element], after: Sequence[Element] | None, now: datetime
) -> Annotation | None:
    """Annotate the change by the step's action, from the elements before and after; None if no rule finds it.

    Args:
        step: the step, of which only `screenshot` and `next_screenshot` are read. before, after: the elements of the
        two screens; `after` is None if they were not recorded.
    """
    if fault_of(step) or step.next_screenshot is None:
        return None
    same = step.next_screenshot == step.screenshot
    changed = NOTHING if same else caption(before, after) if before and after else ""
    return _compared(step, annotation(step, "transition", "page", changed, None, now, 0)) if changed else None


def comparisons(steps: Sequence[Step], now: datetime) -> Iterator[Annotation]:
    """Annotate actions and changes between a failed trajectory's screens; the elements after a step are those of the
    next step."""
    for step, following in zip_longest(steps, steps[1:]):
        yield from (one for one in (inverse_annotation(step, now), changed(step, following, now)) if one)


def changed(step: Step, following: Step | None, now: datetime) -> Annotation | None:
    """Annotate the change from a step's screen to the next, from the recorded elements; also for a step in which only
    time passed."""
    after = None
    if following is not None and following.screenshot == step.next_screenshot:
        after = listed_elements(following)
    return transition_annotation(step, listed_elements(step), after, now)


def _compared(step: Step, made: Annotation) -> Annotation:
    return made.model_copy(update={"before": step.screenshot, "after": step.next_screenshot})


def annotation(
    step: Step, kind: Kind, author: str, thought: str, action: str | None, now: datetime, number: int
) -> Annotation:
    """Make the `number`th annotation of its kind for a step and an author; equal arguments give equal keys."""
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
