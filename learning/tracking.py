"""Defines trackers, which record trainings outside of the lake: TensorBoard, Weights & Biases, MLflow, or a custom one.

A tracker only receives measures. It runs in a separate thread of the stage that reads the trainer's messages
(`tasks.train.recorded`). So a tracker that fails or hangs does not affect the training.

TensorBoard gets event files in a folder for each training (`tensorboard --logdir FOLDER`). MLflow gets one run for each
training, on a server or in a local file. Weights & Biases gets one run for each training, online or as files to
synchronise later.
"""

import logging
import netrc
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar
from urllib.parse import urlsplit

from common.process import home
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
        "tensorboard": "learning.tracking:TensorBoard",
        "wandb": "learning.tracking:WandB",
        "mlflow": "learning.tracking:MLflow",
    },
)
"""Trackers by name."""


class TensorBoardOptions(Section):
    """`[tracking.options.tensorboard]`."""

    folder: str = ""
    """Folder of event files, LAKE/POLICY below it; `tensorboard` in the work folder if not set."""


class TensorBoard(Tracker[TensorBoardOptions]):
    """Writes event files; a resumed start writes another file, which makes TensorBoard drop the steps made again."""

    section = TensorBoardOptions
    packages = {"tensorboard": "flywheel[tensorboard]"}  # noqa: RUF012

    def start(self, resumed: int) -> None:
        """Opens a file."""
        from torch.utils.tensorboard import SummaryWriter

        top = Path(self.options.folder) if self.options.folder else home() / "tensorboard"
        folder = top / self.training.lake / self.training.policy
        self._writer = SummaryWriter(str(folder), purge_step=resumed + 1)

    def log(self, points: Sequence[Point]) -> None:
        """Writes a scalar for each measure."""
        for point in points:
            for name, value in point.measures.items():
                self._writer.add_scalar(f"train/{name}", value, point.step, point.at)
        self._writer.flush()

    def finish(self, whole: bool) -> None:
        """Closes the file."""
        self._writer.close()


TAG = "flywheel.training"
MOST = 1000
"""Maximum metrics of one request, the limit of MLflow's server."""


class MLflowOptions(Section):
    """`[tracking.options.mlflow]`; user and password, or a token, come from MLFLOW_TRACKING_USERNAME and
    MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."""

    uri: str = ""
    """A server (`http://HOST:5000`) or a file (`sqlite:///PATH`); if not set MLFLOW_TRACKING_URI, else `mlflow.db` in
    the work folder."""
    experiment: str = "flywheel"
    """Name of the experiment that the runs belong to."""


class MLflow(Tracker[MLflowOptions]):
    """Writes to MLflow; a resumed start finds its run by a tag and continues it."""

    section = MLflowOptions
    packages = {"mlflow": "flywheel[mlflow]"}  # noqa: RUF012

    @classmethod
    def require(cls, options: Any) -> None:
        """Checks that the package is installed, and that MLflow supports the address."""
        super().require(options)
        kind = options.uri.partition(":")[0] if ":" in options.uri else "file"
        if options.uri and kind == "file" and not os.environ.get("MLFLOW_ALLOW_FILE_STORE"):
            raise FlywheelError(
                f"`tracking.options.mlflow.uri` is {options.uri}, and MLflow begins no folders of runs any more.",
                "Set it to sqlite:///PATH/mlflow.db, or to a server.",
            )

    def start(self, resumed: int) -> None:
        """Finds or makes the training's run."""
        mlflow: Any = import_module("mlflow")
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        uri = self.options.uri or os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            home().mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{home() / 'mlflow.db'}"
        self._client = mlflow.MlflowClient(uri)
        found = self._client.get_experiment_by_name(self.options.experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(self.options.experiment)
        runs = self._client.search_runs([experiment], f"tags.`{TAG}` = '{self.training.id}'", max_results=1)
        if runs:
            self._run = runs[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
        else:
            self._run = self._begun(experiment)

    def _begun(self, experiment: str) -> str:
        training = self.training
        tags = {TAG: training.id, "flywheel.lake": training.lake, "flywheel.iteration": str(training.iteration)}
        run = self._client.create_run(experiment, tags=tags, run_name=training.policy).info.run_id
        for name, value in _flat(training.config.get("train", {})):
            self._client.log_param(run, f"train.{name}", value)
        for name in ("policy", "parent", "method"):
            self._client.log_param(run, name, getattr(training, name))
        return run

    def log(self, points: Sequence[Point]) -> None:
        """Sends a value for each measure and step."""
        entities: Any = import_module("mlflow.entities")
        values = [
            entities.Metric(name, value, int(point.at * 1000), point.step)
            for point in points
            for name, value in point.measures.items()
        ]
        for start in range(0, len(values), MOST):
            self._client.log_batch(self._run, metrics=values[start : start + MOST])

    def finish(self, whole: bool) -> None:
        """Ends the run."""
        self._client.set_terminated(self._run, "FINISHED" if whole else "FAILED")


def _flat(section: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted keys of a section with their values."""
    for name, value in section.items():
        yield from _flat(value, f"{before}{name}.") if isinstance(value, dict) else [(f"{before}{name}", value)]


SERVER = "https://api.wandb.ai"


class WandBOptions(Section):
    """`[tracking.options.wandb]`; the key comes from WANDB_API_KEY or `wandb login`, another server from
    WANDB_BASE_URL."""

    project: str = "flywheel"
    """Name of the project that the runs belong to."""
    entity: str | None = None
    """User or team; the key's own if not set."""
    mode: Literal["online", "offline"] = "online"
    """`offline`: no network; `wandb sync` sends the files later."""
    folder: str = ""
    """Folder of its files; `wandb` in the work folder if not set."""


class WandB(Tracker[WandBOptions]):
    """Writes to Weights & Biases; a resumed start has the same run id and continues its run."""

    section = WandBOptions
    packages = {"wandb": "flywheel[wandb]"}  # noqa: RUF012

    @classmethod
    def require(cls, options: Any) -> None:
        """Checks that the package is installed and, for the mode `online`, that there is a key."""
        super().require(options)
        if options.mode == "online" and not _has_key():
            raise FlywheelError(
                "`tracking.trackers`: wandb has no key.",
                "Set WANDB_API_KEY or run `wandb login`; or set `tracking.options.wandb.mode=offline`.",
            )

    def start(self, resumed: int) -> None:
        """Starts or resumes the run with this training's id."""
        wandb: Any = import_module("wandb")
        options, training = self.options, self.training
        folder = Path(options.folder) if options.folder else home() / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=options.project,
            entity=options.entity,
            mode=options.mode,
            dir=str(folder),
            id=training.id,
            name=training.policy,
            group=training.lake,
            job_type=training.method,
            config=dict(training.config),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
            ),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, points: Sequence[Point]) -> None:
        """Sends a row for each point; the step is a column, since a run's own steps cannot decrease."""
        for point in points:
            self._run.log({"step": point.step, **point.measures})

    def finish(self, whole: bool) -> None:
        """Ends the run."""
        self._run.finish(exit_code=0 if whole else 1)


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", SERVER)).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
