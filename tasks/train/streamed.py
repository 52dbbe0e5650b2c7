"""What a training that went on while collecting came to, as the collect stage keeps it for the train stage."""

from pydantic import BaseModel, ConfigDict

from schemas.metrics import Metrics


class Streamed(BaseModel):
    """Beside these fields it has whatever metrics there are."""

    model_config = ConfigDict(frozen=True, extra="allow")

    updates: int
    checkpoint: str
    """Its address in the lake; empty if nothing could be learnt."""
    say: str

    @property
    def metrics(self) -> Metrics:
        """What is kept with the policy."""
        return self.model_dump(exclude={"checkpoint", "say"})
