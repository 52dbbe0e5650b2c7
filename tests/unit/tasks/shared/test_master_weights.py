"""The fp32 weights beside policies: of the last ones and the champion, and never taken from who reads them."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from models.tiny.layout import TRAINING
from schemas.config import config_of
from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tasks.shared.weights import checkpoint_folder, sweep_master_weights

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
READ = "import sys; from schemas.config.sections import LakeConfig; from storage.lake import Lake; "
READ += "from tasks.shared.weights import checkpoint_folder; "
READ += "print(checkpoint_folder(Lake.open(LakeConfig(uri=sys.argv[1])), sys.argv[2], True), flush=True); "
READ += "sys.stdin.read()"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Five policies with fp32 weights, the second of them champion."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    for number in range(5):
        policy(lake, tmp_path / "made", number)
    return lake


def policy(lake: Lake, folder: Path, number: int) -> None:
    version, shard = f"policy-{number:04d}", folder / TRAINING / "step-00000008" / "rank-0.bin"
    shard.parent.mkdir(parents=True, exist_ok=True)
    shard.write_bytes(bytes(100))
    (folder / "model.safetensors").write_bytes(bytes([number]))
    row: dict[str, Any] = {
        "policy_version": version, "kind": "iteration", "parent": None, "iteration": number, "method": "sft",
        "checkpoint": lake.blobs.put_directory(folder, f"checkpoints/{version}"), "data_versions": "{}",
        "config": config_of({"suite": {"tasks": ["click-test"]}}).canonical(), "code": "0", "seed": 0,
        "metrics": json.dumps({}), "status": "champion" if number == 1 else "rejected",
        "created_at": NOON + timedelta(minutes=number),
    }  # fmt: skip
    lake.append("policies", [row])


def having(lake: Lake) -> list[int]:
    """The policies whose fp32 weights lie in the lake."""
    names = lake.blobs.store.sizes("checkpoints")
    return sorted(int(name.split("/")[1][-4:]) for name in names if f"/{TRAINING}/" in name)


def reader(lake: Lake, version: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that trains from a policy until its standard input ends, and the folder that it got."""
    command = [sys.executable, "-c", READ, lake.uri, version]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_last_policies_and_the_champion_keep_them_and_the_others_stay_whole_without(lake: Lake) -> None:
    sweep_master_weights(lake, 2)
    assert having(lake) == [1, 3, 4]
    for number in (0, 2):
        folder = checkpoint_folder(lake, f"policy-{number:04d}", to_train=True)
        assert (folder / "model.safetensors").read_bytes() == bytes([number]) and not (folder / TRAINING).exists()
    assert (checkpoint_folder(lake, "policy-0003", to_train=True) / TRAINING).is_dir()
    sweep_master_weights(lake, 0)
    assert having(lake) == [1]


def test_what_a_living_process_trains_from_stays_until_it_ended_and_who_comes_later_does_without(lake: Lake) -> None:
    process, folder = reader(lake, "policy-0000")
    try:
        sweep_master_weights(lake, 2)
        assert having(lake) == [0, 1, 3, 4] and (folder / TRAINING).is_dir()
        late = checkpoint_folder(lake, "policy-0000", to_train=True)
        assert (late / "model.safetensors").read_bytes() == b"\0" and not (late / TRAINING).exists()
    finally:
        process.kill()
        process.communicate()
    sweep_master_weights(lake, 2)
    assert having(lake) == [1, 3, 4] and not lake.blobs.store.sizes("readers")


def test_a_sweep_that_was_killed_on_the_way_is_ended_by_the_next(lake: Lake) -> None:
    assert not lake.blobs.drop("checkpoints/policy-0000", TRAINING, lambda: True)
    assert not (checkpoint_folder(lake, "policy-0000", to_train=True) / TRAINING).exists()
    sweep_master_weights(lake, 2)
    assert having(lake) == [1, 3, 4]
