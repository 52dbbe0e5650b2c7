"""Collecting and training side by side with a real trainer: steps know their weights, kills lose nothing finished."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from environments.catalog import catalog
from environments.pool import SandboxPool
from environments.registry import environments_of
from learning.data.stream import StreamFolder
from models.completion import Completion
from models.policy import Context, Policy
from models.random_vlm import build_random
from models.vlm import VlmPolicy
from rollout.actor import Actor
from rollout.session import roll_out
from schemas.config import Config
from schemas.config.policy import PolicyConfig
from schemas.context import ContextRule
from schemas.failure import FlywheelError
from schemas.tables.curriculum import CurriculumChoice
from storage.lake import Lake
from tasks.collect.collect import collect_trajectories
from tasks.collect.stream import newer_weights
from tasks.running.run import run_of
from tasks.shared.material import PolicyRecipe
from tasks.shared.paths import work_folder
from tasks.shared.policies import made_in, policy_row
from tasks.shared.weights import checkpoint_folder
from tasks.train.groups import planned_groups
from tasks.train.train import train_policy
from tests.clicker import clicked
from tests.processes import running
from tests.system.parts import streaming
from tests.system.parts.streaming import CANDIDATE, PARENT
from tests.unit.models.test_vlm import TEXTS, screen


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return tmp_path


def stream_of(lake: Lake) -> StreamFolder:
    return StreamFolder(work_folder(lake, CANDIDATE) / "stream")


def stored(lake: Lake) -> dict[str, dict[str, Any]]:
    return {row["trajectory_id"]: row for row in lake.read("trajectories").to_pylist()}


def turn(config: Config, lake: Lake, groups: int) -> dict[str, Any]:
    """Collects so many groups and trains, stage by stage; what the train stage says."""
    choice = CurriculumChoice(
        iteration=1, task_id="fake/click-target", weight=1.0, explorer_trajectories=0, policy_trajectories=4 * groups,
        relay_trajectories=0, pool="learnable", successes=1.0, failures=1.0, reason="",
    )  # fmt: skip
    lake.append("curriculum", [choice])
    collect_trajectories.fn(config, 1)  # pyright: ignore[reportFunctionMemberAccess]
    return train_policy.fn(config, 1)  # pyright: ignore[reportFunctionMemberAccess]


def test_a_local_model_takes_published_weights_in_place_of_its_own(folder: Path) -> None:
    """As on a GPU that the trainer shares: nothing is loaded anew, and each reply names the weights that sampled it."""
    for seed in (0, 1):
        build_random("qwen3_vl", TEXTS, seed, folder / str(seed))
    policy = VlmPolicy(folder / "0", PolicyConfig(max_new_tokens=4, family="thousandths"), version=PARENT)
    stream, recipe = StreamFolder(folder / "stream"), PolicyRecipe(CANDIDATE, PARENT, 1, {})
    context = Context("Click.", (), screen(3), seed=5)

    async def replies() -> list[Completion]:
        with Actor(policy, 1.0, newer_weights(policy, recipe, stream)) as actor:
            before = await actor.act(context)
            shutil.copytree(folder / "1", stream.weights(1))
            return [before, await actor.act(context), await actor.act(context)]

    network = policy.model.model  # type: ignore[attr-defined]
    made = asyncio.run(replies())
    assert [one.version for one in made] == [PARENT, f"{CANDIDATE}+1", f"{CANDIDATE}+1"]
    fresh = VlmPolicy(folder / "1", PolicyConfig(max_new_tokens=4, family="thousandths")).act([context], 1.0)
    assert made[0].token_ids != made[1].token_ids == made[2].token_ids == fresh[0].token_ids
    assert policy.model.model is network  # type: ignore[attr-defined]


@pytest.mark.nightly
def test_batches_are_trained_on_while_others_are_rolled_out_and_every_step_names_its_weights(folder: Path) -> None:
    config = clicked(streaming.config(folder, stale=1), 0.3)
    lake = streaming.begin(config, folder)
    made = turn(config, lake, 12)
    rows = stored(lake)
    assert len(rows) == 48 and {row["policy_version"] for row in rows.values()} == {PARENT}
    versions = {row["policy_version"] for row in lake.read("steps").to_pylist()}
    assert PARENT in versions and versions - {PARENT}
    assert versions <= {PARENT, *(f"{CANDIDATE}+{updates}" for updates in range(1, made["updates"] + 1))}
    row = policy_row(lake, CANDIDATE)
    assert (row.method, row.parent, row.status) == ("grpo", PARENT, "candidate")
    assert json.loads(row.metrics) == {key: value for key, value in made.items() if key not in ("policy", "say")}
    assert made["updates"] >= 2 and made["groups"] == 12 and made["samples"] > 0 and made["tokens"] > 0
    assert made["age_max"] <= 1 and 0 <= made["sandbox_idle"] < 1 and 0 < made["trainer_idle"] < 1
    assert made["mismatch"] > 0 and made["mismatch_fresh"] > 0
    assert "age mean" in made["say"] and "sandboxes idle" in made["say"] and "left out" in made["say"]
    before, after = ((checkpoint_folder(lake, name) / "model.safetensors").read_bytes() for name in (PARENT, CANDIDATE))
    assert before != after


@pytest.mark.nightly
def test_one_reward_for_all_trains_nothing_and_there_is_no_candidate(folder: Path) -> None:
    config = clicked(streaming.config(folder), 0.0)
    lake = streaming.begin(config, folder)
    made = turn(config, lake, 3)
    assert made["samples"] == 0 and "all advantages are 0" in made["say"]
    assert made_in(lake, 1) is None and len(stored(lake)) == 12


@pytest.mark.nightly  # the trainer's death always runs
def test_a_killed_collector_goes_on_and_neither_collects_nor_trains_on_anything_finished_twice(
    folder: Path,
) -> None:
    config = streaming.config(folder)
    lake = streaming.begin(config, folder)
    command = [sys.executable, "-m", "tests.system.parts.streaming", str(folder)]
    first = subprocess.Popen(command, env={**os.environ, "FLYWHEEL_HOME": str(folder / "home")})
    stream = stream_of(lake)
    while stream.published() < 2:
        assert first.poll() is None
        time.sleep(0.05)
    (trainer,) = running("learning.trainer", psutil.Process(first.pid).children(recursive=True))
    first.kill()
    first.wait()
    trainer.wait(timeout=60)  # it ends with its collector: two never write to one place
    finished, batches = stored(lake), stream.notes()
    assert finished and not stream.ended()

    made = streaming.run(config, lake, 16)
    after = stored(lake)
    assert len(after) == 64
    assert all(after[name] == row for name, row in finished.items())
    assert stream.notes()[: len(batches)] == batches and made["resumed_at"] > 0
    trained = [group for notes in stream.notes() for group in notes["groups"]]
    assert len(trained) == len(set(trained)) == made["informative"]
    assert made["updates"] == stream.published() > len(batches)


@pytest.mark.slow
def test_a_killed_trainer_ends_the_playing_and_the_next_start_trains_on_from_its_checkpoint(folder: Path) -> None:
    config = streaming.config(folder, stale=1)
    config = config.model_copy(update={"train": config.train.model_copy(update={"restarts": 0})})
    lake = streaming.begin(config, folder)
    stream = stream_of(lake)

    def kill() -> None:
        while stream.published() < 1:
            time.sleep(0.02)
        (trainer,) = running("learning.trainer", psutil.Process().children(recursive=True))
        trainer.kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(FlywheelError, match="The trainer died"):
        streaming.run(config, lake, 16, pause_s=0.05)
    killer.join(timeout=60)
    before = stored(lake)
    assert 0 < len(before) < 64
    made = streaming.run(config, lake, 16)
    after = stored(lake)
    assert len(after) == 64 and all(after[name] == row for name, row in before.items())
    assert made["updates"] == stream.published()


@pytest.mark.nightly
def test_newer_weights_are_taken_up_in_the_middle_of_a_trajectory(folder: Path) -> None:
    config = clicked(streaming.config(folder), 0.0)
    streaming.begin(config, folder)
    asked = 0

    def policy(version: str) -> VlmPolicy:
        return VlmPolicy(folder / "parent", config.policy, version)

    def newer() -> Policy | None:
        nonlocal asked
        asked += 1
        return policy(f"{CANDIDATE}+1") if asked == 2 else None

    (one, *_) = planned_groups(run_of(config), 1, catalog(config)[0], 4, PARENT)

    async def versions() -> list[str]:
        with Actor(policy(PARENT), 1.0, newer) as actor:
            async with SandboxPool(environments_of(config)) as pool:
                finished = await roll_out(pool, one, [actor], True, ContextRule(1))
        return [step.policy_version for step in finished.steps]

    assert asyncio.run(versions()) == [PARENT, f"{CANDIDATE}+1", f"{CANDIDATE}+1"]
