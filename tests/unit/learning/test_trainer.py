"""The trainer: it learns, two processes are one, a checkpoint is whole or not there, and NaN is an error."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from learning.data.sample import TrainSample, read_samples, read_screenshots, write_samples
from learning.engines.tiny.batches import Batcher, outputs_of
from learning.job import PARENT, Job, read_job, steps_folder
from learning.learner import Learner
from learning.trainer import train
from models.policy import Context
from models.safe import INDEX
from models.tiny.generator import read_tokenizer
from models.tiny.network import TinyNet
from models.vlm import VlmPolicy
from schemas.action import Click, from_json
from schemas.failure import CheckpointError, FlywheelError, UsageError
from schemas.observation import Observation
from tests.system.parts.trainings import trained
from tests.unit.learning.samples import HEIGHT, POLICY, TRAIN, WIDTH, job, parent, samples


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    parent(tmp_path)
    return tmp_path


def started(job: Job, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "job.json").write_text(job.model_dump_json())
    command = [sys.executable, "-m", "learning.trainer", str(folder / "job.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


@pytest.mark.slow
def test_a_trainer_whose_starter_is_gone_ends_and_writes_nothing(folder: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    plan = job(folder, steps=100_000)
    assert started(plan, folder, **{PARENT: str(gone.pid)}).returncode == 1
    assert not plan.out.exists()


@pytest.mark.slow
def test_a_handful_of_samples_is_learnt_by_heart(folder: Path) -> None:
    plan = job(folder, count=4, steps=150, shift=0)
    train(plan)
    policy = VlmPolicy(plan.out, POLICY)
    made, pngs = samples(4)
    contexts = [Context(s.instruction, (), Observation(pngs[s.screenshots[0]], WIDTH, HEIGHT, ""), 0) for s in made]
    for sample, reply in zip(made, policy.act(contexts), strict=True):
        target = from_json(sample.actions[0])
        assert isinstance(reply.first, Click) and isinstance(target, Click), reply.text
        assert abs(reply.first.x - target.x) < 0.1 and abs(reply.first.y - target.y) < 0.1


def test_the_trained_checkpoint_differs_from_its_parent_and_knows_its_job(folder: Path) -> None:
    plan = job(folder, steps=2)
    train(plan)
    before, after = (load_file(path / "model.safetensors") for path in (plan.parent, plan.out))
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert read_job(plan.out / "job.json") == plan
    assert sorted(path.name for path in plan.out.iterdir()) == sorted(
        {*(path.name for path in plan.parent.iterdir()), "job.json", "trained.json", "training", INDEX}
    )


@pytest.mark.parametrize(
    ("base", "asked", "frozen"),
    [("tiny", None, False), ("tiny", True, True), ("pretrained", None, True), ("pretrained", False, False)],
)
def test_the_vision_tower_of_a_base_or_of_a_frozen_policy_keeps_its_bytes_and_the_text_stack_learns(
    folder: Path, base: str, asked: bool | None, frozen: bool
) -> None:
    plan = job(folder, steps=2)
    memory = plan.train.memory.model_copy(update={"freeze_vision": asked})
    policy = plan.policy.model_copy(update={"base": base})
    plan = plan.model_copy(
        update={"policy": policy, "train": plan.train.model_copy(update={"memory": memory, "weight_decay": 0.5})}
    )
    train(plan)
    before, after = (load_file(path / "model.safetensors") for path in (plan.parent, plan.out))
    same = {name: torch.equal(before[name], after[name]) for name in before}
    assert all(kept for name, kept in same.items() if ".visual." in name) == frozen
    assert not any(kept for name, kept in same.items() if name.endswith("_proj.weight") and ".visual." not in name)


def test_plain_transformers_loads_what_was_trained_with_the_same_logits(folder: Path) -> None:
    from transformers import AutoModelForImageTextToText

    plan = job(folder, steps=2)
    train(plan)
    stock = AutoModelForImageTextToText.from_pretrained(plan.out, dtype=torch.float32)
    ids = torch.arange(300, 316)[None]
    net = TinyNet.load(plan.out, torch.float32)
    mask = torch.full((16, 16), -1e9).triu(1)[None, None]
    hidden = net.read(net.embed(ids), torch.arange(16).expand(3, 1, 16), mask)
    assert torch.allclose(net.logits(hidden), stock(input_ids=ids).logits, atol=1e-4)


def test_the_parts_of_two_processes_add_up_to_the_gradient_of_one(folder: Path) -> None:
    plan = job(folder, count=8)
    net = TinyNet.load(plan.parent, torch.float32)
    made = read_samples(plan.samples)
    maker = Batcher(read_tokenizer(plan.parent), net, read_screenshots(plan.screenshots), POLICY, TRAIN)

    def gradient(members: range) -> torch.Tensor:
        flat = net.gradients()
        (batch,) = maker.batches([made[index] for index in members], [(0, index) for index in members])
        outputs = outputs_of(net, batch)
        (outputs.logprobs * outputs.weights).sum().backward()
        return flat

    whole, parts = gradient(range(8)), gradient(range(0, 8, 2)) + gradient(range(1, 8, 2))
    assert torch.allclose(whole, parts, rtol=1e-2, atol=1e-2 * float(whole.abs().max()))


@pytest.mark.slow
def test_two_processes_train_the_checkpoint_that_one_trains(folder: Path, forked: None) -> None:
    alone = job(folder, steps=2)
    train(alone)
    both = alone.model_copy(update={"out": folder / "both", "train": alone.train.model_copy(update={"processes": 2})})
    output, messages = trained(both)
    assert output.checkpoint == str(both.out) and messages[-2].step == 2
    one, two = (load_file(path / "model.safetensors") for path in (alone.out, both.out))
    start = load_file(alone.parent / "model.safetensors")
    moved = sum(float((one[name] - start[name]).float().abs().sum()) for name in one)
    apart = sum(float((one[name] - two[name]).float().abs().sum()) for name in one)
    assert apart < 0.1 * moved


def test_a_loss_that_is_no_number_stops_with_a_word_and_leaves_nothing(folder: Path, forked: None) -> None:
    plan = job(folder, steps=8).model_copy(update={"learning_rate": 1e30})
    with pytest.raises(FlywheelError, match="learning_rate"):
        trained(plan)
    assert [path.name for path in folder.glob("out*")] == ["out-work"]


def test_no_samples_is_an_error_before_anything_is_spent(folder: Path) -> None:
    plan = job(folder)
    write_samples(plan.samples, [])
    with pytest.raises(FlywheelError, match="weights"):
        train(plan)


def test_samples_of_weight_zero_are_never_drawn(folder: Path) -> None:
    plan = job(folder, steps=1)
    made, _ = samples(4)
    write_samples(plan.samples, [*made, TrainSample("t", ("no such picture",), "?", weight=0.0)])
    train(plan)
    assert plan.out.exists()


def test_a_checkpoint_that_is_there_is_not_overwritten(folder: Path) -> None:
    plan = job(folder)
    plan.out.mkdir()
    with pytest.raises(CheckpointError, match="already there"):
        train(plan)


def test_a_job_with_a_field_that_does_not_exist_names_it(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"lerning_rate": 1}')
    with pytest.raises(UsageError, match="lerning_rate"):
        read_job(tmp_path / "job.json")


def test_a_damaged_checkpoint_is_set_aside_and_the_training_goes_on_from_the_one_before(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = job(folder, steps=4, checkpoint_every=1)
    train(plan)
    whole = load_file(plan.out / "model.safetensors")
    shutil.rmtree(plan.out)
    (shard,) = steps_folder(plan).glob("step-00000003/*.distcp")
    shard.write_bytes(shard.read_bytes()[:-1])
    capsys.readouterr()
    train(plan)
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert messages[0]["damaged"] == 3 and str(shard) in messages[0]["problem"]
    assert (Path(messages[0]["aside"]) / shard.name).exists() and messages[1] == {"resumed": 2, "steps": 4}
    again = load_file(plan.out / "model.safetensors")
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize(
    "full", [OSError(errno.ENOSPC, "full"), SafetensorError("No space left on device (os error 28)")]
)
def test_a_full_disk_is_one_error_with_the_folder_and_the_same_training_ends_later(
    full: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = job(folder, steps=2)

    def refuse(*_: object) -> None:
        raise full

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "write", refuse)
        with pytest.raises(CheckpointError, match=f"{plan.out.parent}: the disk is full") as raised:
            train(plan)
    assert "FLYWHEEL_HOME" in raised.value.hint and not plan.out.exists()
    train(plan)
    assert plan.out.is_dir()
