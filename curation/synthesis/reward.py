"""Defines reward makers, which write checks of the final state from only a task's words and the world's schema.

A reward maker never sees the initial or the golden state (CUA-Gym's information barrier, arXiv 2605.25624). If it
understands the words differently from the state maker, the scores differ, and the task is rejected.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from schemas.config.section import Section
from schemas.registry import Registry, options_of
from schemas.world import FieldCheck, World

Options = TypeVar("Options", bound=Section)


class Unreadable(Exception):
    """Raised if the words contain nothing to check, or fit several entities; the message has the reason."""


class RewardMaker(ABC, Generic[Options]):
    """Writes rewards.

    Args:
        name: name in the config.
        options: the maker's own section, `synthesis.options.reward`.
    """

    version: ClassVar[str] = "1"
    section: ClassVar[type[Section]] = Section

    def __init__(self, name: str, options: Options) -> None:
        self.name, self.options = name, options

    @abstractmethod
    def checks(self, instruction: str, world: World) -> tuple[FieldCheck, ...]:
        """Return the reward of a task with this instruction; raises Unreadable."""

    def require(self) -> None:
        """Raise FlywheelError if a requirement is missing."""
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
    """Return the reward maker of this name or dotted path with its options; raises UsageError."""
    kind = REWARDS.class_of(name)
    return kind(name, options_of(kind.section, given, "synthesis.options.reward"))
