"""Prefect as a user runs it, a small suite on the fake sandbox, a lake of its own for every test, trainers that begin
in no time."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from prefect.testing.utilities import prefect_test_harness

from flows.flywheel import flywheel
from schemas.config import Config, config_of
from schemas.tables.quality import QualityResult
from storage.lake import Lake
from storage.quality.gate import run_gate

Turned = Callable[[int], Config]
CHECKED = ("trajectories", "annotations", "pairs")
"""The tables that the quality gate looks at in these tests."""


@pytest.fixture(scope="session", autouse=True)
def prefect_server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture(scope="module", autouse=True)
def all_forked(forked: None) -> None:
    """Trainers begin by a fork."""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    return wheel(tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def lake_after(tmp_path_factory: pytest.TempPathFactory, prefect_server: None) -> Callable[[int], Path]:
    """The lake of `wheel` after so many iterations, turned once."""

    @cache
    def of(iterations: int) -> Path:
        folder = tmp_path_factory.mktemp(f"turned-{iterations}")
        with pytest.MonkeyPatch.context() as patch:
            if iterations:
                shutil.copytree(of(iterations - 1), folder / "lake")
            flywheel(wheel(folder, patch), iterations=min(iterations, 1))
        return folder / "lake"

    return of


@pytest.fixture
def turned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake_after: Callable[[int], Path]) -> Turned:
    """`small` over a copy of the lake that has turned so many iterations."""

    def of(iterations: int) -> Config:
        shutil.copytree(lake_after(iterations), tmp_path / "lake")
        return wheel(tmp_path, monkeypatch)

    return of


def few_checks(lake: Lake, iteration: int, tables: Iterable[str], *more: Any) -> list[QualityResult]:
    """The gate on a few tables."""
    return run_gate(lake, iteration, [name for name in tables if name in CHECKED], *more)


def wheel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A wheel that turns in seconds: two fake tasks, a handful of trajectories, a handful of optimiser steps, checks of
    a few tables, and no Data Docs: the tests of the quality gate and of commands have all of them."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(folder / "home"))
    monkeypatch.setattr("tasks.quality.docs_folder", lambda *_: None)
    monkeypatch.setattr("tasks.quality.run_gate", few_checks)
    return config_of(
        {
            "name": "small",
            "iterations": 2,
            "lake": {"uri": str(folder / "lake"), "min_free_mb": 10},
            "environments": {"fake": {"sandboxes": 4}},
            "suite": {"tasks": ["click-target", "two-steps"], "held_out": []},
            "curriculum": {"hopeless_share": 1.0},  # eight trajectories leave no room for smaller shares
            "collect": {"trajectories_per_task": 8, "policy_share": 0.25, "relay_share": 0.25, "chunk": 4},
            "policy": {"max_new_tokens": 8},
            "train": {"steps_first": 4, "steps": 4, "batch": 4, "processes": 1, "warmup": 1},
            "evaluate": {"seeds": 3, "held_out_seeds": 0, "explorer_seeds": 3},
            "promote": {"unparsable": 1},  # nobody learns to write in four steps
        }
    )
