"""Defines thinkers, which write thoughts of recorded steps (thought augmentation, arXiv 2501.12326, section 4.4).

A thinker that sees the action (ActRe, Eq. 4) explains it: t_n = f(instruction, (o_1, t_1, a_1), ..., o_n, a_n), so its
context has the previous steps' thoughts. A thinker with `hidden` actions (thought bootstrapping, Eq. 5) samples both
thought and action; the thought is kept only if the sampled action is the recorded one. A thinker never decides whether
its thought is kept; `curation.thoughts` has the rules.
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
    """Instruction, past steps with their thoughts, and the screen with its elements; no later data."""
    action: Action
    """Recorded action."""
    unchanged: bool = False
    """Whether the previous step had no visible effect."""


@dataclass(frozen=True, slots=True)
class ThinkerThought:
    """A thinker's thought of a step."""

    text: str
    patterns: tuple[Pattern, ...] = ()
    """Patterns that the thinker names; if empty, they are recognised from the thought's words."""
    action: Action | None = None
    """Action that the thinker sampled, if the recorded action was hidden."""
    failure: str = ""
    """Reason why a thought is missing without a fault of the model; all other fields are then empty."""
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ThinkerResources:
    """Resources of thinkers; each is made when a thinker needs it."""

    champion: Callable[[], Policy]
    """Makes the policy of the current rollouts, in the form that thinks before it acts."""


class Thinker(ABC, Generic[Options]):
    """Writes thoughts.

    Args:
        options: the thinker's own section, `think.options.<name>`.
        resources: policy for the thinker.
    """

    section: ClassVar[type[Section]] = Section
    """Section of the options; a thinker with own options names their section."""
    phrases: ClassVar[tuple[str, ...]] = ()
    """Phrases of the thinker's thoughts, which become single tokens of a new small policy."""
    author: str
    """Author with which the thinker's thoughts are stored."""
    version: str | None = None
    """Version of the model, policy or rule; a new version thinks again."""
    hidden: bool = False
    """Whether the recorded action is hidden from the thinker, so that a thought counts only if its action is the
    same."""
    asks_model: bool = False
    """Whether the thinker asks a model, which costs; a step is then asked several times within limits, and failed
    requests are recorded."""
    sees: bool = False
    """Whether the thinker needs the pixels."""

    def __init__(self, options: Options, resources: ThinkerResources) -> None:
        self.options, self.resources = options, resources

    @abstractmethod
    def think(self, cases: Sequence[ThinkerCase], draw: int) -> list[ThinkerThought]:
        """Returns one thought per case; it depends on `draw`. No text of a model makes it raise."""

    def write(self, action: Action, screen: tuple[int, int]) -> str:
        """Writes a past action for its prompt, on a screen of a width and a height."""
        return format_action(action)

    @classmethod
    def require(cls, options: Any) -> None:
        """Raises FlywheelError if a requirement of the thinker's config section is missing."""
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
"""Thinkers by name. Reviewers' thoughts need no thinker, since they are rows in the lake."""
