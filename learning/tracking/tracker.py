"""The seam to what follows a training from outside the lake: TensorBoard, Weights & Biases, MLflow, or yours.

A tracker receives; it decides nothing. It runs in a thread of its own beside the stage that hears the trainer
(`learning.tracking.feed`), so one that fails or hangs costs the training nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, Generic, TypeVar

from schemas.config.section import Section
from schemas.failure import FlywheelError
from schemas.registry import Registry

Options = TypeVar("Options", bound=Section)


@dataclass(frozen=True, slots=True)
class Training:
    """One training, however often it is started."""

    lake: str
    """The lake's id."""
    policy: str
    """The version that it makes."""
    parent: str
    iteration: int
    method: str
    config: Mapping[str, Any]
    """The resolved config, which holds no credentials."""

    @property
    def id(self) -> str:
        """No other training of any lake has it; a start that goes on has the same."""
        return f"{self.lake}-{self.policy}"


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one step."""

    step: int
    measures: Mapping[str, float]
    """By the names of the columns of `training_steps`, and a method's own."""
    at: float
    """Seconds since 1970."""


class Tracker(ABC, Generic[Options]):
    """Follows one training; all methods are called from one thread, `start` first and `finish` last.

    Args:
        options: its own section, `tracking.options.<name>`.
        training: what it follows.
    """

    section: ClassVar[type[Section]] = Section
    """What the options must be; a tracker with options of its own names theirs."""
    packages: ClassVar[Mapping[str, str]] = {}
    """Modules that it needs, and what to install for each, as pip takes it."""

    def __init__(self, options: Options, training: Training) -> None:
        self.options, self.training = options, training

    @classmethod
    def require(cls, options: Any) -> None:
        """Looks whether it could run with these options; asks no server.

        Raises:
            FlywheelError: a package or a key is missing; says what to do.
        """
        missing = [what for module, what in cls.packages.items() if find_spec(module) is None]
        if missing:
            raise FlywheelError(
                f"`tracking.trackers`: {cls.__name__} needs a package that is not installed.",
                f"pip install '{missing[0]}'; or leave it out of `tracking.trackers`.",
            )

    @abstractmethod
    def start(self, resumed: int) -> None:
        """Begins the run, or goes on with the one that an earlier start of this training began.

        Args:
            resumed: how many steps are kept of earlier starts; what is there of later ones is made again.
        """

    @abstractmethod
    def log(self, points: Sequence[Point]) -> None:
        """Hands points over, in the order of their steps."""

    @abstractmethod
    def finish(self, whole: bool) -> None:
        """Ends the run; `whole` says whether the training came to its end."""


TRACKERS: Registry[Tracker[Any]] = Registry(
    "tracking.trackers",
    Tracker,
    {
        "tensorboard": "learning.tracking.tensorboard:TensorBoard",
        "wandb": "learning.tracking.wandb:WandB",
        "mlflow": "learning.tracking.mlflow:MLflow",
    },
)
"""Trackers by name."""
