"""Ask thinkers about the steps of a chunk of trajectories, one after the other, and store the thoughts.

The thought of each step is in the context of the next step.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curation.gates.thoughts import ThoughtOptions
from curation.thoughts import ThoughtLimits, changed_nothing, fault_of, is_persons, thought_annotation, thought_id
from models.policy import Context
from models.thinkers.thinker import Thinker, ThinkerCase, ThinkerThought
from schemas.action import Action, from_json, from_json_list
from schemas.config import Config
from schemas.observation import Observation, PastStep, elements_of
from schemas.table import utc_now
from schemas.tables.annotation import Annotation
from schemas.tables.step import Step
from schemas.tables.thinking import Thinking
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.shared.material import pngs_of

Write = Callable[[Sequence[Action], tuple[int, int]], str]


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
        turns = [
            PastStep(thought, _written(step, write), _seen(step, instruction, pngs), step.action_error or "")
            for step, thought in past
        ]
        step = self.steps[place]
        screen = _seen(step, instruction, pngs)
        context = Context(instruction, tuple(turns), screen, _seed(step), self.trajectory.task_id)
        unchanged = place > 0 and changed_nothing(self.steps[place - 1], step)
        return ThinkerCase(context, from_json(step.actions[0]), unchanged)

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
    return write(from_json_list(step.actions), (step.screen_width, step.screen_height))


def _seen(step: Step, instruction: str, pngs: Mapping[str, bytes]) -> Observation:
    png, elements = pngs.get(step.screenshot, b""), tuple(elements_of(step.elements))
    return Observation(png, step.screen_width, step.screen_height, instruction, elements)


def _seed(step: Step) -> int:
    digest = hashlib.sha256(f"{step.trajectory_id}|{step.step}".encode()).digest()
    return int.from_bytes(digest[:6])


Asked = tuple[str, int, str, str | None]
"""Id of a trajectory, number of a step, author, and version of the author."""


@dataclass(slots=True)
class _AskedStep:
    """A step that one thinker is asked about."""

    walk: ThinkingWalk
    tries: int = 0
    tokens: int = 0
    seconds: float = 0.0
    reason: str = ""
    failed: bool = False
    kept: ThinkerThought | None = None


@dataclass(slots=True)
class IterationThoughts:
    """Stored and new thoughts for the steps of one iteration."""

    config: Config
    lake: Lake
    iteration: int
    thinkers: Sequence[Thinker[Any]]
    most: int | None = None
    """Maximum number of further requests to models; if not given, `think.most` minus the number of earlier requests."""
    asked: int = 0
    """Number of requests to models in the iteration, earlier runs included."""
    left: int = 0
    """Number of requests that are still allowed."""
    unasked: int = 0
    """Number of steps that no model was asked about because of `think.most`."""
    failed: Counter[str] = field(default_factory=Counter[str])
    """Number of steps that a model did not answer, by reason. A repeated stage asks about them again."""
    _by_id: dict[str, str] = field(default_factory=dict[str, str])
    _persons: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    _in_vain: set[Asked] = field(default_factory=set[Asked])
    _annotations: list[Annotation] = field(default_factory=list[Annotation])
    _rows: list[Thinking] = field(default_factory=list[Thinking])

    def __post_init__(self) -> None:
        where = {"iteration": self.iteration}
        columns = ["annotation_id", "trajectory_id", "step", "author", "version", "thought"]
        for one in self.lake.read("annotations", columns, {**where, "kind": "thought"}).to_pylist():
            self._by_id[one["annotation_id"]] = one["thought"]
            if is_persons(one["author"], one["version"]):
                self._persons[one["trajectory_id"], one["step"]] = one["thought"]
        for row in self.lake.rows(Thinking, where):
            self.asked += row.tries
            if not row.kept:
                self._in_vain.add((row.trajectory_id, row.step, row.author, row.version))
        self.left = max(0, self.config.think.most - self.asked) if self.most is None else self.most

    def of(self, walks: Sequence[ThinkingWalk]) -> None:
        """Add a thought to every step of these trajectories that has none, and store the kept thoughts."""
        sees = any(thinker.sees for thinker in self.thinkers)
        settled = {(s.trajectory_id, s.step) for walk in walks for s in walk.steps if self._settled(s) is not None}
        pngs = pngs_of(self.lake, screens_of(walks, settled)) if sees else {}
        for there in at_same_place(walks, lambda walk: self._settled(walk.step)):
            found: dict[int, str] = {}
            left = there
            for thinker in self.thinkers:
                found |= self._ask(thinker, left, pngs)
                left = [walk for walk in left if id(walk) not in found]
            for walk in there:
                walk.thoughts.append(found.get(id(walk), ""))
        self.lake.append("thinking", self._rows)
        self.lake.append("annotations", self._annotations)
        self._rows, self._annotations = [], []

    def _settled(self, step: Step) -> str | None:
        """Return the thought of a step; None if a thinker has to be asked.

        This is the recorded thought, a reviewer's thought, or the stored thought of the first thinker that has one. It
        is empty if all thinkers were asked and none of their thoughts was kept.
        """
        if step.thought:
            return step.thought
        if (persons := self._persons.get((step.trajectory_id, step.step))) is not None:
            return persons
        for thinker in self.thinkers:
            known = self._by_id.get(thought_id(step, thinker.author, thinker.version))
            if known is not None:
                return known
            if _key(step, thinker) not in self._in_vain:
                return None
        return ""

    def _ask(self, thinker: Thinker[Any], walks: Sequence[ThinkingWalk], pngs: dict[str, bytes]) -> dict[int, str]:
        """Return a thinker's thoughts for the next step of each walk, by walk."""
        found: dict[int, str] = {}
        asked: list[_AskedStep] = []
        for walk in walks:
            known = self._by_id.get(thought_id(walk.step, thinker.author, thinker.version))
            if known is not None:
                found[id(walk)] = known
            elif _key(walk.step, thinker) not in self._in_vain:
                asked.append(_AskedStep(walk))
        for draw in range(self.config.think.tries if thinker.asks_model else 1):
            self._draw(thinker, [one for one in asked if one.kept is None and not one.failed], draw, pngs)
        for one in asked:
            self._note(thinker, one)
            if one.kept is not None:
                found[id(one.walk)] = one.kept.text.strip()
        return found

    def _draw(self, thinker: Thinker[Any], asked: Sequence[_AskedStep], draw: int, pngs: dict[str, bytes]) -> None:
        if thinker.asks_model:
            most = self.left
            self.unasked += sum(one.tries == 0 for one in asked[most:])
            asked = asked[:most]
            self.asked += len(asked)
            self.left -= len(asked)
        if not asked:
            return
        began = time.perf_counter()
        cases = [one.walk.case(thinker.write, pngs) for one in asked]
        thoughts = thinker.think(cases, draw)
        share = (time.perf_counter() - began) / len(asked)
        for one, case, thought in zip(asked, cases, thoughts, strict=True):
            one.tries, one.tokens, one.seconds = one.tries + 1, one.tokens + thought.tokens, one.seconds + share
            one.reason, one.failed = fault_of(thought, case, thinker.hidden, self._limits), bool(thought.failure)
            one.kept = None if one.reason else thought

    def _note(self, thinker: Thinker[Any], one: _AskedStep) -> None:
        """Record the result for a step: the thought, and the cost of the requests."""
        step, now = one.walk.step, utc_now()
        if one.kept is not None:
            self._annotations.append(thought_annotation(step, one.kept, thinker.author, thinker.version, now))
        if one.failed:
            self.failed[f"{thinker.author}: {one.reason}"] += 1
        if thinker.asks_model and one.tries and not one.failed:
            self._rows.append(
                Thinking(
                    trajectory_id=step.trajectory_id,
                    step=step.step,
                    author=thinker.author,
                    version=thinker.version or "",
                    iteration=step.iteration,
                    tries=one.tries,
                    kept=one.kept is not None,
                    reason=one.reason,
                    tokens=one.tokens,
                    seconds=one.seconds,
                    created_at=now,
                )
            )

    @property
    def _limits(self) -> ThoughtLimits:
        options = ThoughtOptions.model_validate(self.config.filter.options.get("thoughts", {}))
        return ThoughtLimits(self.config.think.longest, options.max_phrases)


def _key(step: Step, thinker: Thinker[Any]) -> Asked:
    return step.trajectory_id, step.step, thinker.author, thinker.version or ""
