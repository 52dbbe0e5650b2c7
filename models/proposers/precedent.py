"""Proposes by precedent: transfers successful steps of the same task, from another seed, to the current screen.

A precedent is a step of a successful trajectory: its action, the kind and name of its element, and the point on the
element. On the current screen, the action is transferred to an element of the same kind. If the precedent's instruction
has the element's name, the target is an element whose name is in the current instruction. Otherwise the target is an
element of the same name. Without such a name, it is the element with the same index, if both screens have equally many
elements of this kind. The proposer has no other knowledge of a task, and as for every proposer, only successful
proposals count. If no precedent is left, the explorer proposes.

The module also has proposers that use the explorer, and the policy at a higher temperature.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from models.completion import Completion
from models.families.dialects import format_action, format_reply, parse_reply
from models.policy import Context
from models.proposers.proposer import Precedent, Proposer, ProposerResources, avoided
from schemas import action as act
from schemas.config.section import Positive, Section
from schemas.observation import Element, element_at


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
