"""Check that a training can read the trajectories of an iteration, whatever their routes will be."""

import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from learning.data.sample import read_samples, write_sample_batches
from schemas.failure import FlywheelError, UsageError
from schemas.tables.stage import label_of
from storage.catalog import stream
from storage.lake import Lake
from tasks.shared.material import write_pictures


def require_readable(lake: Lake, iteration: int) -> None:
    """Read every step of an iteration as a sample of supervised training, with its picture.

    Raises:
        UsageError: training cannot read a step, or one of its pictures is missing or another's.
    """
    steps = lake.read("steps", ["trajectory_id", "step"], {"iteration": iteration})
    if not steps.num_rows:
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            _read(lake, steps.sort_by([("trajectory_id", "ascending"), ("step", "ascending")]), Path(folder))
        except (FlywheelError, duckdb.Error, pa.ArrowException) as error:
            problem = error.problem if isinstance(error, FlywheelError) else str(error).splitlines()[0]
            hint = error.hint if isinstance(error, FlywheelError) else ""
            raise UsageError(
                f"No override helps {label_of(iteration)}, because training cannot read it: {problem}",
                hint or "Correct these rows, or delete their trajectories with `flywheel forget`.",
            ) from error


def _read(lake: Lake, steps: pa.Table, folder: Path) -> None:
    """Read steps, sorted by trajectory and number, as samples with the steps before them."""
    ways = list[list[int]]()
    last = ""
    for row in steps.to_pylist():
        ways.append([*ways[-1], row["step"]] if row["trajectory_id"] == last else [row["step"]])
        last = row["trajectory_id"]
    numbers = list(range(len(ways)))
    drawn = pa.table(
        {
            "sample": pa.array(numbers),
            "trajectory_id": steps["trajectory_id"],
            "way": pa.array(ways, pa.list_(pa.int32())),
            "grounding": pa.array([False] * len(ways)),
            "corrected": pa.array([False] * len(ways)),
            "weight": pa.array([1.0] * len(ways)),
            "positions": pa.array([[number] for number in numbers], pa.list_(pa.int64())),
            "shown": pa.array([1] * len(ways), pa.int64()),
        }
    )
    pq.write_table(drawn, folder / "drawn.parquet")
    path = folder / "samples"
    with stream(lake, "training_samples", drawn=str(folder / "drawn.parquet"), thoughts=True, without=0.0) as batches:
        shown = write_sample_batches(path, batches)
    found = {position for row in read_samples(path).table["positions"].to_pylist() for position in row}
    if lost := sorted({steps["trajectory_id"][number].as_py() for number in numbers if number not in found}):
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise FlywheelError(f"steps of {lost[0]}{more} belong to no row of `trajectories`.")
    write_pictures(folder / "pictures", lake, shown, None)
