"""Defines proposers of corrections: policies that avoid, on each screen, the actions that are known to fail.

A proposer acts in a sandbox in the state in which a trajectory went wrong. `Context.avoid` holds the actions that
failed in this state: the recorded action, and the actions of earlier attempts. So attempts are drawn without
replacement. A proposal is never trusted: only proposals that the verifier rewards are used for training.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, final

from models.completion import Completion
from models.policy import Context, Explorer, Policy
from schemas.action import Action, point_of
from schemas.config.section import Section
from schemas.observation import Element
from schemas.registry import Registry

Options = TypeVar("Options", bound=Section)
DRAWS = 12
"""Maximum draws of a proposer until an action need not be avoided."""
NEAR = 0.02
"""Maximum distance in each direction, in fractions of the screen, of two points that count as equal."""
LARGE = 0.15
"""Share of the screen above which the point of an action on an element matters."""


@dataclass(frozen=True, slots=True)
class Precedent:
    """A step of a trajectory that succeeded."""

    instruction: str
    step: int
    elements: tuple[Element, ...]
    """Elements of the step's screen."""
    action: Action


@dataclass(frozen=True, slots=True)
class ProposerResources:
    """Resources of proposers; each is made when a proposer needs it."""

    champion: Callable[[], Policy]
    """Makes the policy of the current rollouts."""
    explorer: Callable[[], Explorer]
    """Makes the configured explorer."""
    precedents: Mapping[str, Sequence[Precedent]] = field(default_factory=dict[str, Sequence[Precedent]])
    """Known successful steps, by task; it may grow."""


class Proposer(Policy, Generic[Options]):
    """Proposes corrections.

    Args:
        options: the proposer's own section, `reflect.options.<name>`.
        resources: policies and precedents for the proposer.
    """

    section: ClassVar[type[Section]] = Section
    """Section of the options; a proposer with own options names their section."""

    def __init__(self, options: Options, resources: ProposerResources) -> None:
        self.options, self.resources = options, resources

    @final
    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        """Returns one completion per context with an action that need not be avoided, or without an action."""
        found: list[Completion] = [Completion("", error="nothing to propose that was not tried")] * len(contexts)
        left = list(range(len(contexts)))
        for draw in range(DRAWS):
            proposed = self.propose([contexts[place] for place in left], temperature, draw) if left else []
            good = {
                place: one
                for place, one in zip(left, proposed, strict=True)
                if one.failure or (one.action is not None and not avoided(one.action, contexts[place]))
            }
            for place, one in good.items():
                found[place] = one
            left = [place for place in left if place not in good]
        return found

    @abstractmethod
    def propose(self, contexts: Sequence[Context], temperature: float, draw: int) -> list[Completion]:
        """Returns one completion per context; it depends on `draw`. No text of a model makes it raise."""

    @classmethod
    def require(cls, options: Any) -> None:
        """Raises FlywheelError if a requirement of the proposer's config section is missing."""
        return


PROPOSERS: Registry[Proposer[Any]] = Registry(
    "reflect.proposers",
    Proposer,
    {
        "explorer": "models.proposers.precedent:ExplorerProposer",
        "policy": "models.proposers.precedent:PolicyProposer",
        "precedent": "models.proposers.precedent:PrecedentProposer",
        "endpoint": "models.proposers.endpoint:EndpointProposer",
    },
)
"""Proposers by name. Reviewers' corrections need no proposer, since they are rows in the lake."""


def avoided(action: Action, context: Context) -> bool:
    """Checks whether an action must be avoided on this screen."""
    return any(alike(action, other, context.observation.elements) for other in context.avoid)


def alike(one: Action, other: Action, elements: Sequence[Element]) -> bool:
    """Checks whether two actions have the same effect.

    Two actions are alike if they are equal, or if they are of the same kind and at the same point or on the same small
    element. For a drag, both ends are compared.
    """
    ends = _ends(one), _ends(other)
    if one.type != other.type or not ends[0]:
        return one == other
    rest = [action.model_dump(exclude={"x", "y", "to_x", "to_y"}) for action in (one, other)]
    return rest[0] == rest[1] and all(_one_place(a, b, elements) for a, b in zip(*ends, strict=True))


def _ends(action: Action) -> list[tuple[float, float]]:
    point = point_of(action)
    ends = [point] if point else []
    return [*ends, (action.to_x, action.to_y)] if action.type == "drag" else ends


def _one_place(a: tuple[float, float], b: tuple[float, float], elements: Sequence[Element]) -> bool:
    if abs(a[0] - b[0]) <= NEAR and abs(a[1] - b[1]) <= NEAR:
        return True
    held = [_smallest(point, elements) for point in (a, b)]
    return held[0] is not None and held[0] is held[1]


def _smallest(point: tuple[float, float], elements: Sequence[Element]) -> Element | None:
    """Finds the smallest interactive element at a point; None if there is none or it is large."""
    x, y = point
    holding = [e for e in elements if e.interactive and e.box[0] <= x <= e.box[2] and e.box[1] <= y <= e.box[3]]
    smallest = min(holding, key=_area, default=None)
    return smallest if smallest is not None and _area(smallest) <= LARGE else None


def _area(element: Element) -> float:
    left, top, right, bottom = element.box
    return (right - left) * (bottom - top)
