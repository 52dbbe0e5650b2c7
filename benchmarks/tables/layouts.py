"""The same trajectories in other layouts, and what a step takes there: bytes of the files, and blocks on the disk."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FRAMES_A_SECOND = 1


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


def lerobot(written: Path, folder: Path) -> dict[str, Any]:
    """LeRobotDataset v3: frames in `data/chunk-000/file-000.parquet`, episodes and tasks in `meta/`."""
    steps, shots = _raw(written, "steps"), _raw(written, "screenshots")
    rows, episodes = _raw(written, "trajectories"), dict[str, int]()
    for name in rows["trajectory_id"].to_pylist():
        episodes[name] = len(episodes)
    tasks = {text: at for at, text in enumerate(dict.fromkeys(rows["instruction"].to_pylist()))}
    task_of = dict(
        zip(rows["trajectory_id"].to_pylist(), (tasks[t] for t in rows["instruction"].to_pylist()), strict=True)
    )
    places = pc.call_function("index_in", [steps["screenshot"]], pc.SetLookupOptions(shots["sha256"]))
    pictures = shots.take(places)["png"].combine_chunks()
    names, numbers = steps["trajectory_id"].to_pylist(), steps["step"].to_pylist()
    image = pa.StructArray.from_arrays([pictures, pa.nulls(len(names), pa.string())], names=["bytes", "path"])
    data = pa.table(
        {
            "index": pa.array(range(len(names)), pa.int64()),
            "episode_index": pa.array([episodes[name] for name in names], pa.int64()),
            "frame_index": steps["step"].cast(pa.int64()),
            "timestamp": pa.array([number / FRAMES_A_SECOND for number in numbers], pa.float32()),
            "task_index": pa.array([task_of[name] for name in names], pa.int64()),
            "observation.images.screen": image,
            "observation.state": steps["elements"],
            "action": steps["action"],
            "thought": steps["thought"],
        }
    )
    _put(folder / "data/chunk-000/file-000.parquet", data)
    _put(folder / "meta/tasks.parquet", pa.table({"task_index": list(tasks.values()), "task": list(tasks)}))
    lengths = rows["n_steps"].to_pylist()
    meta = pa.table({"episode_index": list(episodes.values()), "length": lengths, "tasks": rows["instruction"]})
    _put(folder / "meta/episodes/chunk-000/file-000.parquet", meta)
    about = {"codebase_version": "v3.0", "fps": FRAMES_A_SECOND, "total_frames": len(names)}
    (folder / "meta/info.json").write_text(json.dumps(about))
    return _size(folder, len(names))


def _raw(written: Path, table: str) -> pa.Table:
    return pq.read_table(written / "raw" / table)


def _put(path: Path, rows: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)


def _size(folder: Path, steps: int) -> dict[str, Any]:
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return {
        "bytes_a_step": sum(one.st_size for one in files) / steps,
        "on_disk_a_step": sum(one.st_blocks * 512 for one in files) / steps,
        "files": len(files),
    }
