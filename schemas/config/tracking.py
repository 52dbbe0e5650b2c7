"""The `tracking` section of the config: who receives how a training goes, besides the lake."""

from typing import Any

from pydantic import model_validator

from schemas.config.section import Section
from schemas.registry import seam


class TrackingConfig(Section):
    """Trackers of trainings; the lake has the same numbers always, in the table `training_steps` (docs/tracking.md)."""

    trackers: tuple[str, ...] = ()
    """`tensorboard`, `wandb`, `mlflow` (an extra of the same name each), or `my_package.my_tracker:MyTracker`. Keys and
    passwords come from the environment."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Each tracker's own keys, under its name: `tracking.options.wandb.project`."""

    @model_validator(mode="after")
    def _of_their_trackers(self) -> "TrackingConfig":
        if self.model_fields_set:
            seam("learning.tracking.tracker:TRACKERS").options(self.trackers, self.options)
        return self
