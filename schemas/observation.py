"""Observations of a sandbox: pixels, instruction and, for the explorer and the annotator, the page's elements."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

ELEMENT_KINDS: tuple[str, ...] = (
    "button",
    "link",
    "text field",
    "password field",
    "textarea",
    "checkbox",
    "radio",
    "select",
    "option",
    "tab",
    "slider",
    "text",
    "shape",
    "other",
)


@dataclass(frozen=True, slots=True)
class Element:
    """One visible element. The box is (left, top, right, bottom) in fractions of the screen."""

    name: str
    """Visible text or label; empty if it has none."""
    kind: str
    """One of `ELEMENT_KINDS`."""
    box: tuple[float, float, float, float]
    interactive: bool
    """Whether a click or a key does something here."""
    value: str = ""
    """Text of a field, or `checked`."""

    @property
    def centre(self) -> tuple[float, float]:
        """Returns the middle of the box, in [0, 1]."""
        left, top, right, bottom = self.box
        return ((left + right) / 2, (top + bottom) / 2)


def element_at(point: tuple[float, float], elements: Sequence[Element]) -> Element | None:
    """Finds the smallest element whose box holds a point of the screen; None where there is none."""
    x, y = point
    holding = [one for one in elements if one.box[0] <= x <= one.box[2] and one.box[1] <= y <= one.box[3]]
    return min(holding, key=lambda one: (one.box[2] - one.box[0]) * (one.box[3] - one.box[1]), default=None)


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at the screen."""

    png: bytes
    width: int
    height: int
    instruction: str
    elements: tuple[Element, ...] = field(default=())
    """Empty unless the sandbox was asked for them; a policy under evaluation never sees them."""
    takes: frozenset[str] = frozenset()
    """Types of action that the environment takes here, if it lists them; only for a policy that sees elements."""


@dataclass(frozen=True, slots=True)
class PastStep:
    """One past step as the policy remembers it."""

    thought: str
    action_text: str
    """The action in the policy's own dialect, without thought."""
    observation: Observation


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the verifier's reading of the sandbox."""

    done: bool
    reward: float
    """Raw reward in [-1, 1], not discounted by time; 0 while the task is not done, or the one so far with `counts`."""
    truncated: bool = False
    """Whether the environment ended the trajectory by a limit of its own, without the task being done."""
    counts: bool = False
    """Whether the reward counts although the task is not done, as the score of a game that is not over."""

    @property
    def over(self) -> bool:
        """Checks whether nothing more can be performed."""
        return self.done or self.truncated

    def reaches(self, threshold: float) -> bool:
        """Checks whether it is a success by this threshold of the reward."""
        return (self.done or self.counts) and self.reward >= threshold


def elements_json(elements: Sequence[Element]) -> str:
    """Writes elements as canonical JSON, boxes rounded to a tenth of a thousandth."""
    return json.dumps(
        [[e.name, e.kind, [round(edge, 4) for edge in e.box], int(e.interactive), e.value] for e in elements],
        separators=(",", ":"),
    )


def elements_of(text: str) -> list[Element]:
    """Reads elements from such JSON."""
    return [Element(name, kind, tuple(box), bool(live), value) for name, kind, box, live, value in json.loads(text)]
