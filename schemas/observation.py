"""Define observations of a sandbox (pixels, instruction and elements), past steps, and outcomes."""

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
    """One visible element. Its box is (left, top, right, bottom) in fractions of the screen."""

    name: str
    """Visible text or label; empty if there is none."""
    kind: str
    """One of `ELEMENT_KINDS`."""
    box: tuple[float, float, float, float]
    interactive: bool
    """Whether the element reacts to a click or a key."""
    value: str = ""
    """Text of a field, or `checked`."""

    @property
    def centre(self) -> tuple[float, float]:
        """Returns the centre of the box, in [0, 1]."""
        left, top, right, bottom = self.box
        return ((left + right) / 2, (top + bottom) / 2)


def element_at(point: tuple[float, float], elements: Sequence[Element]) -> Element | None:
    """Finds the smallest element whose box contains a point of the screen; None if there is none."""
    x, y = point
    holding = [one for one in elements if one.box[0] <= x <= one.box[2] and one.box[1] <= y <= one.box[3]]
    return min(holding, key=lambda one: (one.box[2] - one.box[0]) * (one.box[3] - one.box[1]), default=None)


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of the screen."""

    png: bytes
    width: int
    height: int
    instruction: str
    elements: tuple[Element, ...] = field(default=())
    """The page's elements; empty unless the caller asked for them. A policy under evaluation never sees them."""
    takes: frozenset[str] = frozenset()
    """Types of action that the environment accepts at this screen, if it lists them. Only for policies that see
    elements."""


@dataclass(frozen=True, slots=True)
class PastStep:
    """One past step, as it appears in the policy's prompt."""

    thought: str
    action_text: str
    """The action in the policy's dialect, without the thought."""
    observation: Observation
    error: str = ""
    """Reason why an action of the reply was not performed (`steps.action_error`); empty if all were performed."""
    reply: str = ""
    """The whole reply as the policy sampled it; empty if no model of a family replied, or the reply is unknown."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a verifier."""

    done: bool
    reward: float
    """Raw reward in [-1, 1], not discounted by time. While the task is not done it is 0; with `counts`, the reward so
    far."""
    truncated: bool = False
    """Whether a limit of the environment ended the trajectory before the task was done."""
    counts: bool = False
    """Whether the reward counts although the task is not done, such as the score of an unfinished game."""
    reason: str = ""
    """Sentence about the reward, if the verifier has one, such as which part of an answer is right."""

    @property
    def over(self) -> bool:
        """Checks whether no further action can be performed."""
        return self.done or self.truncated

    def reaches(self, threshold: float) -> bool:
        """Checks whether the outcome is a success, given the minimum reward of a success."""
        return (self.done or self.counts) and self.reward >= threshold


def elements_json(elements: Sequence[Element]) -> str:
    """Returns elements as canonical JSON, with boxes rounded to four decimals."""
    return json.dumps(
        [[e.name, e.kind, [round(edge, 4) for edge in e.box], int(e.interactive), e.value] for e in elements],
        separators=(",", ":"),
    )


def elements_of(text: str) -> list[Element]:
    """Reads elements from the JSON of `elements_json`."""
    return [Element(name, kind, tuple(box), bool(live), value) for name, kind, box, live, value in json.loads(text)]
