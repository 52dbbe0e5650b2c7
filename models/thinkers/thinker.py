"""Defines thinkers, which write thoughts of recorded steps (thought augmentation, arXiv 2501.12326, section 4.4).

A thinker that sees the action (ActRe, Eq. 4) explains it: t_n = f(instruction, (o_1, t_1, a_1), ..., o_n, a_n), so its
context has the previous steps' thoughts. A thinker with `hidden` actions (thought bootstrapping, Eq. 5) samples both
thought and action; the thought is kept only if the sampled action is the recorded one. A thinker never decides whether
its thought is kept; `curation.thoughts` has the rules.

Two thinkers need no model: one has a template for each kind of action, one has rules. A thought by rules names the
parts of the instruction that were clicked or typed, and the remaining parts. It also names the action's element, and
whether the instruction names this element. It uses only the page's elements at the step, and no later data.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from models.families.dialects import format_actions, parse_reply
from models.policy import Context, Policy
from models.thoughts import templated_thought
from schemas.action import Action, Click, Type, point_of
from schemas.config.section import Section
from schemas.observation import ELEMENT_KINDS, Element, element_at
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

    def write(self, actions: Sequence[Action], screen: tuple[int, int]) -> str:
        """Writes the actions of a past reply for its prompt, on a screen of a width and a height."""
        return format_actions(actions)

    @classmethod
    def require(cls, options: Any) -> None:
        """Raises FlywheelError if a requirement of the thinker's config section is missing."""
        return


THINKERS: Registry[Thinker[Any]] = Registry(
    "think.thinkers",
    Thinker,
    {
        "template": "models.thinkers.thinker:TemplateThinker",
        "rules": "models.thinkers.thinker:RuleThinker",
        "policy": "models.thinkers.asked:PolicyThinker",
        "endpoint": "models.thinkers.asked:EndpointThinker",
    },
)
"""Thinkers by name. Reviewers' thoughts need no thinker, since they are rows in the lake."""


LONGEST_NAME = 24
"""Maximum characters of a name in a thought; a longer name is left out."""
MOST_PARTS = 3
"""Maximum parts of the instruction that a thought names."""
FIELDS = ("text field", "password field", "textarea")
VERBS = {
    "click": "click", "left_double": "double-click", "right_single": "right-click", "long_press": "hold",
    "middle_single": "middle-click", "triple_click": "triple-click", "move": "point at",
}  # fmt: skip


class TemplateThinker(Thinker[Section]):
    """A few words for each kind of action."""

    author = "template"

    def think(self, cases: Sequence[ThinkerCase], draw: int) -> list[ThinkerThought]:
        """Writes a thought by the kind of action; an action without a template gets none."""
        return [ThinkerThought(templated_thought(case.action)) for case in cases]


class RuleThinker(Thinker[Section]):
    """Reads the page's elements; English."""

    author = "rules"
    version = "rules-2"
    phrases = (
        "Thought: ",
        "\nAction: ",
        "That changed nothing. ",
        '" is clicked. ',
        '" is typed. ',
        'First "',
        '", then "',
        'Not yet: "',
        '". ',
        '".',
        'I type "',
        "I write in the ",
        *(f"I {verb} the " for verb in (*VERBS.values(), "try")),
        *(f'{kind} "' for kind in ELEMENT_KINDS),
        *(f"{kind}." for kind in ELEMENT_KINDS),
    )

    def think(self, cases: Sequence[ThinkerCase], draw: int) -> list[ThinkerThought]:
        """Writes thoughts by rules, equal for every draw."""
        return [rule_thought(case) for case in cases]


def rule_thought(case: ThinkerCase) -> ThinkerThought:
    """Writes the thought of a step, with its patterns of reasoning."""
    instruction, turns = case.context.instruction, case.context.turns
    goal = parts_of(instruction)
    met = [_met(parse_reply(turn.action_text).first, turn.observation.elements) for turn in turns]
    left = [part for part in goal if part not in [name for name, _ in met]]
    sentences: list[str] = []
    patterns: list[Pattern] = []
    if case.unchanged:
        sentences.append("That changed nothing.")
        patterns.append("reflection")
    elif met and met[-1][0] in goal:
        sentences.append('"{}" is {}.'.format(*met[-1]))
        patterns.append("milestone_recognition")
    if not turns and len(goal) > 1:
        sentences.append("First " + ", then ".join(f'"{part}"' for part in goal[:MOST_PARTS]) + ".")
        patterns.append("task_decomposition")
    elif turns and len(goal) > 1 and left:
        sentences.append("Not yet: " + ", then ".join(f'"{part}"' for part in left[:MOST_PARTS]) + ".")
        patterns.append("long_term_consistency")
    intent, tries = _intent(case.action, case.context.observation.elements, instruction)
    if tries:
        patterns.append("trial_and_error")
    return ThinkerThought(" ".join([*sentences, intent]), tuple(patterns))


def parts_of(instruction: str) -> list[str]:
    """Lists an instruction's quoted texts, in order and each once; texts that are too long for a name are left out."""
    quoted = (part.strip() for part in re.findall(r'"([^"]+)"', instruction))
    return list(dict.fromkeys(part for part in quoted if 0 < len(part) <= LONGEST_NAME))


def _met(action: Action | None, elements: Sequence[Element]) -> tuple[str, str]:
    """Returns a past action's text or its clicked element's name, and which of the two it is.

    The thinker cannot know whether the task asks for more at this element.
    """
    if isinstance(action, Type):
        return action.content.strip(), "typed"
    point = point_of(action) if isinstance(action, Click) else None
    element = element_at(point, elements) if point else None
    return element.name if element else "", "clicked"


def _intent(action: Action, elements: Sequence[Element], instruction: str) -> tuple[str, bool]:
    """Describes the intent of an action, and whether it is an attempt that the instruction does not name."""
    if isinstance(action, Type) and 0 < len(action.content.strip()) <= LONGEST_NAME:
        return f'I type "{action.content.strip()}".', action.content.strip().lower() not in instruction.lower()
    point = point_of(action)
    element = element_at(point, elements) if point else None
    if element is None or action.type not in VERBS:
        return templated_thought(action) or "I go on.", False
    named = 0 < len(element.name) <= LONGEST_NAME and "\n" not in element.name
    what = f'{element.kind} "{element.name}"' if named else element.kind
    if element.kind in FIELDS:
        return f"I write in the {what}.", False
    asked = named and element.name.lower() in instruction.lower()
    return f"I {VERBS[action.type] if asked else 'try'} the {what}.", not asked
