"""Results of a training, and of one during collection, which the collect stage stores for the train stage."""

from pydantic import BaseModel, ConfigDict

from schemas.table import Metrics
from schemas.tables.stage import PlainResult


class Streamed(BaseModel):
    """Streamed training's result; further fields are metrics."""

    model_config = ConfigDict(frozen=True, extra="allow")

    updates: int
    checkpoint: str
    """Its address in the lake; empty if nothing could be learned."""
    say: str

    @property
    def metrics(self) -> Metrics:
        """Return the metrics to store with the policy."""
        return self.model_dump(exclude={"checkpoint", "say"})


class TrainResult(PlainResult):
    """Result of a training, with the metrics of its method and its trainer."""

    policy: str | None = None
    """The registered version; None if nothing was trained."""
