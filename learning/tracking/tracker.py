"""Defines trackers, which record trainings outside of the lake: TensorBoard, Weights & Biases, MLflow, or a custom one.

A tracker only receives measures. It runs in a separate thread of the stage that reads the trainer's messages
(`tasks.train.recorded`). So a tracker that fails or hangs does not affect the training.
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
    """A training, over all of its starts."""

    lake: str
    """The lake's id."""
    policy: str
    """Version of the new policy."""
    parent: str
    iteration: int
    method: str
    config: Mapping[str, Any]
    """The resolved config, which has no credentials."""

    @property
    def id(self) -> str:
        """Returns the id, unique among the trainings of all lakes; a resumed start has the same id."""
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
    """Records one training; all methods are called from one thread, `start` first and `finish` last.

    Args:
        options: the tracker's own section, `tracking.options.<name>`.
        training: the training to record.
    """

    section: ClassVar[type[Section]] = Section
    """Section of the options; a tracker with own options names their section."""
    packages: ClassVar[Mapping[str, str]] = {}
    """Required modules, each with the name of its pip package."""

    def __init__(self, options: Options, training: Training) -> None:
        self.options, self.training = options, training

    @classmethod
    def require(cls, options: Any) -> None:
        """Checks whether the tracker can run with these options, without contacting a server.

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
        """Starts the run, or resumes the run of an earlier start of this training.

        Args:
            resumed: number of steps that are kept from earlier starts; later points are sent again.
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
