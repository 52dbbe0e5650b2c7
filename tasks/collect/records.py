"""Write finished trajectories into the lake, and remove incomplete trajectories of killed processes."""

from collections.abc import Collection, Iterable

from curation.pictures import difference_hash
from rollout.trajectory import FinishedTrajectory
from schemas.observation import Observation
from schemas.tables.screenshot import Screenshot
from schemas.tables.verdict import Verdict
from storage.filters import quoted
from storage.lake import Lake


def write(lake: Lake, records: Iterable[FinishedTrajectory], verdicts: Iterable[Verdict] = ()) -> None:
    """Write finished trajectories: first the pictures, then steps and verdicts, last the rows of the trajectories."""
    records = list(records)
    iteration = records[0].trajectory.iteration
    pictures = {digest: picture for record in records for digest, picture in record.screenshots.items()}
    lake.append("screenshots", [_screenshot(iteration, digest, picture) for digest, picture in pictures.items()])
    lake.append("steps", [step for record in records for step in record.steps])
    lake.append("verdicts", [*(record.verdict for record in records if record.verdict), *verdicts])
    lake.append("trajectories", [record.trajectory for record in records])


def drop_unfinished(lake: Lake, iteration: int, among: Collection[str] | None = None) -> int:
    """Delete steps and verdicts that have no trajectory, and return the number of incomplete trajectories.

    Args:
        lake: the lake.
        iteration: iteration of the rows.
        among: ids of trajectories to check, if other processes write other trajectories meanwhile; all if not given.
    """
    steps = lake.read("steps", ["trajectory_id"], {"iteration": iteration})["trajectory_id"].to_pylist()
    done = set(lake.read("trajectories", ["trajectory_id"], {"iteration": iteration})["trajectory_id"].to_pylist())
    orphans = sorted((set(steps) - done) if among is None else (set(steps) & set(among)) - done)
    if orphans:
        for table in ("steps", "verdicts"):
            lake.delete(table, f"iteration = {iteration} AND trajectory_id IN ({quoted(orphans)})")
    return len(orphans)


def _screenshot(iteration: int, digest: str, seen: Observation) -> Screenshot:
    phash = difference_hash(seen.png)
    return Screenshot(
        sha256=digest, iteration=iteration, png=seen.png, width=seen.width, height=seen.height, phash=phash
    )
