"""Walk trajectories step by step for thinkers. The thought of each step is in the context of the next step."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from curation.thoughts import changed_nothing
from models.policy import Context
from models.thinkers.thinker import ThinkerCase
from schemas.action import Action, from_json
from schemas.observation import Observation, PastStep, elements_of
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory

Write = Callable[[Action, tuple[int, int]], str]


@dataclass(slots=True)
class ThinkingWalk:
    """Walk along one trajectory."""

    trajectory: Trajectory
    steps: Sequence[Step]
    """Steps that may get thoughts, in order."""
    thoughts: list[str] = field(default_factory=list[str])
    """Thoughts of the steps so far."""

    def case(self, write: Write, pngs: Mapping[str, bytes]) -> ThinkerCase:
        """Return the case of the next step, with past actions in the thinker's format."""
        place, instruction = len(self.thoughts), self.trajectory.instruction
        past = zip(self.steps, self.thoughts, strict=False)
        turns = [PastStep(thought, _written(step, write), _seen(step, instruction, pngs)) for step, thought in past]
        step = self.steps[place]
        screen = _seen(step, instruction, pngs)
        context = Context(instruction, tuple(turns), screen, _seed(step), self.trajectory.task_id)
        unchanged = place > 0 and changed_nothing(self.steps[place - 1], step)
        return ThinkerCase(context, from_json(step.action or ""), unchanged)

    @property
    def step(self) -> Step:
        """The next step."""
        return self.steps[len(self.thoughts)]


def at_same_place(
    walks: Sequence[ThinkingWalk], settled: Callable[[ThinkingWalk], str | None]
) -> Iterator[list[ThinkingWalk]]:
    """Yield lists of walks that are at the same step and need a thought for it. Other steps are skipped.

    Args:
        walks: walks at their first steps. The caller adds a thought to each yielded walk.
        settled: returns the thought of a walk's next step, or None if the step needs a thought.
    """
    for place in range(max((len(walk.steps) for walk in walks), default=0)):
        there: list[ThinkingWalk] = []
        for walk in walks:
            if place >= len(walk.steps):
                continue
            known = settled(walk)
            if known is None:
                there.append(walk)
            else:
                walk.thoughts.append(known)
        if there:
            yield there


def screens_of(walks: Iterable[ThinkingWalk], settled: Collection[tuple[str, int]]) -> list[str]:
    """Return the sha256 of the screens of walks with a step that needs a thought."""
    open_ones = [walk for walk in walks if any((s.trajectory_id, s.step) not in settled for s in walk.steps)]
    return sorted({step.screenshot for walk in open_ones for step in walk.steps})


def _written(step: Step, write: Write) -> str:
    return write(from_json(step.action or ""), (step.screen_width, step.screen_height))


def _seen(step: Step, instruction: str, pngs: Mapping[str, bytes]) -> Observation:
    png, elements = pngs.get(step.screenshot, b""), tuple(elements_of(step.elements))
    return Observation(png, step.screen_width, step.screen_height, instruction, elements)


def _seed(step: Step) -> int:
    digest = hashlib.sha256(f"{step.trajectory_id}|{step.step}".encode()).digest()
    return int.from_bytes(digest[:6])
