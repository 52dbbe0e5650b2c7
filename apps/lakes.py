"""Share the queries of several verbs on an existing lake."""

import sys

import pyarrow.dataset as pads

from schemas.config import Config
from storage.lake import Lake
from tasks.shared.status import IterationStatus, iterations

SHORT = 8
"""Characters of an id that pages show."""


def open_lake(config: Config) -> Lake:
    """Opens the config's lake; raises LakeError if there is none."""
    return Lake.open(config.lake, create=False)


def begun_iterations(lake: Lake) -> list[IterationStatus]:
    """The iterations begun so far, oldest first, without the preparation."""
    return [row for row in iterations(lake) if row.iteration >= 0]


def trajectories_beginning(lake: Lake, beginning: str) -> list[str]:
    """Ids of trajectories, including forgotten ones, with this beginning, in order; none for a beginning shorter than
    on pages."""
    if len(beginning) < SHORT:
        return []
    name = pads.field("trajectory_id")
    where = (name >= beginning) & (name < f"{beginning}{chr(sys.maxunicode)}")
    tables = ("trajectories", "forgotten")
    return sorted({name for table in tables for name in lake.read(table, ["trajectory_id"], where)[0].to_pylist()})
