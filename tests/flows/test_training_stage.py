"""The training stage: any model directory through the same stage, and a killed trainer that goes on."""

import json
import threading
import time
from pathlib import Path

import psutil
import pytest

from flows.flywheel import flywheel
from models.policy import Context
from models.random_vlm import build_random
from models.serving.local import TransformersModel
from schemas.config import Config
from schemas.config.training import TrainConfig
from schemas.failure import FlywheelError
from schemas.observation import Observation
from storage.lake import Lake
from tasks.shared.material import Recipe
from tasks.shared.paths import work_folder
from tasks.shared.policies import policy_row
from tasks.shared.weights import checkpoint_folder, load_policy
from tasks.train.train import PINNED, train_from
from tests.flows.conftest import Turned
from tests.unit.learning.samples import HEIGHT, WIDTH, screen


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


def test_a_killed_trainer_goes_on_where_its_last_checkpoint_is(turned: Turned) -> None:
    small = turned(1)
    lake = Lake.open(small.lake)
    pins = {table: version for table, version in lake.versions().items() if table in PINNED}
    longer = small.train.model_copy(update={"steps_first": 100, "checkpoint_every": 5})
    config = small.model_copy(update={"train": longer})
    recipe = Recipe("again", "policy-initial", 0, pins)
    folder = work_folder(lake, "again")

    def kill() -> None:
        while not list(folder.glob("checkpoint.steps/*/step*/*.json")):
            time.sleep(0.05)
        for process in psutil.Process().children(recursive=True):
            if "learning.trainer" in process.cmdline():
                process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(FlywheelError, match="died"):
        train_from(config, lake, recipe)
    killer.join()
    metrics = train_from(config, lake, recipe)
    assert metrics["resumed_at"] >= 5
    assert not folder.exists()
    assert policy_row(lake, "again").status == "candidate"
