"""A training sample: one step, as curation makes it from a lake and learning reads it.

As in UI-TARS the loss covers this step's thought and action (and the answers to questions about the same screenshot),
never the history.
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Past:
    """One step of the history."""

    thought: str
    action: str
    """Canonical JSON."""


@dataclass(frozen=True, slots=True)
class Question:
    """A grounding question: where is the element of this name?"""

    name: str
    x: float
    """Centre of the element, in [0, 1] of the screen."""
    y: float


Kind = Literal["step", "naming", "inverse_dynamics", "transition", "perception"]
COMPARING: tuple[Kind, ...] = ("inverse_dynamics", "transition")
"""Kinds that show two screens, before and after an action, and know no instruction."""
PLACE = "{place}"
"""Placeholder in a question about a screen for the place of `action`, as the policy writes it."""


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One screen, or two to compare, with the answer to learn."""

    task_id: str
    screenshots: tuple[str, ...]
    """sha256 of the last screenshots, oldest first, the current one last."""
    instruction: str
    history: tuple[Past, ...] = ()
    """All past steps, oldest first."""
    thought: str = ""
    action: str | None = None
    """Target, canonical JSON; None for a screen that only teaches grounding. For perception, a click on the place that
    is asked about, or None."""
    questions: tuple[Question, ...] = field(default=())
    weight: float = 1.0
    """How often it is drawn, relative to the others; 0 for never."""
    kind: Kind = "step"
    """`step`: the reply to the instruction, or, without an action, places of elements. Of continual training: `naming`,
    the element at a place; `inverse_dynamics`, the action that led from one screen to the next; `transition`, the
    change between them, in `thought`. `perception`: a question about a screen in `instruction`, its answer in
    `thought`."""

    @property
    def asked_at(self) -> str | None:
        """Returns the action whose place replaces `PLACE` in the question; None where the question names no place."""
        return self.action if self.kind == "perception" else None

    @property
    def thinks(self) -> bool:
        """Checks whether its prompt asks for a thought: a sample that holds none teaches to act without."""
        return bool(self.thought)

    def shown_screens(self, history_images: int) -> tuple[str, ...]:
        """Lists the screenshots that are shown where the policy sees so many of the last ones."""
        if self.kind in COMPARING:
            return self.screenshots
        if self.kind == "perception":
            return self.screenshots[-1:]
        return self.screenshots[-history_images if self.action is not None else -1 :]
