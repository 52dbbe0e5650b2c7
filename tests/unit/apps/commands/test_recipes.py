"""The profiles for GPUs: each is read, planned, and begins from a checkpoint folder with one command."""

import json
import math
import re
from pathlib import Path

import pytest

from learning.algorithms.method import method_of
from learning.engines.choice import check_training
from learning.engines.optimizer import learning_rate
from models.random_vlm import build_random
from schemas.config import load_config
from schemas.config.profiles import config_file
from schemas.failure import FlywheelError
from tasks.preflight.preflight import require
from tests.command import Call
from tests.unit.learning.engines.fsdp.test_census import SEVEN

GPUS = {"gpu": "1x80", "node": "8x80", "cluster": "2x8x80"}


@pytest.mark.parametrize("name", GPUS)
def test_a_profile_for_gpus_fits_on_them_with_seven_billion_weights(flywheel: Call, tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SEVEN))
    status, out, err = flywheel("plan", "--config", name, "--model", str(tmp_path), "--gpus", GPUS[name], "--json")
    assert status == 0, out + err
    plan = json.loads(out)
    assert plan["fits"] and plan["knobs"]["train.token_cap=8192"] == "as asked for"
    assert (plan["trained"] < 1e9) == (name == "gpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("method", ["sft", "grpo", "ppo"])
def test_a_profile_for_gpus_begins_from_a_checkpoint_folder_with_one_command(
    flywheel: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, method: str
) -> None:
    build_random("qwen2_5_vl", ["Click on the target."] * 8, 0, tmp_path / "base")
    text = config_file(name).read_text()
    for section in ("lake", "cluster"):  # S3 and Ray, which are not here
        text = re.sub(rf"^\[{section}\]\n(?:[^\[\n].*\n)*", "", text, flags=re.MULTILINE)
    (tmp_path / "own.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    words = ["run", "--config", "own.toml", f"policy.base={tmp_path / 'base'}", f"train.method={method}", "--dry-run"]
    status, out, err = flywheel(*words)
    assert status == 0, err
    assert method in out + err


WRONG = {
    "adapters on layers that no model has": (["train.lora.rank=4", 'train.lora.targets=["nope_proj"]'], "lora.targets"),
    "rows of ranks that do not divide them": (["train.replicas=3", "train.processes=4"], "`train.replicas` is 3"),
    "a server that is none": (["policy.server.url=localhost:8000"], "not a web address"),
    "updates that nobody knows": (["policy.server.command=true {port}", "policy.server.update=vlm"], "no 'vlm'"),
    "a server without log probabilities": (
        ["policy.server.url=http://localhost:8000/v1", "train.method=grpo"],
        "policy.server.logprobs",
    ),
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
def test_a_plan_of_a_run_refuses_what_training_or_acting_would_refuse(
    flywheel: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[list[str], str]
) -> None:
    given, said = words
    build_random("qwen2_5_vl", ["Click on the target."] * 8, 0, tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    status, out, err = flywheel("run", f"policy.base={tmp_path / 'base'}", *given, "--dry-run")
    assert status != 0 and said in " ".join((out + err).split())


@pytest.mark.parametrize("key", ["train.device", "policy.device"])
def test_a_run_on_a_gpu_that_is_not_there_is_refused_before_anything_is_spent(tmp_path: Path, key: str) -> None:
    build_random("qwen2_5_vl", ["Click on the target."] * 8, 0, tmp_path / "base")
    config = load_config(None, [f"policy.base={tmp_path / 'base'}", f"{key}=cuda", f"lake.uri={tmp_path / 'lake'}"])
    with pytest.raises(FlywheelError, match=key):
        require(config)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(("name", "rates"), [("gpu", (1e-4, 1e-5, 1e-5)), ("node", (2e-5, 1e-7, 1e-6))])
def test_the_rates_and_schedules_of_the_recipes_are_what_they_say(
    tmp_path: Path, name: str, rates: tuple[float, float, float]
) -> None:
    build_random("qwen2_5_vl", ["Click on the target."] * 8, 0, tmp_path / "base")
    train = load_config(name, [], {}).train
    for method, rate in zip(("sft", "grpo", "ppo"), rates, strict=True):
        chosen = train.model_copy(update={"method": method})
        assert check_training(chosen, str(tmp_path / "base")) == rate
    made = method_of(train).schedule(train, 1000, "adamw")
    taken = [learning_rate(step, made.steps, made.learning_rate, made.train) for step in range(made.steps)]
    assert taken.index(max(taken)) == made.steps // 10 - 1 and taken[-1] == pytest.approx(made.learning_rate / 10)
    middle = taken[made.steps // 10 - 1 + (made.steps - made.steps // 10) // 2]
    assert math.isclose(middle, 0.55 * made.learning_rate, rel_tol=1e-6)
    grouped = train.model_copy(update={"method": "grpo"})
    steady = method_of(grouped).schedule(grouped, 6400, "adamw").train
    assert steady.decay == 0.0 and steady.warmup == math.ceil(6400 / grouped.group.batch) // 10
