"""Write finished trajectories into the lake, and remove rows that a kill before their last row left behind."""

from collections.abc import Collection, Iterable

from curation.pictures import difference_hash
from rollout.trajectory import FinishedTrajectory
from schemas.observation import Observation
from schemas.tables.screenshot import Screenshot
from schemas.tables.verdict import Verdict
from storage.lake import Lake


def write(lake: Lake, records: Iterable[FinishedTrajectory], verdicts: Iterable[Verdict] = ()) -> None:
    """Write finished trajectories: pictures first, then steps and verdicts, then the rows of the trajectories."""
    records = list(records)
    iteration = records[0].trajectory.iteration
    pictures = {digest: picture for record in records for digest, picture in record.screenshots.items()}
    lake.append("screenshots", [_screenshot(iteration, digest, picture) for digest, picture in pictures.items()])
    lake.append("steps", [step for record in records for step in record.steps])
    lake.append("verdicts", [*(record.verdict for record in records if record.verdict), *verdicts])
    lake.append("trajectories", [record.trajectory for record in records])


def drop_unfinished(lake: Lake, iteration: int, among: Collection[str] | None = None) -> int:
    """Delete steps and verdicts without a trajectory, which a killed process left; return the number of trajectories.

    Args:
        lake: the lake.
        iteration: their iteration.
        among: only those of these trajectories, where others are written at the same time.
    """
    steps = lake.read("steps", ["trajectory_id"], {"iteration": iteration})["trajectory_id"].to_pylist()
    done = set(lake.read("trajectories", ["trajectory_id"], {"iteration": iteration})["trajectory_id"].to_pylist())
    orphans = sorted((set(steps) - done) if among is None else (set(steps) & set(among)) - done)
    if orphans:
        names = ", ".join(f"'{name}'" for name in orphans)
        for table in ("steps", "verdicts"):
            lake.delete(table, f"iteration = {iteration} AND trajectory_id IN ({names})")
    return len(orphans)


def _screenshot(iteration: int, digest: str, seen: Observation) -> Screenshot:
    phash = difference_hash(seen.png)
    return Screenshot(
        sha256=digest, iteration=iteration, png=seen.png, width=seen.width, height=seen.height, phash=phash
    )
