"""A training job: all that a trainer process is given, as one JSON file, kept beside the checkpoint it makes."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.config.sections import PolicyConfig
from schemas.config.training import TrainConfig
from schemas.failure import UsageError

MESSAGES = "FLYWHEEL_MESSAGES"
"""Variable with the file descriptor that messages go to; inherited from the process that started this one."""
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
    policy: PolicyConfig = PolicyConfig()
    train: TrainConfig = TrainConfig()


def read_job(path: Path) -> Job:
    """The job of a file; raises `UsageError` that names the field."""
    try:
        return Job.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error}.") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {error}.") from error
