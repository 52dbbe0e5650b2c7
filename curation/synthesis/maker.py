"""Defines state makers, which propose words, an initial state, a golden state and near misses.

A state maker never sees a reward. As in CUA-Gym (arXiv 2605.25624), another maker writes the reward only from the
words, and a proposal counts only if both makers agree (`curation.synthesis.acceptance`).

Defines reward makers, which write checks of the final state from only a task's words and the world's schema.

A reward maker never sees the initial or the golden state (CUA-Gym's information barrier, arXiv 2605.25624). If it
understands the words differently from the state maker, the scores differ, and the task is rejected.
"""

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from curation.synthesis.goal import MakerGoal
from schemas.config.section import Section
from schemas.registry import Registry, options_of
from schemas.world import FieldCheck, Layout, State, World, canonical

Options = TypeVar("Options", bound=Section)


@dataclass(frozen=True, slots=True)
class Parent:
    """A task from which other tasks can be made."""

    task_id: str
    instruction: str
    max_steps: int = 10
    goals: tuple[MakerGoal, ...] = ()
    """Goals of a made task."""
    initial: Mapping[str, Any] | None = None
    failures: int = 0
    """Number of its failed trajectories in the lake; frequently failing tasks are used more often."""
    successes: int = 0


@dataclass(frozen=True, slots=True)
class MakerInputs:
    """Inputs of a maker."""

    environment: str
    world: World
    parents: Sequence[Parent]
    """Tasks that are rolled out for data, without held-out ones."""
    layout: Layout | None = None
    """Layout of the site's pages; None if the environment has none."""

    def root(self, verb: str) -> str:
        """Return the id of the environment's own task that goals of a verb descend from."""
        return f"{self.environment}/{self.world.roots[verb].task}"


@dataclass(frozen=True, slots=True)
class ProposedTask:
    """A proposed task."""

    maker: str
    version: str
    environment: str
    instruction: str
    initial: State
    golden: State
    """Golden state; fields without a request and the open page are as in `initial`."""
    near_misses: tuple[State, ...]
    parents: tuple[str, ...]
    """Ids of the tasks from which the proposal was made."""
    max_steps: int = 0
    """Step limit, if the maker knows it; 0 if the cost of the search decides (`curation.synthesis.player`)."""
    tags: tuple[str, ...] = ()
    goals: tuple[MakerGoal, ...] = ()
    """Goals, if the maker has them; tasks that are made from this task use them."""
    problem: str = ""
    """Parse error of a model's answer; a proposal with an error is rejected."""

    @property
    def key(self) -> str:
        """Identity of the proposal: a hash of its environment, words and initial state."""
        name = f"{self.environment}|{self.instruction}|{canonical(self.initial)}"
        return hashlib.sha256(name.encode()).hexdigest()[:12]

    @property
    def template(self) -> str:
        """Name of its task."""
        return f"{self.maker.rpartition(':')[2].lower()}-{self.key}"

    @property
    def task_id(self) -> str:
        """Id of its task."""
        return f"{self.environment}/{self.template}"


class _Maker(ABC, Generic[Options]):
    """A maker that the config names.

    Args:
        name: name in the config.
        options: the maker's own section.
    """

    version: ClassVar[str] = "1"
    """Version of the maker's rule."""
    section: ClassVar[type[Section]] = Section
    """Class of the options."""

    def __init__(self, name: str, options: Options) -> None:
        self.name, self.options = name, options

    def require(self) -> None:
        """Raise FlywheelError if a requirement is missing."""
        return


class TaskMaker(_Maker[Options]):
    """Proposes tasks; its options are `synthesis.options.<name>`."""

    needs_site: ClassVar[bool] = True
    """Whether the maker only makes tasks of linked pages."""

    @abstractmethod
    def propose(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        """Yield proposals until the caller stops or there are no more; equal `chance` gives equal proposals."""


MAKERS: Registry[TaskMaker[Any]] = Registry(
    "synthesis.makers",
    TaskMaker,
    {
        "compose": "curation.synthesis.vary:Compose",
        "vary": "curation.synthesis.vary:Vary",
        "harden": "curation.synthesis.obfuscate:Harden",
        "obfuscate": "curation.synthesis.obfuscate:Obfuscate",
        "chain": "curation.synthesis.obfuscate:Chain",
        "endpoint": "curation.synthesis.endpoint:EndpointMaker",
    },
)


def maker_of(name: str, given: Mapping[str, Any]) -> TaskMaker[Any]:
    """Return the maker of this name or dotted path with its options; raises UsageError."""
    kind = MAKERS.class_of(name)
    return kind(name, options_of(kind.section, given, f"synthesis.options.{name}"))


def drawn(parents: Sequence[Parent], chance: random.Random) -> Parent:
    """Sample a parent; tasks that fail often but sometimes succeed are the most likely."""
    weights = [1.0 + 4.0 * one.failures / max(1, one.failures + one.successes) for one in parents]
    return chance.choices(list(parents), weights)[0]


class Unreadable(Exception):
    """Raised if the words contain nothing to check, or fit several entities; the message has the reason."""


class RewardMaker(_Maker[Options]):
    """Writes rewards; its options are `synthesis.options.reward`."""

    @abstractmethod
    def checks(self, instruction: str, world: World) -> tuple[FieldCheck, ...]:
        """Return the reward of a task with this instruction; raises Unreadable."""


REWARDS: Registry[RewardMaker[Any]] = Registry(
    "synthesis.reward",
    RewardMaker,
    {
        "reader": "curation.synthesis.reader:SentenceReader",
        "endpoint": "curation.synthesis.endpoint:EndpointReward",
    },
)


def reward_maker_of(name: str, given: Mapping[str, Any]) -> RewardMaker[Any]:
    """Return the reward maker of this name or dotted path with its options; raises UsageError."""
    kind = REWARDS.class_of(name)
    return kind(name, options_of(kind.section, given, "synthesis.options.reward"))
