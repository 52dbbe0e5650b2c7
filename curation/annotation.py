"""The machine part of annotation: a templated thought for accepted steps, grounding targets from the page's elements.

Grounding (UI-TARS's perception data) asks where an element is that stands on the very screen of the step, and
answers with a click on its centre. Only names that stand for one element of the page are asked for. Of failed plays it
also keeps what is true whatever they were meant for: the action between two screens, and what changed.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from curation.transitions import NOTHING, caption
from models.thoughts import templated_thought
from schemas.action import TERMINAL, Click, from_json, to_json
from schemas.annotation import Annotation, Kind
from schemas.observation import Element

MAX_NAME = 40
"""Longer element texts are paragraphs, not names."""

StepRow = Mapping[str, Any]


def name_of(element: Element) -> str:
    """What an element is called in a grounding question: its text, else its kind."""
    return element.name if element.name else element.kind


def grounding_targets(elements: Sequence[Element], most: int) -> list[Element]:
    """The elements that can be asked for, the interactive ones first; at most `most`."""
    counts = Counter(name_of(element) for element in elements)
    named = [e for e in elements if counts[name_of(e)] == 1 and 0 < len(name_of(e)) <= MAX_NAME]
    return sorted(named, key=lambda element: not element.interactive)[:most]


def thought_annotation(step: StepRow, now: datetime) -> Annotation | None:
    """A templated thought for a step that has none of its own."""
    if step["thought"] or not step["action"]:
        return None
    thought = templated_thought(from_json(step["action"]))
    return _annotation(step, "thought", "template", thought, step["action"], now, 0)


def grounding_annotations(step: StepRow, elements: Sequence[Element], most: int, now: datetime) -> list[Annotation]:
    """One grounding target per element that can be asked for."""
    rows = []
    for number, element in enumerate(grounding_targets(elements, most)):
        x, y = (min(1.0, max(0.0, part)) for part in element.centre)
        click = to_json(Click(x=round(x, 4), y=round(y, 4)))
        rows.append(_annotation(step, "grounding", "page", name_of(element), click, now, number))
    return rows


def inverse_annotation(step: StepRow, now: datetime) -> Annotation | None:
    """The action that led from the step's screen to the next, where one was performed and the screen shows it."""
    if not step["action"] or step["action_error"] or step["next_screenshot"] in (None, step["screenshot"]):
        return None
    if from_json(step["action"]).type in TERMINAL:
        return None
    return _compared(step, _annotation(step, "inverse_dynamics", "play", "", step["action"], now, 0))


def transition_annotation(
    step: StepRow, before: Sequence[Element], after: Sequence[Element] | None, now: datetime
) -> Annotation | None:
    """What the step's action changed, by the elements before and after; None where a rule cannot tell.

    Args:
        step: screenshot and next_screenshot are read.
        before, after: the elements of the two screens; `after` is None where nobody recorded them.
    """
    if not step["action"] or step["action_error"] or step["next_screenshot"] is None:
        return None
    same = step["next_screenshot"] == step["screenshot"]
    said = NOTHING if same else caption(before, after) if before and after else ""
    return _compared(step, _annotation(step, "transition", "page", said, None, now, 0)) if said else None


def error_annotation(trajectory_id: str, iteration: int, step: int, reason: str, now: datetime) -> Annotation:
    """The step at which a failed trajectory went wrong, where a rule can tell."""
    row = {"trajectory_id": trajectory_id, "iteration": iteration, "step": step}
    return _annotation(row, "error_step", "rules", reason, None, now, 0)


def _compared(step: StepRow, annotation: Annotation) -> Annotation:
    return annotation.model_copy(update={"before": step["screenshot"], "after": step["next_screenshot"]})


def _annotation(
    step: StepRow, kind: Kind, author: str, thought: str, action: str | None, now: datetime, number: int
) -> Annotation:
    name = f"{step['trajectory_id']}|{step['step']}|{kind}|{author}|{number}"
    return Annotation(
        annotation_id=hashlib.sha256(name.encode()).hexdigest()[:24],
        trajectory_id=step["trajectory_id"],
        step=step["step"],
        iteration=step["iteration"],
        kind=kind,
        author=author,
        thought=thought,
        action=action,
        before=None,
        after=None,
        created_at=now,
    )
