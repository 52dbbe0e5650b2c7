"""What several verbs ask of a lake that is already there."""

from schemas.config import Config
from storage.lake import Lake
from tasks.shared.status import IterationStatus, iterations


def open_lake(config: Config) -> Lake:
    """The config's lake; raises LakeError where there is none."""
    return Lake.open(config.lake, create=False)


def begun_iterations(lake: Lake) -> list[IterationStatus]:
    """The iterations begun so far, oldest first, without the preparation."""
    return [row for row in iterations(lake) if row.iteration >= 0]
