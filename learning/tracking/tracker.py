"""Trackers, which follow a training from outside the lake: TensorBoard, Weights & Biases, MLflow, or yours.

A tracker receives; it decides nothing. It runs in a thread of its own within the stage that reads the trainer's
messages (`tasks.train.recorded`), so one that fails or hangs costs the training nothing.
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
    """Version of the policy that it makes."""
    parent: str
    iteration: int
    method: str
    config: Mapping[str, Any]
    """The resolved config, which holds no credentials."""

    @property
    def id(self) -> str:
        """Returns the id, unique among the trainings of all lakes; a resumed start has the same."""
        return f"{self.lake}-{self.policy}"


@dataclass(frozen=True, slots=True)
class Point:
    """Measures of one step."""

    step: int
    measures: Mapping[str, float]
    """Measures by the names of the columns of `training_steps`, and a method's own."""
    at: float
    """Time in seconds since 1970."""


class Tracker(ABC, Generic[Options]):
    """Follows one training; all methods are called from one thread, `start` first and `finish` last.

    Args:
        options: its own section, `tracking.options.<name>`.
        training: the training to follow.
    """

    section: ClassVar[type[Section]] = Section
    """Section of the options; a tracker with options of its own names theirs."""
    packages: ClassVar[Mapping[str, str]] = {}
    """Required modules, each with the package to install, as pip takes it."""

    def __init__(self, options: Options, training: Training) -> None:
        self.options, self.training = options, training

    @classmethod
    def require(cls, options: Any) -> None:
        """Checks whether it could run with these options, without a server.

        Raises:
            FlywheelError: a package or a key is missing; the hint names the fix.
        """
        missing = [what for module, what in cls.packages.items() if find_spec(module) is None]
        if missing:
            raise FlywheelError(
                f"`tracking.trackers`: {cls.__name__} needs a package that is not installed.",
                f"pip install '{missing[0]}'; or leave it out of `tracking.trackers`.",
            )

    @abstractmethod
    def start(self, resumed: int) -> None:
        """Starts the run, or resumes the one that an earlier start of this training began.

        Args:
            resumed: how many steps are kept of earlier starts; later points are made again.
        """

    @abstractmethod
    def log(self, points: Sequence[Point]) -> None:
        """Receives points, in the order of their steps."""

    @abstractmethod
    def finish(self, whole: bool) -> None:
        """Ends the run; `whole` is True if the training finished."""


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
