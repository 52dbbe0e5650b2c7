"""Define results of trainings, and of streamed trainings, which the stage `collect` stores for the stage `train`."""

from pydantic import BaseModel, ConfigDict

from schemas.table import Metrics
from schemas.tables.stage import PlainResult


class Streamed(BaseModel):
    """Result of a streamed training. Further fields are metrics."""

    model_config = ConfigDict(frozen=True, extra="allow")

    updates: int
    checkpoint: str
    """Address of the checkpoint in the lake; empty if nothing could be learned."""
    say: str

    @property
    def metrics(self) -> Metrics:
        """Return the metrics to store with the policy."""
        return self.model_dump(exclude={"checkpoint", "say"})


class TrainResult(PlainResult):
    """Result of a training, with the metrics of its method and its trainer."""

    policy: str | None = None
    """Version of the registered policy; None if nothing was trained."""
