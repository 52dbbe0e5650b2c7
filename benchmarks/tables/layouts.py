"""Write the trajectories of a lake as PNG files and JSON, and count bytes and disk blocks of a step."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def loose_files(written: Path, folder: Path) -> dict[str, Any]:
    """A folder per trajectory, with a PNG file per step and JSON of the steps, as AgentLab and recorders keep them."""
    pictures = dict(zip(*(_raw(written, "screenshots")[name].to_pylist() for name in ("sha256", "png")), strict=True))
    steps: dict[str, list[dict[str, Any]]] = {}
    for row in _raw(written, "steps").to_pylist():
        steps.setdefault(row["trajectory_id"], []).append(row)
    for row in _raw(written, "trajectories").to_pylist():
        own = folder / row["trajectory_id"]
        own.mkdir(parents=True)
        (own / "trajectory.json").write_text(json.dumps(row, default=str))
        (own / "steps.json").write_text(json.dumps(steps[row["trajectory_id"]]))
        for step in steps[row["trajectory_id"]]:
            (own / f"screenshot_step_{step['step']}.png").write_bytes(pictures[step["screenshot"]])
    return _size(folder, sum(map(len, steps.values())))


def _raw(written: Path, table: str) -> pa.Table:
    return pq.read_table(written / "raw" / table)


def _size(folder: Path, steps: int) -> dict[str, Any]:
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return {
        "bytes_a_step": sum(one.st_size for one in files) / steps,
        "on_disk_a_step": sum(one.st_blocks * 512 for one in files) / steps,
        "files": len(files),
    }
