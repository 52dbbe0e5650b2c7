"""A lake in a temporary folder, and rows with few words."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from schemas.config.sections import LakeConfig
from storage.lake import Lake

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEFAULTS: dict[str, dict[str, Any]] = {
    "trajectories": {
        "trajectory_id": "t0", "iteration": 1, "run_id": "r", "task_id": "miniwob/a", "seed": 1, "split": "train",
        "attempt": 0, "policy": "policy", "policy_version": "p1", "instruction": "Click.", "n_steps": 1, "reward": 1.0,
        "success": True, "termination": "done", "sampling": "{}", "started_at": NOON, "wall_s": 0.5,
    },
    "steps": {
        "trajectory_id": "t0", "step": 0, "iteration": 1, "screenshot": "a" * 64, "next_screenshot": None,
        "screen_width": 160, "screen_height": 210, "thought": "", "actions": [], "action_type": None, "x": 0.5,
        "y": 0.5, "dialect": "box_v1", "raw_text": "", "action_error": None, "actor": "policy", "policy_version": "p1",
        "token_ids": None, "logprobs": None, "elements": "[]", "observe_ms": 1.0, "think_ms": 1.0, "act_ms": 1.0,
    },
    "screenshots": {
        "sha256": "a" * 64, "iteration": 1, "png": b"png", "width": 160, "height": 210, "phash": "0" * 16,
    },
    "verdicts": {
        "trajectory_id": "t0", "gate": "route", "gate_version": "1", "iteration": 1, "passed": True, "score": None,
        "error_step": None, "reason": "ok", "route": "sft", "created_at": NOON,
    },
    "pairs": {
        "pair_id": "p0", "trajectory_id": "t0", "step": 0, "iteration": 1, "task_id": "miniwob/a", "seed": 1,
        "kind": "parting", "chosen": "yes", "rejected": "no", "rejected_trajectory_id": "t1", "verified": True,
    },
    "teacher_scores": {
        "trajectory_id": "t0", "step": 0, "request": "a" * 64, "iteration": 1, "teacher": "big", "logprobs": [-0.5],
        "created_at": NOON,
    },
    "annotations": {
        "annotation_id": "a0", "trajectory_id": "t0", "step": 0, "iteration": 1, "kind": "grounding", "author": "page",
        "thought": "ok", "action": '{"type":"click","x":0.25,"y":0.75}', "before": None, "after": None,
        "created_at": NOON,
    },
    "recordings": {
        "recording_id": "c0", "trajectory_id": "t0", "iteration": 1, "source": "", "source_sha256": None, "license": "",
        "width": 160, "height": 210, "rate": 10.0, "seconds": 20.0, "frames": ["a" * 64], "times": [0.0],
        "step_times": [],
    },
    "reviews": {
        "review_id": "r0", "trajectory_id": "t0", "revision": 0, "iteration": 1, "step": 0, "person": "ada",
        "decision": "accept", "action": None, "thought": None, "original_action": None, "original_thought": None,
        "note": "", "seconds": 1.0, "undoes": None, "created_at": NOON,
    },
    "evaluations": {
        "policy_version": "p1", "suite": "suite", "task_id": "miniwob/a", "seed": 1_000_000, "iteration": 1,
        "success": True, "reward": 1.0, "n_steps": 1, "failure_boundary": None,
    },
    "policies": {
        "policy_version": "p1", "kind": "iteration", "parent": None, "iteration": 1, "method": "sft", "checkpoint": "x",
        "data_versions": "{}", "config": "{}", "code": "0", "seed": 0, "metrics": "{}", "status": "champion",
        "created_at": NOON,
    },
    "pages": {
        "page_id": "p0", "step": 0, "split": "train", "layout": "form", "theme": "plain", "font": "FreeSans",
        "font_px": 11, "widgets": ["buttons"], "width": 160, "height": 210, "sha256": "a" * 64, "elements": "[]",
        "states": "{}", "lines": "[]", "instruction": "Press “Oak”.", "action": "", "target": -1, "change": "",
        "reward": 1.0, "generator": "pages-1",
    },
    "stages": {
        "iteration": 1, "stage": "collect", "run_id": "r", "started_at": NOON, "wall_s": 2.0, "result": "{}",
    },
}  # fmt: skip

Rows = Callable[..., dict[str, Any]]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(LakeConfig(uri=str(tmp_path / "lake")))


@pytest.fixture(scope="session")
def row() -> Rows:
    """A row of a table, with some fields changed."""
    return lambda table, **changes: {**DEFAULTS[table], **changes}
