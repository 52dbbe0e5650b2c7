"""A training goes on from the fp32 weights of the one before it, not from those that were rounded to act."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from learning.checkpoint import Stretch
from learning.checkpoint.planner import Ranks
from learning.data.files import read_rollouts
from learning.data.rounds import Sampler
from learning.data.sample import read_samples
from learning.engines.engine import SampleRef
from learning.engines.fsdp.shards import whole
from learning.job import Job
from learning.launch import PATIENCE
from learning.learner import Learner
from learning.trainer import refs_of, train
from learning.writing import write_checkpoint
from models.tiny.layout import TRAINING
from schemas.config.training import LoraConfig, PpoConfig, TrainConfig
from tests.fixtures.sentences import Sentences
from tests.unit.learning import chats, replies, samples, trajectories

RATE = 1e-6
LORA = LoraConfig(rank=4, alpha=16.0, targets=("q_proj", "v_proj"))


def small(folder: Path, **train: Any) -> Job:
    samples.parent(folder)
    return samples.job(folder, **train)


def large(folder: Path, **train: Any) -> Job:
    return chats.job(folder, "qwen3_vl", **train)


def learner_of(plan: Job) -> Learner:
    return Learner(plan, read_samples(plan.samples), 0, 1)


def stepped(learner: Learner, plan: Job, steps: range) -> None:
    """Takes these steps of the job's own order of samples."""
    sampler = Sampler([sample.weight for sample in read_samples(plan.samples)], plan.seed)
    for step in steps:
        learner.step(learner.prepare(refs_of(plan, sampler, step)), RATE)


def written(learner: Learner, plan: Job, steps: int) -> Job:
    """The directory of a training that ended here, and the job that goes on from it."""
    write_checkpoint(learner, plan, Ranks(PATIENCE), steps)
    return plan.model_copy(update={"parent": plan.out, "out": plan.out.with_name("next")})


def weights(learner: Learner) -> dict[str, Tensor]:
    """The fp32 weights by name."""
    named = {name: part for name, part in learner.engine.masters().items() if name.startswith("model.")}
    flat = {name: part.flat if isinstance(part, Stretch) else part for name, part in named.items()}
    return {name: whole(tensor).detach().clone() for name, tensor in flat.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
@pytest.mark.parametrize("job", [small, large])
def test_two_trainings_of_eight_small_steps_move_what_one_of_sixteen_moves(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    plan = job(tmp_path, batch=4, keep="masters+moments")
    unbroken = learner_of(plan)
    begun = weights(unbroken)
    stepped(unbroken, plan, range(8))
    middle = weights(unbroken)
    following = written(unbroken, plan, 8)
    stepped(unbroken, plan, range(8, 16))

    second = learner_of(following)
    assert same(weights(second), middle)
    stepped(second, following, range(8, 16))
    assert same(weights(second), weights(unbroken))
    assert all(not torch.equal(begun[name], tensor) for name, tensor in weights(second).items() if tensor.ndim > 1)
    third = learner_of(written(second, following, 8))
    assert third.before == 16 and same(weights(third), weights(unbroken))
    for learner in (unbroken, second, third):
        learner.close()


@pytest.mark.parametrize(("keep", "exact"), [("masters", True), ("nothing", False)])
def test_moments_are_kept_if_wanted_and_rounded_weights_are_all_there_is_if_nothing_is_kept(
    keep: str, exact: bool, tmp_path: Path
) -> None:
    plan = small(tmp_path, batch=4, keep=keep)
    first = learner_of(plan)
    stepped(first, plan, range(4))
    second = learner_of(written(first, plan, 4))
    assert second.before == 0 and (plan.out / TRAINING).exists() == exact
    assert same(weights(second), weights(first)) == exact
    rounded = {name: tensor.bfloat16() for name, tensor in weights(first).items()}
    assert same({name: tensor.bfloat16() for name, tensor in weights(second).items()}, rounded)


@pytest.mark.parametrize("job", [small, large])
def test_who_saves_other_weights_over_a_policy_trains_from_those_and_is_warned(
    job: Callable[..., Job], tmp_path: Path, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    plan = job(tmp_path, batch=4, keep="masters+moments")
    first = learner_of(plan)
    stepped(first, plan, range(2))
    following = written(first, plan, 2)
    assert learner_of(following).before == 2
    assert "warning" not in capsys.readouterr().out
    (file,) = plan.out.glob("model*.safetensors")
    others = {name: torch.full_like(tensor, 0.5) for name, tensor in load_file(file).items()}
    save_file(others, file, metadata={"format": "pt"})
    second = learner_of(following)
    assert second.before == 0
    assert all(bool((tensor == 0.5).all()) for tensor in weights(second).values())
    (warning,) = [json.loads(line)["warning"] for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert str(plan.out) in warning
    sentence(warning)


def test_adapters_are_merged_into_what_the_next_training_takes_up(tmp_path: Path, sentence: Sentences) -> None:
    plan = large(tmp_path, batch=4, lora=LORA, keep="masters")
    first = learner_of(plan)
    begun = weights(first)
    stepped(first, plan, range(3))
    following = written(first, plan, 3)
    merged = weights(first)
    moved = {name for name in begun if not torch.equal(begun[name], merged[name])}
    assert moved and all(name.endswith(("q_proj.weight", "v_proj.weight")) for name in moved)
    for lora in (LORA, LoraConfig()):
        changed = following.train.model_copy(update={"lora": lora})
        second = learner_of(following.model_copy(update={"train": changed}))
        assert same(weights(second), merged)
        second.close()
    first.close()
    with sentence.raises(ValueError):
        TrainConfig(lora=LORA, keep="masters+moments")


def test_another_method_takes_them_up_and_a_killed_training_finds_its_steps_again(tmp_path: Path) -> None:
    plan = small(tmp_path, steps=4, batch=4, checkpoint_every=3, keep="masters+moments")
    train(plan)
    following = plan.model_copy(update={"parent": plan.out, "out": tmp_path / "next"})
    other = following.model_copy(update={"train": following.train.model_copy(update={"method": "ct"})})
    assert learner_of(other).before == 4
    train(following)
    whole = (following.out / "model.safetensors").read_bytes()
    following.out.rename(tmp_path / "whole")
    train(following)  # from the checkpoint of its third step
    assert (following.out / "model.safetensors").read_bytes() == whole


def critics(folder: Path, kind: str, keep: str) -> Job:
    """A training with a critic that stands alone."""
    if kind == "small":
        samples.parent(folder)
        return trajectories.ppo_job(folder, folder, critic="alone", value_steps=2, train={"keep": keep})
    config = PpoConfig(critic="alone", value_steps=2)
    return replies.job(folder, "qwen3_vl", "ppo", ppo=config, keep=keep)


def critic_of(learner: Learner) -> dict[str, Tensor]:
    """The fp32 weights of its critic's network."""
    flat = {
        name: part.flat if isinstance(part, Stretch) else part for name, part in learner.objective.masters().items()
    }
    return {name: whole(tensor).detach().clone() for name, tensor in flat.items()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["small", "large"])
@pytest.mark.parametrize(("keep", "exact"), [("masters", True), ("nothing", False)])
def test_a_critic_that_stands_alone_goes_on_from_its_fp32_weights_too(
    kind: str, keep: str, exact: bool, tmp_path: Path
) -> None:
    plan = critics(tmp_path, kind, keep)
    first = Learner(plan, read_rollouts(plan.samples), 0, 1)
    first.step(first.prepare([SampleRef(at, at) for at in range(4)]), RATE)
    following = written(first, plan, 1)
    second = Learner(following, read_rollouts(plan.samples), 0, 1)
    before, after = critic_of(first), critic_of(second)
    assert before and same(before, after) == exact
    assert same(*({name: tensor.bfloat16() for name, tensor in one.items()} for one in (before, after)))
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in before.values())
    for learner in (first, second):
        learner.close()
