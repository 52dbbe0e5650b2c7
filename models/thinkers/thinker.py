"""The seam to who writes the thoughts of recorded steps (thought augmentation, UI-TARS, arXiv 2501.12326, section 4.4).

Told the action (ActRe, Eq. 4), a thinker explains it: t_n = f(instruction, (o_1, t_1, a_1), ..., o_n, a_n), so what was
thought of the steps before is in its context. From one that is `hidden` from the action (thought bootstrapping, Eq. 5)
both are drawn, and a thought is kept only where it led to the action that was recorded. Whether a thought is kept is
never the thinker's word: the rules are `curation.thoughts`.
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
    """A recorded step that is thought about."""

    context: Context
    """The instruction, the steps before with their thoughts, and the screen with its elements; nothing of what came
    after."""
    action: Action
    """What was done."""
    unchanged: bool = False
    """Whether the step before changed nothing that is seen."""


@dataclass(frozen=True, slots=True)
class ThinkerThought:
    """What a thinker thought of a step."""

    text: str
    patterns: tuple[Pattern, ...] = ()
    """Those that it names itself; where it names none they are recognised by its words."""
    action: Action | None = None
    """What it would do, of one that is hidden from what was done."""
    failure: str = ""
    """Why there is none, through no fault of the model; then the rest is empty."""
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ThinkerResources:
    """What thinkers are made with; what one does not need is not made."""

    champion: Callable[[], Policy]
    """The policy that now rolls out, as it thinks before it acts."""


class Thinker(ABC, Generic[Options]):
    """Writes thoughts.

    Args:
        options: its own section, `think.options.<name>`.
        resources: what it may think with.
    """

    section: ClassVar[type[Section]] = Section
    """What the options must be; a thinker with options of its own names theirs."""
    phrases: ClassVar[tuple[str, ...]] = ()
    """What its thoughts are made of: single tokens of a small policy that is made to be trained on them."""
    author: str
    """What its thoughts are stored under."""
    version: str | None = None
    """The model, the policy version or the rule; another one thinks anew."""
    hidden: bool = False
    """Whether it is not shown the action, so that its thought counts only where it led to the same one."""
    asks_model: bool = False
    """Whether it costs: then it is asked several times, within limits, and what it was asked in vain is kept."""
    sees: bool = False
    """Whether it must be shown the pixels."""

    def __init__(self, options: Options, resources: ThinkerResources) -> None:
        self.options, self.resources = options, resources

    @abstractmethod
    def think(self, cases: Sequence[ThinkerCase], draw: int) -> list[ThinkerThought]:
        """One thought per case; another one for another `draw`. Never raises for what a model may generate."""

    def write(self, action: Action, screen: tuple[int, int]) -> str:
        """A past action as it is shown to it, on a screen of a width and a height."""
        return format_action(action)

    @classmethod
    def require(cls, options: Any) -> None:
        """Raises FlywheelError if what it needs, by its own section of the config, is not to be had."""
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
