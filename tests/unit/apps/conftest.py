"""A small synthetic lake: three iterations, two finished, with everything that status, lineage and report read."""

import atexit
import hashlib
import io
import json
import random
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from schemas.config import Config, config_of
from schemas.tables.policy import MEASURES
from schemas.tables.stage import STAGES
from storage.lake import Lake
from storage.schema_marker import NAME

TASKS = ("click-target", "two-steps", "enter-text")
START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
SUCCESS = {-1: 0.0, 0: 0.5, 1: 0.75}
EXPLORER = 0.25


@dataclass(frozen=True)
class Place:
    """A lake, its config, and the config's file."""

    lake: Lake
    config: Config
    file: Path


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("apps")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLYWHEEL_HOME", str(folder / "home"))
        yield make_place(folder)


def make_place(folder: Path) -> Place:
    """Returns a lake of its own: a copy of the one that is made once."""
    made = _made()
    shutil.copytree(made.lake.uri, folder / "lake")
    mark = json.loads((folder / "lake" / NAME).read_text())
    (folder / "lake" / NAME).write_text(json.dumps(mark | {"lake_id": uuid.uuid4().hex[:12]}))
    config = _config(folder)
    file = folder / "config.toml"
    file.write_text(made.file.read_text().replace(made.lake.uri, str(folder / "lake")))
    lake = Lake.open(config.lake)
    rows = lake.read("policies").to_pylist()
    lake.upsert("policies", [{**row, "config": config.canonical()} for row in rows])
    return Place(lake, config, file)


@cache
def _made() -> Place:
    home = tempfile.TemporaryDirectory(prefix="flywheel-place-")
    atexit.register(home.cleanup)
    return _make(Path(home.name))


def _config(folder: Path) -> Config:
    return config_of(
        {
            "name": "synthetic",
            "lake": {"uri": str(folder / "lake"), "min_free_mb": 1},
            "environments": {"fake": {}},
            "suite": {"tasks": TASKS[:2], "held_out": TASKS[2:]},
        }
    )


def _make(folder: Path) -> Place:
    config = _config(folder)
    file = folder / "config.toml"
    file.write_text(
        f'name = "synthetic"\n[lake]\nuri = "{folder / "lake"}"\nmin_free_mb = 1\n[environments.fake]\n'
        f'[suite]\ntasks = ["{TASKS[0]}", "{TASKS[1]}"]\nheld_out = ["{TASKS[2]}"]\n'
    )
    lake = Lake.open(config.lake)
    _policy(lake, config, folder, -1)
    _evaluations(lake, "explorer-1", -1, EXPLORER)
    _stages(lake, -1, {"prepare": {}})
    for iteration in (0, 1):
        _collect(lake, iteration)
        _policy(lake, config, folder, iteration)
        _stages(lake, iteration, {stage: {"say": stage, "orchestration_s": 0.25} for stage in STAGES})
    _collect(lake, 2)
    _stages(lake, 2, {"curriculum": {}})
    return Place(lake, config, file)


def _policy(lake: Lake, config: Config, folder: Path, iteration: int) -> None:
    version = "policy-initial" if iteration < 0 else f"policy-{iteration:04d}"
    parents = {-1: None, 0: "policy-initial", 1: "policy-0000"}
    model = folder / version
    model.mkdir()
    (model / "config.json").write_text("{}")
    row: dict[str, Any] = {
        "policy_version": version,
        "kind": "initial" if iteration < 0 else "iteration",
        "parent": parents[iteration],
        "iteration": iteration,
        "method": "random" if iteration < 0 else "sft",
        "checkpoint": lake.blobs.put_directory(model, f"checkpoints/{version}"),
        "data_versions": json.dumps(lake.versions() if iteration >= 0 else {}),
        "config": config.canonical(),
        "code": "0123456789abcdef",
        "seed": 0,
        "metrics": "{}",
        "status": "champion" if iteration == 1 else "retired",
        "created_at": START + timedelta(minutes=iteration),
    }
    lake.append("policies", [row])
    lake.append("training_steps", [_training_step(version, iteration, step) for step in (10, 20, 30)])
    _evaluations(lake, version, iteration, SUCCESS[iteration])


def _evaluations(lake: Lake, version: str, iteration: int, rate: float) -> None:
    rows = [
        {
            "policy_version": version,
            "suite": "held_out" if task == TASKS[2] else "suite",
            "task_id": f"fake/{task}",
            "seed": 1_000_000 + number,
            "iteration": iteration,
            "success": number < 8 * rate,
            "reward": float(number < 8 * rate),
            "n_steps": 1,
            "failure_boundary": None,
        }
        for task in TASKS
        for number in range(8)
    ]
    lake.append("evaluations", rows)
    kept = [_kept(row) for row in rows if not row["success"] or row["seed"] % 2]
    png = _png()
    digest = hashlib.sha256(png).hexdigest()
    lake.append("evaluation_screenshots", [{"sha256": digest, "iteration": iteration, "picture": png}])
    lake.append("evaluation_steps", [_step(row, png) for row in kept])
    lake.append("evaluation_trajectories", kept)


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the trajectory that an evaluation keeps."""
    version = row["policy_version"]
    name = hashlib.sha256(f"{version}{row['task_id']}{row['seed']}".encode()).hexdigest()[:24]
    same = ("policy_version", "suite", "task_id", "seed", "iteration", "success", "reward", "n_steps")
    return {
        **{field: row[field] for field in (*same, "failure_boundary")},
        "trajectory_id": name,
        "run_id": "run",
        "split": "validation",
        "attempt": 0,
        "policy": "explorer" if version.startswith("explorer") else "policy",
        "instruction": f"Click the button of seed {row['seed']}.",
        "termination": "done",
        "sampling": "{}",
        "started_at": START,
        "wall_s": 0.5,
    }


def _training_step(version: str, iteration: int, step: int) -> dict[str, Any]:
    unknown = dict.fromkeys(name for name in MEASURES if name not in ("loss", "entropy"))
    known = {"policy_version": version, "iteration": iteration, "step": step, "loss": 1 / step, "entropy": 0.5}
    return {
        **unknown,
        **known,
        "other": json.dumps({"margin": 0.1}),
        "written_at": START + timedelta(minutes=iteration),
    }


def _collect(lake: Lake, iteration: int) -> None:
    random.seed(iteration)
    trajectories = [(task, kind, seed) for task in TASKS[:2] for kind in ("explorer", "policy") for seed in range(6)]
    rows = [_trajectory(iteration, *trajectory) for trajectory in trajectories]
    png = _png()
    lake.append("screenshots", [_screenshot(iteration, png)])
    lake.append("steps", [_step(row, png) for row in rows])
    lake.append("trajectories", rows)
    lake.append("verdicts", [_verdict(row) for row in rows])
    lake.append("curriculum", [_choice(iteration, task) for task in TASKS[:2]])
    lake.append("quality", [_quality(iteration, name) for name in ("unique", "not null", "between")])


def _trajectory(iteration: int, task: str, kind: str, seed: int) -> dict[str, Any]:
    name = hashlib.sha256(f"{iteration}{task}{kind}{seed}".encode()).hexdigest()[:24]
    died = seed == 5
    won = None if died else seed < (4 if kind == "policy" else 2)
    return {
        "trajectory_id": name,
        "iteration": iteration,
        "run_id": "run",
        "task_id": f"fake/{task}",
        "seed": seed,
        "split": "train",
        "attempt": 0,
        "policy": kind,
        "policy_version": kind,
        "instruction": f'Click the "<b>{task}</b>" button.',
        "n_steps": 1,
        "reward": None if won is None else float(won),
        "success": won,
        "termination": "failure" if died else "done",
        "failure_boundary": "sandbox" if died else None,
        "failure_reason": "the box died" if died else None,
        "sampling": "{}",
        "started_at": START,
        "wall_s": 0.5,
    }


def _step(row: dict[str, Any], png: bytes) -> dict[str, Any]:
    action = '{"type":"click","x":0.5,"y":0.25}'
    return {
        "trajectory_id": row["trajectory_id"],
        "step": 0,
        "iteration": row["iteration"],
        "screenshot": hashlib.sha256(png).hexdigest(),
        "next_screenshot": None,
        "screen_width": 160,
        "screen_height": 210,
        "thought": "The button is <i>there</i>.",
        "actions": [action],
        "action_type": "click",
        "x": 0.5,
        "y": 0.25,
        "dialect": "box_v1",
        "raw_text": "Thought: there\nAction: click",
        "action_error": None,
        "actor": row["policy"],
        "policy_version": row["policy_version"],
        "token_ids": None,
        "logprobs": None,
        "elements": "[]",
        "observe_ms": 1.0,
        "think_ms": 1.0,
        "act_ms": 1.0,
    }


def _verdict(row: dict[str, Any]) -> dict[str, Any]:
    route = {True: "sft", False: "ct", None: "none"}[row["success"]]
    return {
        "trajectory_id": row["trajectory_id"],
        "gate": "route",
        "gate_version": "1",
        "iteration": row["iteration"],
        "passed": bool(row["success"]),
        "score": None,
        "error_step": None,
        "reason": f"the verifier says {row['success']}",
        "route": route,
        "created_at": START,
    }


def _choice(iteration: int, task: str) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "task_id": f"fake/{task}",
        "weight": 0.5,
        "explorer_trajectories": 6,
        "policy_trajectories": 6,
        "relay_trajectories": 0,
        "pool": "learnable",
        "successes": 3.0,
        "failures": 3.0,
        "reason": f"learnable: half of {task} succeeds",
    }


def _quality(iteration: int, name: str) -> dict[str, Any]:
    bad = iteration == 1 and name == "between"
    return {
        "iteration": iteration,
        "table": "trajectories",
        "expectation": name,
        "severity": "warning" if bad else "critical",
        "success": not bad,
        "observed": "",
        "unexpected": int(bad),
        "examples": '["abc"]' if bad else "[]",
        "error": None,
        "because": "a trajectory of many minutes points at a stuck sandbox",
    }


def _stages(lake: Lake, iteration: int, results: dict[str, dict[str, Any]]) -> None:
    row = {"iteration": iteration, "run_id": "run", "started_at": START, "wall_s": 2.0}
    lake.append("stages", [{**row, "stage": stage, "result": json.dumps(one)} for stage, one in results.items()])


def _screenshot(iteration: int, png: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(png).hexdigest()
    return {"sha256": digest, "iteration": iteration, "png": png, "width": 160, "height": 210, "phash": "0" * 16}


def _png() -> bytes:
    image = Image.new("RGB", (160, 210), "white")
    ImageDraw.Draw(image).rectangle((60, 40, 100, 64), fill="steelblue")
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
