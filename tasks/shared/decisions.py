"""Read the valid decisions about trajectories, for the stages after the filter."""

from curation.annotation import TrajectoryRoute
from storage.catalog import ask
from storage.lake import Lake

FIELDS = ("passed", "route", "reason", "error_step", "valid_steps")


def decisions_of(lake: Lake, iteration: int) -> dict[str, TrajectoryRoute]:
    """Return the valid decisions about an iteration's trajectories, by id."""
    found = ask(lake, "decisions", iteration=iteration)
    rows = zip(*(found[name].to_pylist() for name in FIELDS), strict=True)
    return {name: TrajectoryRoute(*row) for name, row in zip(found["trajectory_id"].to_pylist(), rows, strict=True)}
