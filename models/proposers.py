"""Defines proposers of corrections: policies that avoid, on each screen, the actions that are known to fail.

A proposer acts in a sandbox in the state in which a trajectory went wrong. `Context.avoid` holds the actions that
failed in this state: the recorded action, and the actions of earlier attempts. So attempts are drawn without
replacement. A proposal is never trusted: only proposals that the verifier rewards are used for training.

The proposer `precedent` transfers successful steps of the same task, from another seed, to the current screen. A
precedent is a step of a successful trajectory: its action, the kind and name of its element, and the point on the
element. On the current screen, the action is transferred to an element of the same kind. If the precedent's instruction
has the element's name, the target is an element whose name is in the current instruction. Otherwise the target is an
element of the same name. Without such a name, it is the element with the same index, if both screens have equally many
elements of this kind. The proposer has no other knowledge of a task, and as for every proposer, only successful
proposals count. If no precedent is left, the explorer proposes.

Other proposers use the explorer, the policy at a higher temperature, or a model behind any OpenAI-compatible server,
whose prompt has the screen and its failed actions.
"""

import base64
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar, final

from common.picture import stored_plain
from models.completion import Completion
from models.families.dialects import format_action, format_reply, parse_reply
from models.families.prompt import SAMPLES, system_text
from models.policy import Context, Explorer, Policy
from models.serving.openai import Endpoint, NoAnswer, OpenAIClient, RepeatedEndpointOptions
from schemas import action as act
from schemas.action import Action, point_of
from schemas.config.section import Count, Positive, Section
from schemas.observation import Element, element_at
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
                if one.failure or (one.first is not None and not avoided(one.first, contexts[place]))
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
        "explorer": "models.proposers:ExplorerProposer",
        "policy": "models.proposers:PolicyProposer",
        "precedent": "models.proposers:PrecedentProposer",
        "endpoint": "models.proposers:EndpointProposer",
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


class ExplorerProposer(Proposer[Section]):
    """The configured explorer, which draws again where it would repeat a failed action."""

    kind = "explorer"

    def __init__(self, options: Section, resources: ProposerResources) -> None:
        super().__init__(options, resources)
        self._explorer = resources.explorer()
        self.version, self.dialect = self._explorer.version, self._explorer.dialect
        self.needs_elements = self._explorer.needs_elements

    def propose(self, contexts: Sequence[Context], temperature: float, draw: int) -> list[Completion]:
        """Returns the explorer's completions."""
        return self._explorer.act([redrawn(context, draw) for context in contexts], 1.0)


class ProposerPolicyOptions(Section):
    """`reflect.options.policy`."""

    temperature: Positive = 1.0
    """Temperature of the first sample on a screen. It rises by a tenth with each action to avoid."""


class PolicyProposer(Proposer[ProposerPolicyOptions]):
    """The champion; as everywhere it sees pixels alone."""

    section = ProposerPolicyOptions

    def __init__(self, options: ProposerPolicyOptions, resources: ProposerResources) -> None:
        super().__init__(options, resources)
        self._policy = resources.champion()
        self.version, self.dialect = self._policy.version, self._policy.dialect
        self.max_concurrency = self._policy.max_concurrency

    def propose(self, contexts: Sequence[Context], temperature: float, draw: int) -> list[Completion]:
        """Samples the champion's completions."""
        hotter = self.options.temperature * (1 + 0.1 * draw)
        return self._policy.act([redrawn(context, draw) for context in contexts], hotter)


def redrawn(context: Context, draw: int) -> Context:
    """Returns the context with a seed that depends on the draw."""
    return replace(context, seed=context.seed + 1_000_003 * draw)


Point = tuple[float, float]


class PrecedentProposer(Proposer[Section]):
    """Tries the precedents of a task: those with this instruction first, then those of the nearest step number."""

    version = "precedent-1"
    dialect = "box_v1"
    kind = "explorer"
    needs_elements = True

    def __init__(self, options: Section, resources: ProposerResources) -> None:
        super().__init__(options, resources)
        self._precedents, self._explorer = resources.precedents, resources.explorer()

    def propose(self, contexts: Sequence[Context], temperature: float, draw: int) -> list[Completion]:
        """Returns the first untried precedent, else the explorer's action."""
        return [self._completion(context) or self._explored(context, draw) for context in contexts]

    def _explored(self, context: Context, draw: int) -> Completion:
        return self._explorer.act([redrawn(context, draw)], 1.0)[0]

    def _completion(self, context: Context) -> Completion | None:
        known = self._precedents.get(context.task_id, ())
        for precedent in sorted(known, key=lambda one: _distance(one, context)):
            action = brought(precedent, context)
            if action is not None and not avoided(action, context):
                return parse_reply(format_reply("", format_action(action, self.dialect)))
        return None


def _distance(precedent: Precedent, context: Context) -> tuple[bool, int]:
    return precedent.instruction != context.instruction, abs(precedent.step - len(context.turns))


def brought(precedent: Precedent, context: Context) -> act.Action | None:
    """Transfers the precedent's action to this screen; None if the screen has no similar element."""
    action, elements = precedent.action, context.observation.elements
    if isinstance(action, act.Type):
        return _typed(action, precedent.instruction, context.instruction)
    point = act.point_of(action)
    if point is None:
        return action
    source = element_at(point, precedent.elements)
    target = next(_like(source, precedent, context), None) if source is not None else None
    if source is None or target is None:
        same = precedent.instruction == context.instruction and len(elements) == len(precedent.elements)
        return action if same else None
    moved = {"x": point[0], "y": point[1]}
    moved["x"], moved["y"] = _moved(point, source, target)
    if isinstance(action, act.Drag):
        moved["to_x"], moved["to_y"] = _moved((action.to_x, action.to_y), source, target)
    return action.model_copy(update={key: min(1.0, max(0.0, round(at, 4))) for key, at in moved.items()})


def _typed(action: act.Type, then: str, now: str) -> act.Type | None:
    """Types the same text, or the quoted text in the same position of the current instruction."""
    before, here = (re.findall(r'"([^"]+)"', text) for text in (then, now))
    place = next((at for at, text in enumerate(before) if text == action.content), None)
    if place is None:
        return action if then == now else None
    return act.Type(content=here[place]) if place < len(here) else None


def _like(source: Element, precedent: Precedent, context: Context) -> Iterator[Element]:
    """Yields the current screen's elements that are similar to the precedent's element, the most similar first."""
    here = [one for one in context.observation.elements if one.kind == source.kind]
    there = [one for one in precedent.elements if one.kind == source.kind]
    asked = bool(source.name) and source.name.lower() in precedent.instruction.lower()
    if asked:
        yield from (one for one in here if one.name and one.name.lower() in context.instruction.lower())
        return
    yield from (one for one in here if one.name == source.name and source.name)
    place = next(at for at, one in enumerate(there) if one is source)
    if len(here) == len(there):
        yield here[place]


def _moved(point: Point, source: Element, target: Element) -> Point:
    """Moves a point from the source to the target, at the same fraction of the box."""
    (left, top, right, bottom), (to_left, to_top, to_right, to_bottom) = source.box, target.box
    x = to_left + (point[0] - left) / max(1e-6, right - left) * (to_right - to_left)
    y = to_top + (point[1] - top) / max(1e-6, bottom - top) * (to_bottom - to_top)
    return x, y


ASKED = "Those were tried on this screen, and led nowhere. Do something else that the instruction asks for."


class ProposerEndpointOptions(RepeatedEndpointOptions):
    """`reflect.options.endpoint`."""

    key_variable: str = "FLYWHEEL_PROPOSER_KEY"
    concurrency: Count = 8
    """Maximum concurrent requests."""
    temperature: Positive = 0.7
    """Sampling temperature of the answers."""
    max_tokens: Count = 256
    """Maximum tokens of an answer."""


class EndpointProposer(Proposer[ProposerEndpointOptions]):
    """Asks a served model for a thought and an action, coordinates in thousandths of the screen."""

    section = ProposerEndpointOptions
    dialect = "box_v1"

    def __init__(self, options: ProposerEndpointOptions, resources: ProposerResources) -> None:
        super().__init__(options, resources)
        self.version, self.max_concurrency = options.model, options.concurrency
        self._client = _client(options)

    @classmethod
    def require(cls, options: ProposerEndpointOptions) -> None:
        """Checks that the server answers and takes the key."""
        _client(options).require()

    def propose(self, contexts: Sequence[Context], temperature: float, draw: int) -> list[Completion]:
        """Requests the served model's completions; a failed completion names its error."""
        return [self._ask(context, draw) for context in contexts]

    def _ask(self, context: Context, draw: int) -> Completion:
        try:
            return parse_reply(self._client.chat(self._body(context, draw))["text"])
        except NoAnswer as failure:
            return Completion("", failure=str(failure))

    def _body(self, context: Context, draw: int) -> dict[str, Any]:
        png = base64.b64encode(stored_plain(context.observation.png)).decode()
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}}
        content = [{"type": "text", "text": text_of(context)}, picture]
        rules = system_text([format_action(action) for action in SAMPLES])
        return {
            "model": self.options.model,
            "messages": [{"role": "system", "content": rules}, {"role": "user", "content": content}],
            "temperature": self.options.temperature,
            "max_tokens": self.options.max_tokens,
            "seed": (context.seed + draw) % 2**31,
        }


def text_of(context: Context) -> str:
    """Writes the prompt: the instruction, the past actions, and the actions that failed on this screen."""
    parts = [f"Instruction: {context.instruction}"]
    if context.turns:
        done = "\n".join(format_reply(turn.thought, turn.action_text) for turn in context.turns)
        parts.append(f"Done so far:\n{done}")
    if context.avoid:
        parts.append("\n".join([ASKED, *(format_action(action) for action in context.avoid)]))
    return "\n\n".join(parts)


def _client(options: ProposerEndpointOptions) -> OpenAIClient:
    where = (options.url, options.key_variable, options.timeout_s, options.retries, options.concurrency)
    return OpenAIClient(Endpoint("reflect.options.endpoint", *where))
