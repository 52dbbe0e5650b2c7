"""The seam to who writes rewards: checks on the final state, from a task's words and the world's schema alone.

A reward maker is never shown the initial or the golden state (CUA-Gym's information barrier, arXiv 2605.25624): what it
understands otherwise than the state maker meant it shows in the scores, and the task is turned away.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from schemas.config.section import Section
from schemas.registry import Registry, options_of
from schemas.world import FieldCheck, World

Options = TypeVar("Options", bound=Section)


class Unreadable(Exception):
    """The words say nothing that can be checked, or fit several things; says why."""


class RewardMaker(ABC, Generic[Options]):
    """Writes rewards.

    Args:
        name: as the config names it.
        options: its own section, `synthesis.options.reward`.
    """

    version: ClassVar[str] = "1"
    section: ClassVar[type[Section]] = Section

    def __init__(self, name: str, options: Options) -> None:
        self.name, self.options = name, options

    @abstractmethod
    def checks(self, instruction: str, world: World) -> tuple[FieldCheck, ...]:
        """The reward of a task with this instruction; raises Unreadable."""

    def require(self) -> None:
        """Raises FlywheelError if what it needs is not to be had."""
        return


REWARDS: Registry[RewardMaker[Any]] = Registry(
    "synthesis.reward",
    RewardMaker,
    {
        "reader": "curation.synthesis.reader:SentenceReader",
        "endpoint": "curation.synthesis.endpoint:EndpointReward",
    },
)


def reward_maker_of(name: str, given: Mapping[str, Any]) -> RewardMaker[Any]:
    """The reward maker of this name or dotted path with its options; raises UsageError."""
    kind = REWARDS.class_of(name)
    return kind(name, options_of(kind.section, given, "synthesis.options.reward"))
