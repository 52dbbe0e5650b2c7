"""A training job: all that a trainer process is given, as one JSON file, kept beside the checkpoint it makes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.config.sections import PolicyConfig
from schemas.config.training import TrainConfig
from schemas.failure import UsageError
from schemas.metrics import Metrics

KEPT = {
    "loss", "samples_per_s", "seconds", "ready_s", "waited_s", "processes", "device", "machines", "restarts",
}  # fmt: skip
"""Of all that a trainer tells, what is kept beside its method's own numbers."""
RESULT = "result"
"""Below a job's store: what the training made."""
PARENT = "FLYWHEEL_PARENT"
"""Variable with the process id of a trainer's starter, if the trainer ends with it: two must not write to one place."""


class Job(BaseModel):
    """One training from a parent checkpoint to a new one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parent: Path
    """Checkpoint directory to start from."""
    out: Path
    """Directory to make; appears only when it is whole."""
    samples: Path
    """What the method's writer wrote, `learning.data.sample.write_samples` for one."""
    screenshots: Path
    """File of `learning.data.sample.write_screenshots`."""
    steps: Annotated[int, Field(ge=1)]
    """Optimiser steps in all; with a stream the batches decide, and this is not looked at."""
    learning_rate: Annotated[float, Field(gt=0)]
    seed: int = 0
    stream: Path | None = None
    """Folder of `learning.data.stream` in which batches appear during the training, `samples` being the first one."""
    trace: Path | None = None
    """Folder where every rank notes the samples it trained on, step by step, for an audit; None for no notes."""
    store: str = ""
    """Address below which the checkpoints on the way and the result rest where the machines share no folder; then `out`
    is a folder of each machine's own."""
    policy: PolicyConfig = PolicyConfig()
    train: TrainConfig = TrainConfig()

    @property
    def profiles(self) -> Path:
        """Where the traces of `train.profile` are: beside the checkpoint."""
        return self.out.with_name("profile")


class TrainerReport(BaseModel):
    """A line that a trainer tells whoever started it (`learning.reports.send`), in which most is missing; or, folded
    together, all that it reported so far."""

    model_config = ConfigDict(frozen=True)

    waiting: str = ""
    """For whom, while another training has the GPU."""
    processes: int = 1
    device: str = "cpu"
    machines: int = 1
    gpus: Mapping[str, int] = {}
    """How many were found, by the machine's name, where there are several machines."""
    restarts: int = 0
    """How often it was started again from a checkpoint, within this run."""
    damaged: int | None = None
    """The step of a checkpoint that could not be loaded, with the problem and where it lies now."""
    problem: str = ""
    aside: str | None = None
    warning: str = ""
    resumed: int | None = None
    """The step of the checkpoint that it goes on from."""
    step: int | None = None
    steps: int = 0
    loss: float = 0.0
    samples_per_s: float = 0.0
    measures: Mapping[str, float] = {}
    """What was measured of the steps since the last report, by name (`schemas.tables.policy.TrainingStep`)."""
    published: int | None = None
    """Updates that the weights have had which actors may load."""
    checkpoint: str | None = None
    seconds: float = 0.0
    ready_s: float = 0.0
    waited_s: float = 0.0
    numbers: Mapping[str, Any] = {}
    """What the method tells of itself at the end."""
    error: str = ""

    def then(self, later: "TrainerReport") -> "TrainerReport":
        """What both tell, the later one's where they differ."""
        return self.model_copy(update={name: getattr(later, name) for name in later.model_fields_set})

    @property
    def metrics(self) -> Metrics:
        """What is kept with the policy that it trained."""
        kept = self.model_dump(include=KEPT, exclude_unset=True)
        kept |= {name: at for name, at in (("resumed_at", self.resumed), ("set_aside", self.aside)) if at is not None}
        return {**kept, **self.numbers}


def read_job(path: Path) -> Job:
    """The job of a file; raises `UsageError` that names the field."""
    try:
        return Job.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error}.") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {error}.") from error
