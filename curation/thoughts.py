"""Check thoughts before they are stored (thought augmentation, UI-TARS, arXiv 2501.12326, section 4.4).

A thought that explains a known action (ActRe) must not contain the coordinates, which belong to the action. A
bootstrapped thought is kept only if it led to the recorded action. Empty, huge, repeating and broken thoughts are
rejected; every rejection has a reason.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from curation.converters.units import scale_of
from curation.gates.thoughts import holds_action, repeats_itself
from models.proposers import alike
from models.thinkers.thinker import ThinkerCase, ThinkerThought
from schemas.action import IDLE, Action, Drag, point_of
from schemas.tables.annotation import PATTERNS, Annotation, Pattern
from schemas.tables.step import Step

TEMPLATE = "template"
NEAR = 1.5
"""Maximum distance, in thousandths or pixels, of numbers that count as the rounded coordinates of an action."""
CUES: dict[Pattern, tuple[str, ...]] = {
    "task_decomposition": (r"\bfirst\b.*\bthen\b", r"\bsteps?:", r"\bparts\b"),
    "long_term_consistency": (r"\bleft:", r"\bstill (?:have|need|has)\b", r"\bremain", r"\bthe (?:task|goal) is\b"),
    "milestone_recognition": (r"\bis done\b", r"\bdone\.", r"\bsuccessfully\b", r"\bnow that\b", r"\bhas been\b"),
    "trial_and_error": (r"\bi(?:'ll| will)? try\b", r"\bperhaps\b", r"\bmaybe\b", r"\blet me try\b"),
    "reflection": (r"\bnot that\b", r"\bnothing changed\b", r"\bchanged nothing\b", r"\bmistake\b", r"\bwrong\b"),
}
"""Words that identify the pattern of an English thought, if its author names none."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class ThoughtLimits:
    """Limits of an accepted thought."""

    longest: int
    """Maximum number of characters."""
    phrases: int
    """Maximum number of consecutive repetitions of a phrase (`filter.options.thoughts.max_phrases`)."""


def fault_of(thought: ThinkerThought, case: ThinkerCase, hidden: bool, limits: ThoughtLimits) -> str:
    """Return why a thought of a step is rejected; empty if it is kept.

    Args:
        thought: the thought.
        case: its step.
        hidden: whether the action was hidden from the author.
        limits: limits of the thought.
    """
    if thought.failure:
        return f"no answer: {thought.failure}"
    if not thought.text.strip():
        return "empty"
    if len(thought.text) > limits.longest:
        return "too long"
    if holds_action(thought.text):
        return "holds an action"
    if repeats_itself(thought.text, limits.phrases):
        return "says the same again and again"
    screen = case.context.observation
    if names_place(thought.text, case.action, (screen.width, screen.height)):
        return "names the coordinates"
    if hidden and (thought.action is None or not alike(thought.action, case.action, screen.elements)):
        return "led to another action" if thought.action else "led to no action"
    return ""


def names_place(text: str, action: Action, screen: tuple[int, int]) -> bool:
    """Whether a text contains a place of the action in numbers.

    The numbers may be fractions, hundredths or thousandths of the screen, or pixels.

    Args:
        text: a thought.
        action: the action.
        screen: width and height in pixels.
    """
    numbers = [float(number) for number in _NUMBER.findall(text)]
    pairs = [*pairwise(numbers), *zip(numbers, numbers[2:], strict=False)]  # "488 of 1000 and 638 of 1000"
    shares = (1, 100) if "%" in text else (1,)
    for x, y in _places(action):
        scales = [scale_of(unit, *screen) for unit in ("thousandths", "pixels", "resized_pixels")]
        for wide, high in scales:
            if any(abs(a - x * wide) <= NEAR and abs(b - y * high) <= NEAR for a, b in pairs):
                return True
        if any(
            abs(a - x * whole) < 0.002 * whole and abs(b - y * whole) < 0.002 * whole
            for whole in shares
            for a, b in pairs
        ):
            return True
    return False


def _places(action: Action) -> list[tuple[float, float]]:
    point = point_of(action)
    places = [point] if point else []
    return [*places, (action.to_x, action.to_y)] if isinstance(action, Drag) else places


def patterns_of(thought: ThinkerThought) -> list[str]:
    """Return the patterns that a thought's author names, or else the patterns that its words indicate."""
    if thought.patterns:
        return list(thought.patterns)
    text = thought.text.lower()
    return [pattern for pattern in PATTERNS if any(re.search(cue, text) for cue in CUES[pattern])]


def thought_id(step: Step, author: str, version: str | None) -> str:
    """Return the id of the annotation with an author's thought of a step."""
    name = f"{step.trajectory_id}|{step.step}|thought|{author}|{version or 0}"
    return hashlib.sha256(name.encode()).hexdigest()[:24]


def thought_annotation(
    step: Step, thought: ThinkerThought, author: str, version: str | None, now: datetime
) -> Annotation:
    """Convert a kept thought to a row."""
    return Annotation(
        annotation_id=thought_id(step, author, version),
        trajectory_id=step.trajectory_id,
        step=step.step,
        iteration=step.iteration,
        kind="thought",
        author=author,
        thought=thought.text.strip(),
        action=step.first,
        before=None,
        after=None,
        created_at=now,
        patterns=patterns_of(thought) if author != TEMPLATE else [],
        version=version,
    )


def is_persons(author: str, version: str | None) -> bool:
    """Whether a reviewer wrote a thought, by its annotation's author and version; no machine's thought replaces it."""
    return version is None and author != TEMPLATE


def usable_steps(steps: Sequence[Step], usable: int | None) -> list[Step]:
    """Return the steps of a trajectory that may be imitated, up to the first step without an action.

    Args:
        steps: the steps in order.
        usable: number of first steps that may be imitated; None for all.
    """
    found: list[Step] = []
    for step in steps:
        if not step.actions or (usable is not None and step.step >= usable):
            break
        found.append(step)
    return found


def changed_nothing(before: Step, step: Step) -> bool:
    """Whether the previous step's actions left the screen unchanged, without a wait or a note among them."""
    return before.screenshot == step.screenshot and not {*before.types} & {*IDLE}
