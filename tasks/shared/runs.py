"""Find the runs of a lake. A run is one `flywheel run`, or one import, with the iterations that it worked on."""

from dataclasses import dataclass
from datetime import datetime

from storage.catalog import answers
from storage.lake import Lake
from tasks.shared.trajectories import SHORT_ID


@dataclass(frozen=True, slots=True)
class LakeRun:
    """A run, and the iterations whose newest stage it recorded, oldest first."""

    run_id: str
    iterations: list[int]
    """Numbers of the iterations; -1 is the preparation, and imports are below."""
    started_at: datetime
    """Start of its first stage, in UTC."""


def runs_of(lake: Lake) -> list[LakeRun]:
    """Return the runs of a lake, oldest first."""
    return answers(lake, LakeRun, "runs")


def run_named(lake: Lake, name: str) -> LakeRun | None:
    """Return a run by its id, or by at least `SHORT_ID` characters that no other run's id begins with; None if there is
    no such run."""
    rows = runs_of(lake)
    found = [row for row in rows if row.run_id == name] or [
        row for row in rows if len(name) >= SHORT_ID and row.run_id.startswith(name)
    ]
    return found[0] if len(found) == 1 else None
