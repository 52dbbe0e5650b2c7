"""What several verbs ask of a lake that is already there."""

from typing import Any

from schemas.config import Config
from schemas.tables.stage import STAGES
from storage.lake import Lake
from tasks.shared.status import iterations


def open_lake(config: Config) -> Lake:
    """The config's lake; raises LakeError where there is none."""
    return Lake.open(config.lake, create=False)


def begun_iterations(lake: Lake) -> list[dict[str, Any]]:
    """The iterations begun so far, oldest first, without the preparation."""
    return [row for row in iterations(lake) if row["iteration"] >= 0]


def is_finished(row: dict[str, Any]) -> bool:
    """Whether an iteration's last stage is recorded."""
    return STAGES[-1] in row["stages_s"]
