"""The seam to who makes tasks: a state maker proposes words, an initial state, a golden state and near-misses.

It never sees a reward. As in CUA-Gym (arXiv 2605.25624) another maker writes that from the words alone, and a proposal
counts only where the two agree (`curation.synthesis.acceptance`).
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
from schemas.walk import Layout
from schemas.world import State, World, canonical

Options = TypeVar("Options", bound=Section)


@dataclass(frozen=True, slots=True)
class Parent:
    """A task that others can be made from."""

    task_id: str
    instruction: str
    max_steps: int = 10
    goals: tuple[MakerGoal, ...] = ()
    """Of a made one."""
    initial: Mapping[str, Any] | None = None
    failures: int = 0
    """Failed trajectories of it in the lake; a task that fails often is made from more often."""
    successes: int = 0


@dataclass(frozen=True, slots=True)
class MakerInputs:
    """What a maker works with."""

    environment: str
    world: World
    parents: Sequence[Parent]
    """Tasks that are rolled out for data; none that is held out."""
    layout: Layout | None = None
    """Of the site's pages; None where the environment has none."""

    def root(self, verb: str) -> str:
        """The id of the environment's own task that goals of a verb descend from."""
        return f"{self.environment}/{self.world.roots[verb].task}"


@dataclass(frozen=True, slots=True)
class ProposedTask:
    """A task somebody proposes."""

    maker: str
    version: str
    environment: str
    instruction: str
    initial: State
    golden: State
    """What is not asked for is as in `initial`, the page that is open as well."""
    near_misses: tuple[State, ...]
    parents: tuple[str, ...]
    """Ids of the tasks it was made from."""
    max_steps: int = 0
    """Its limit where its maker knows one; 0 where the cost of the search decides (`curation.synthesis.search`)."""
    tags: tuple[str, ...] = ()
    goals: tuple[MakerGoal, ...] = ()
    """Where its maker has them; what was made from it is then made from these."""
    problem: str = ""
    """Why it is none: what a model answered could not be read."""

    @property
    def key(self) -> str:
        """What tells it from others: its environment, its words and where it starts."""
        name = f"{self.environment}|{self.instruction}|{canonical(self.initial)}"
        return hashlib.sha256(name.encode()).hexdigest()[:12]

    @property
    def template(self) -> str:
        """The name of its task."""
        return f"{self.maker.rpartition(':')[2].lower()}-{self.key}"

    @property
    def task_id(self) -> str:
        """The id of its task."""
        return f"{self.environment}/{self.template}"


class TaskMaker(ABC, Generic[Options]):
    """Proposes tasks.

    Args:
        name: as the config names it.
        options: its own section, `synthesis.options.<name>`.
    """

    version: ClassVar[str] = "1"
    """Of its rule."""
    section: ClassVar[type[Section]] = Section
    """What the options must be."""
    needs_site: ClassVar[bool] = True
    """Whether it makes tasks of linked pages alone."""

    def __init__(self, name: str, options: Options) -> None:
        self.name, self.options = name, options

    @abstractmethod
    def propose(self, material: MakerInputs, chance: random.Random) -> Iterator[ProposedTask]:
        """Proposals, as many as are asked for; an iterator that ends has no more. The same chance, the same ones."""

    def require(self) -> None:
        """Raises FlywheelError if what it needs is not to be had."""
        return


MAKERS: Registry[TaskMaker[Any]] = Registry(
    "synthesis.makers",
    TaskMaker,
    {
        "compose": "curation.synthesis.compose:Compose",
        "vary": "curation.synthesis.vary:Vary",
        "harden": "curation.synthesis.harden:Harden",
        "obfuscate": "curation.synthesis.obfuscate:Obfuscate",
        "chain": "curation.synthesis.chain:Chain",
        "endpoint": "curation.synthesis.endpoint:EndpointMaker",
    },
)


def maker_of(name: str, given: Mapping[str, Any]) -> TaskMaker[Any]:
    """The maker of this name or dotted path with its options; raises UsageError."""
    kind = MAKERS.class_of(name)
    return kind(name, options_of(kind.section, given, f"synthesis.options.{name}"))


def drawn(parents: Sequence[Parent], chance: random.Random) -> Parent:
    """One of them; a task that fails and sometimes succeeds is drawn most (successes are what can be built on)."""
    weights = [1.0 + 4.0 * one.failures / max(1, one.failures + one.successes) for one in parents]
    return chance.choices(list(parents), weights)[0]
