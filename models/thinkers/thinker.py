"""Thinkers, which write the thoughts of recorded steps (thought augmentation, UI-TARS, arXiv 2501.12326, section 4.4).

A thinker that sees the action (ActRe, Eq. 4) explains it: t_n = f(instruction, (o_1, t_1, a_1), ..., o_n, a_n), so the
thoughts of the steps before are in its context. A thinker with `hidden` actions (thought bootstrapping, Eq. 5) draws
both thought and action, and a thought is kept only if it led to the recorded action. A thinker never decides whether
its thought is kept: the rules are `curation.thoughts`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from models.families.dialects import format_action
from models.policy import Context, Policy
from schemas.action import Action
from schemas.config.section import Section
from schemas.registry import Registry
from schemas.tables.annotation import Pattern

Options = TypeVar("Options", bound=Section)


@dataclass(frozen=True, slots=True)
class ThinkerCase:
    """A recorded step that needs a thought."""

    context: Context
    """Instruction, steps before with their thoughts, and the screen with its elements; nothing later."""
    action: Action
    """Recorded action."""
    unchanged: bool = False
    """Whether the step before had no visible effect."""


@dataclass(frozen=True, slots=True)
class ThinkerThought:
    """A thinker's thought of a step."""

    text: str
    patterns: tuple[Pattern, ...] = ()
    """Patterns that it names itself; without any they are recognised by its words."""
    action: Action | None = None
    """Action it would take, if the recorded one was hidden from it."""
    failure: str = ""
    """Reason for a missing thought that is no fault of the model; all other fields are then empty."""
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ThinkerResources:
    """Resources of thinkers, each made when one needs it."""

    champion: Callable[[], Policy]
    """Makes the policy that now rolls out, as it thinks before it acts."""


class Thinker(ABC, Generic[Options]):
    """Writes thoughts.

    Args:
        options: its own section, `think.options.<name>`.
        resources: the policy that it may use.
    """

    section: ClassVar[type[Section]] = Section
    """Section of the options; a thinker with options of its own names theirs."""
    phrases: ClassVar[tuple[str, ...]] = ()
    """Phrases of its thoughts: single tokens of a small policy that is made to be trained on them."""
    author: str
    """Author that its thoughts are stored under."""
    version: str | None = None
    """Version of the model, policy or rule; another one thinks again."""
    hidden: bool = False
    """Whether it does not see the action, so that its thought counts only where it led to the same one."""
    asks_model: bool = False
    """Whether it costs: then it is asked several times, within limits, and requests without result are recorded."""
    sees: bool = False
    """Whether it needs the pixels."""

    def __init__(self, options: Options, resources: ThinkerResources) -> None:
        self.options, self.resources = options, resources

    @abstractmethod
    def think(self, cases: Sequence[ThinkerCase], draw: int) -> list[ThinkerThought]:
        """Returns one thought per case; another one for another `draw`. Never raises for any text of a model."""

    def write(self, action: Action, screen: tuple[int, int]) -> str:
        """Writes a past action for its prompt, on a screen of a width and a height."""
        return format_action(action)

    @classmethod
    def require(cls, options: Any) -> None:
        """Raises FlywheelError if a requirement of its own section of the config is missing."""
        return


THINKERS: Registry[Thinker[Any]] = Registry(
    "think.thinkers",
    Thinker,
    {
        "template": "models.thinkers.rules:TemplateThinker",
        "rules": "models.thinkers.rules:RuleThinker",
        "policy": "models.thinkers.asked:PolicyThinker",
        "endpoint": "models.thinkers.asked:EndpointThinker",
    },
)
"""Thinkers by name. People's thoughts need none: they are rows in the lake."""
