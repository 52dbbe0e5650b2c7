"""The training stage: any model directory through the same stage, and a killed trainer that goes on."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from apps.commands.forgetting import forget_trajectories
from apps.commands.lineage import lineage_of
from flows.flywheel import flywheel
from models.policy import Context
from models.random_vlm import build_random
from models.serving.local import TransformersModel
from schemas.config import Config
from schemas.config.training import TrainConfig
from schemas.failure import FlywheelError
from schemas.observation import Observation
from schemas.table import utc_now
from storage.lake import Lake
from tasks.launching.launchers import LAUNCHERS, LocalLauncher
from tasks.shared.material import PolicyRecipe
from tasks.shared.paths import work_folder
from tasks.shared.policies import policy_row
from tasks.shared.weights import checkpoint_folder, load_policy
from tasks.train import train
from tasks.train.train import PINNED, pins_of, read_for, train_from
from tests.flows.conftest import Turned
from tests.processes import running
from tests.unit.learning.samples import HEIGHT, WIDTH, screen


@pytest.mark.nightly  # methods/test_family_flow.py always has one
def test_a_model_of_another_architecture_is_rolled_out_trained_and_rolled_out_again(
    small: Config, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    build_random("qwen2_5_vl", ["Click on the target."] * 8, 0, base)
    policy = small.policy.model_copy(update={"base": str(base), "max_new_tokens": 3})
    train = TrainConfig(steps=2, batch=4, processes=2, warmup=1, learning_rate=1e-3)
    flywheel(small.model_copy(update={"policy": policy, "train": train}), iterations=1)
    lake = Lake.open(small.lake)
    row = policy_row(lake, "policy-0000")
    assert row.method == "sft" and json.loads(row.metrics)["loss"] > 0
    folder = checkpoint_folder(lake, "policy-0000")
    assert (folder / "model.safetensors").read_bytes() != (base / "model.safetensors").read_bytes()
    assert (folder / "config.json").read_bytes() == (base / "config.json").read_bytes()
    trained = load_policy(small.model_copy(update={"policy": policy}), lake, "policy-0000")
    assert isinstance(trained.model, TransformersModel)
    (reply,) = trained.act([Context("Click it.", (), Observation(screen(0)[0], WIDTH, HEIGHT, ""), 0)])
    assert reply.token_ids
    assert lake.count("evaluations", {"policy_version": "policy-0000"})


@pytest.mark.nightly  # tests/system/training/test_resume.py kills trainings, too, and always runs
def test_a_killed_trainer_goes_on_where_its_last_checkpoint_is(turned: Turned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAUNCHERS, "local", LocalLauncher)
    small = turned(1)
    lake = Lake.open(small.lake)
    pins = {table: version for table, version in lake.versions().items() if table in PINNED}
    longer = small.train.model_copy(update={"steps_first": 60, "checkpoint_every": 5, "restarts": 0})
    config = small.model_copy(update={"train": longer})
    recipe = PolicyRecipe("again", "policy-initial", 0, pins)
    folder = work_folder(lake, "again")

    def kill() -> None:
        while not list(folder.glob("checkpoint.steps/*/step*/*.json")):
            time.sleep(0.05)
        for process in running("learning.trainer", psutil.Process().children(recursive=True)):
            process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(FlywheelError, match="died"):
        train_from(config, lake, recipe)
    killer.join()
    metrics = train_from(config, lake, recipe)
    assert metrics.numbers["resumed_at"] >= 5
    steps = lake.read("training_steps", where={"policy_version": "again"}).to_pylist()
    assert sorted(row["step"] for row in steps) == list(range(10, 61, 10))
    assert all(row["grad_norm"] > 0 and row["entropy"] > 0 and row["reply_tokens"] > 0 for row in steps)
    assert not folder.exists()
    assert policy_row(lake, "again").status == "candidate"


@pytest.mark.slow
def test_no_policy_is_made_of_what_was_forgotten_while_it_was_trained(
    turned: Turned, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = turned(1)
    lake, trained = Lake.open(small.lake), train._run
    recipe = PolicyRecipe("late", "policy-initial", 0, pins_of(lake))
    name = min(read_for(small, lake, recipe))

    def forgotten_meanwhile(*arguments: Any) -> dict[str, Any]:
        metrics = trained(*arguments)
        forget_trajectories(Lake.open(small.lake), [name], "asked for")
        return metrics

    monkeypatch.setattr(train, "_run", forgotten_meanwhile)
    with pytest.raises(FlywheelError, match=rf"1 trajectory that this training reads .*{name} .*no policy is made"):
        train_from(small, lake, recipe)
    assert not lake.count("policies", {"policy_version": "late"}) and not list(work_folder(lake, "late").iterdir())
    assert not lake.blobs.store.sizes("checkpoints/late")
    monkeypatch.setattr(train, "_run", trained)
    train_from(small, lake, recipe)
    assert name not in lineage_of(lake, "late").trajectories


def test_nothing_is_trained_on_what_a_forgetting_that_was_cut_short_left(turned: Turned) -> None:
    small = turned(1)
    lake = Lake.open(small.lake)
    recipe = PolicyRecipe("late", "policy-initial", 0, pins_of(lake))
    name = min(read_for(small, lake, recipe))
    row = {"reason": "x", "policies": [], "screenshots": [], "done": False, "created_at": utc_now()}
    lake.append("forgotten", [{"trajectory_id": name, **row}])
    with pytest.raises(FlywheelError, match=rf"`flywheel forget {name}` end"):
        train_from(small, lake, recipe)
    assert not lake.count("policies", {"policy_version": "late"})
