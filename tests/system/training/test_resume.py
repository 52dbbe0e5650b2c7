"""A training killed in the middle and started again: the same losses, every sample once, on any number of ranks."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from learning.job import Job, steps_folder
from schemas.config.training import ExpertsConfig, LoraConfig, MemoryConfig, PpoConfig
from tests.tiers import NIGHTLY
from tests.unit.learning.chats import job as any_job
from tests.unit.learning.folded import folded_job
from tests.unit.learning.replies import job as reply_job
from tests.unit.learning.replies import rolled_out, streamed, valued
from tests.unit.learning.samples import job as small_job
from tests.unit.learning.samples import parent
from tests.unit.learning.trajectories import ppo_job

EACH = ("small", "ppo", "qwen3_vl", "qwen3_vl in few bits", "qwen3_vl ppo")
PLANS = EACH if NIGHTLY else ("small",)
"""What is trained; the reduced tier leaves the real architecture to the training on a stream below."""


def start(plan: Job, ranks: int) -> subprocess.Popen[str]:
    plan = plan.model_copy(update={"train": plan.train.model_copy(update={"processes": ranks})})
    path = plan.out.with_name("job.json")
    path.write_text(plan.model_dump_json())
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "learning.trainer", str(path)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, start_new_session=True
    )


def whole(plan: Job, ranks: int) -> list[dict[str, Any]]:
    """A training to its end; what it said."""
    out, errors = start(plan, ranks).communicate(timeout=280)
    said = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert said.pop(0) == {"processes": ranks, "device": "cpu"}, errors[-2000:]
    assert said and "checkpoint" in said[-1], errors[-2000:]
    return said


def killed_after(plan: Job, ranks: int, step: int) -> None:
    """A training whose every process is killed as soon as a step is reported and a checkpoint is there."""
    running = start(plan, ranks)
    assert running.stdout is not None
    for line in running.stdout:
        if json.loads(line).get("step", 0) >= step and list(steps_folder(plan).glob("**/*.json")):
            break
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    assert not plan.out.exists()


def trained(plan: Job, before: int, after: int = 0) -> Counter[int]:
    """How often each sample was trained on in steps [after, before), over all ranks."""
    assert plan.trace is not None
    notes = [json.loads(line) for path in plan.trace.iterdir() for line in path.read_text().splitlines()]
    return Counter(sample for note in notes if after <= note["step"] < before for sample in note["samples"])


def losses(said: list[dict[str, Any]]) -> dict[int, float]:
    return {one["step"]: one["loss"] for one in said if "step" in one}


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    """One epoch: every sample once."""
    if request.param == "small":
        parent(tmp_path)
        made = small_job(tmp_path, count=160, steps=40, batch=4, checkpoint_every=10)
    elif request.param == "ppo":
        parent(tmp_path)
        value = {"value_steps": 4, "critic_learning_rate": 5e-4, "learning_rate": 2e-4, "batch": 4}
        made = ppo_job(tmp_path, tmp_path, steps=24, count=48, train={"checkpoint_every": 6}, **value)
    elif request.param == "qwen3_vl":
        made = any_job(tmp_path, "qwen3_vl", count=32, steps=8, batch=4, checkpoint_every=2)
    elif request.param == "qwen3_vl in few bits":
        few = {"lora": LoraConfig(rank=16), "memory": MemoryConfig(frozen="nf4", moments="8bit")}
        made = any_job(tmp_path, "qwen3_vl", count=32, steps=8, batch=4, checkpoint_every=2, **few)
    else:
        value = PpoConfig(critic="alone", value_steps=4, policy_lambda=1.0)
        made = reply_job(tmp_path, "qwen3_vl", "ppo", steps=8, count=16, batch=2, checkpoint_every=2, ppo=value)
    return made


@pytest.mark.slow
def test_a_killed_training_repeats_the_losses_on_as_many_ranks_and_takes_every_sample_once_on_others(plan: Job) -> None:
    folder = plan.out.parent
    unbroken = losses(whole(plan.model_copy(update={"out": folder / "unbroken"}), 2))
    first = plan.model_copy(update={"trace": folder / "first"})
    killed_after(first, 2, plan.train.checkpoint_every * 2)
    other = plan.model_copy(update={"out": folder / "other", "trace": folder / "second"})
    shutil.copytree(steps_folder(plan), steps_folder(other))

    said = whole(plan, 2)
    assert 0 < said[0]["resumed"] < plan.steps
    again = losses(said)
    assert again and again == {step: loss for step, loss in unbroken.items() if step in again}

    said = whole(other, 3 if NIGHTLY and plan.steps != 8 else 1)
    resumed = said[0]["resumed"]
    before = trained(first, resumed)
    assert sum(before.values()) == resumed * plan.train.batch
    assert before + trained(other, plan.steps, resumed) == Counter(range(plan.steps * plan.train.batch))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ("qwen3_5", "qwen3_5_moe") if NIGHTLY else ("qwen3_5",))
def test_a_killed_training_of_gated_deltanets_on_folded_groups_writes_the_same_bytes(kind: str, tmp_path: Path) -> None:
    plan = folded_job(tmp_path, kind, "grpo", checkpoint_every=2)
    plan = plan.model_copy(update={"steps": 8})
    whole(unbroken := plan.model_copy(update={"out": tmp_path / "unbroken"}), 1)
    killed_after(plan, 1, 4)
    (resumed,) = [one["resumed"] for one in whole(plan, 1) if "resumed" in one]
    assert 0 < resumed < plan.steps
    one, other = (
        {path.relative_to(out): path.read_bytes() for path in out.rglob("*.safetensors")}
        for out in (unbroken.out, plan.out)
    )
    assert one == other and one
    assert one[Path("model.safetensors")] != (plan.parent / "model.safetensors").read_bytes()


@pytest.mark.nightly
def test_a_model_that_is_trained_on_a_stream_goes_on_after_a_kill_on_another_number_of_ranks(tmp_path: Path) -> None:
    plan, stream = streamed(tmp_path, "qwen3_vl", "ppo", 2)
    killed = start(plan, 2)
    assert killed.stdout is not None
    for line in killed.stdout:
        if json.loads(line).get("published") == 2 and list(steps_folder(plan).glob("**/*.json")):
            break
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    rollouts, pngs = rolled_out(plan.parent)
    stream.put([valued(rollout, at) for at, rollout in enumerate(rollouts)], pngs, {})
    stream.end()

    said = whole(plan, 1)
    assert (plan.out / "training").is_dir() and not list((tmp_path / "stream").glob("weights-*/training"))
    assert said[0]["resumed"] in (1, 2) and [one["published"] for one in said if "published" in one][-1] == 3
    at_once = plan.model_copy(update={"out": tmp_path / "at-once", "stream": tmp_path / "copy"})
    shutil.copytree(tmp_path / "stream", tmp_path / "copy", ignore=shutil.ignore_patterns("weights-*"))
    whole(at_once, 1)
    before, one, two = (load_file(path / "model.safetensors") for path in (plan.parent, at_once.out, plan.out))
    moved = sum(float((one[name] - before[name]).float().abs().sum()) for name in before)
    apart = sum(float((one[name] - two[name]).float().abs().sum()) for name in before)
    assert moved > 0 and apart <= 0.05 * moved


CURVES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "two": ("qwen2_5_vl", 2, {}),
    "four": ("qwen2_5_vl", 4, {}),
    "two rows of two": ("qwen2_5_vl", 4, {"replicas": 2}),
    "compiled": ("qwen2_5_vl", 1, {"compiled": True}),
    "parallel experts": ("qwen3_vl_moe", 2, {"experts": ExpertsConfig(parallel=True)}),
}


@pytest.mark.nightly
@pytest.mark.parametrize("way", CURVES)
def test_a_loss_curve_is_the_same_whoever_holds_what(way: str, tmp_path: Path) -> None:
    """In fp32 to within 1e-3 of the loss after eight steps; in doubles the first step's gradient is equal to 1e-10."""
    kind, ranks, knobs = CURVES[way]
    plan = any_job(tmp_path, kind, count=32, steps=8, batch=4, checkpoint_every=2)
    alone = losses(whole(plan.model_copy(update={"out": tmp_path / "alone"}), 1))
    other = plan.model_copy(update={"train": plan.train.model_copy(update=knobs)})
    found = losses(whole(other, ranks))
    assert alone.keys() == found.keys() and len(alone) > 2
    assert all(found[step] == pytest.approx(loss, rel=1e-3) for step, loss in alone.items())
    one, written = (load_file(folder / "model.safetensors") for folder in (tmp_path / "alone", other.out))
    assert one.keys() == written.keys()
    assert all(torch.allclose(one[name].float(), written[name].float(), atol=2e-3) for name in one)


@pytest.mark.nightly
def test_a_training_in_rows_goes_on_in_one_row_after_a_kill(tmp_path: Path) -> None:
    plan = any_job(tmp_path, "qwen3_vl", count=32, steps=8, batch=4, checkpoint_every=2, replicas=2)
    unbroken = losses(whole(plan.model_copy(update={"out": tmp_path / "unbroken"}), 4))
    killed_after(plan, 4, 4)
    said = whole(plan.model_copy(update={"train": plan.train.model_copy(update={"replicas": 1})}), 2)
    assert said[0]["resumed"] > 0
    again = losses(said)
    assert again and all(loss == pytest.approx(unbroken[step], rel=1e-3) for step, loss in again.items())
