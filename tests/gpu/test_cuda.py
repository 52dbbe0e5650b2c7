"""A GPU computes in bf16 what a CPU computes in fp32, within bf16's rounding; a killed training goes on there."""

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from learning.checkpoint import Checkpoints
from learning.data.sample import read_samples
from learning.engines.fsdp.engine import FsdpEngine
from learning.job import Job, steps_folder
from learning.learner import Learner
from learning.parallel.packed_attention import PackedDocuments, packed_attention
from models.random_vlm import KINDS
from models.tiny.layout import TRAINING
from tests.tiers import lacks
from tests.unit.learning.chats import job
from tests.unit.learning.replies import job as reply_job

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason=lacks("no GPU", "run `make test-gpu` on a machine with one")
)

WIDE = {"hidden": 256, "layers": 4, "heads": 4, "kv_heads": 2, "head_width": 64}
"""Of the models that are killed: large enough that several steps take longer than a checkpoint."""


def apart(one: Tensor, other: Tensor) -> float:
    """The relative distance, in double precision on the CPU."""
    one, other = one.detach().double().cpu(), other.detach().double().cpu()
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("keys", [8, 2])
def test_packed_attention_on_a_gpu_is_attention_of_each_document(keys: int, causal: bool) -> None:
    torch.manual_seed(0)
    edges = (0, 1, 200, 712, 1000)
    parts = [torch.randn(1, heads, edges[-1], 64) for heads in (8, keys, keys)]
    weight = torch.randn(1, edges[-1], 8, 64)
    on_gpu = [part.to("cuda", torch.bfloat16).requires_grad_() for part in parts]
    q, k, v = on_gpu
    packed = PackedDocuments.of(edges, device="cuda")
    made, _ = packed_attention(torch.nn.Module(), q, k, v, None, is_causal=causal, packed=packed)
    (made * weight.cuda()).sum().backward()
    exact = [part.detach().cpu().double().requires_grad_() for part in on_gpu]
    alone = []
    for start, end in pairwise(edges):
        q, k, v = (part[:, :, start:end] for part in exact)
        alone.append(F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=keys < 8))
    wanted = torch.cat(alone, dim=2).transpose(1, 2)
    (wanted * weight).sum().backward()
    assert apart(made, wanted) < 1e-2
    for got, right in zip(on_gpu, exact, strict=True):
        assert got.grad is not None and right.grad is not None
        assert apart(got.grad, right.grad) < 1e-2


def gradient(plan: Job, device: str) -> tuple[float, dict[str, Tensor], float]:
    """Loss and gradient of all samples as one step, and the gradient's norm."""
    if dist.is_initialized():
        dist.destroy_process_group()
    on = plan.model_copy(update={"train": plan.train.model_copy(update={"device": device})})
    samples = read_samples(on.samples)
    engine = FsdpEngine(on, 0, 1)
    learner = Learner(on, samples, 0, 1, engine)
    try:
        loss = float(learner.gradient(engine.prepared(range(len(samples)))))
        found = {name: one.detach().clone().float().cpu() for name, one in engine.gradients().items()}
        assert engine.device.type == device
        return loss, found, engine.update(1e-3)
    finally:
        learner.close()
        dist.destroy_process_group()


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_on_a_gpu_has_the_loss_and_the_gradient_of_the_cpu(
    kind: str, checkpointing: bool, tmp_path: Path
) -> None:
    plan = job(tmp_path, kind, token_cap=700, activation_checkpointing=checkpointing)
    loss, found, norm = gradient(plan, "cuda")
    right, wanted, right_norm = gradient(plan, "cpu")
    assert abs(loss - right) < 1e-2 * right
    assert abs(norm - right_norm) < 3e-2 * right_norm
    assert found.keys() == wanted.keys()
    names = sorted(found)
    all_of = [torch.cat([one[name].flatten() for name in names]) for one in (found, wanted)]
    assert apart(*all_of) < 5e-2


def test_a_checkpoint_holds_a_gpu_s_tensors_as_they_were_when_it_was_begun(tmp_path: Path) -> None:
    torch.manual_seed(0)
    state = {"model.w": torch.randn(500, 333, device="cuda"), "model.b": torch.randn(7, device="cuda").bfloat16()}
    before = {name: one.clone() for name, one in state.items()}
    with Checkpoints(tmp_path / "steps") as checkpoints:
        checkpoints.save(state, 1, {"step": 1})
        for one in state.values():
            one.add_(1)  # the next step does not wait for the disk
        checkpoints.wait()
        assert checkpoints.load(state) == {"step": 1}
        assert all(torch.equal(state[name], before[name]) for name in state)
        on_cpu = {name: torch.zeros_like(one, device="cpu") for name, one in state.items()}
        checkpoints.load(on_cpu)
    assert all(torch.equal(on_cpu[name], before[name].cpu()) for name in state)


def begun(plan: Job) -> subprocess.Popen[str]:
    path = plan.out.with_name(f"{plan.out.name}.json")
    path.write_text(plan.model_dump_json())
    command = [sys.executable, "-m", "learning.trainer", str(path)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ, start_new_session=True
    )


def whole(plan: Job) -> list[dict[str, Any]]:
    """A training to its end; its messages."""
    out, errors = begun(plan).communicate(timeout=280)
    messages = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert messages and "checkpoint" in messages[-1], out[-2000:] + errors[-3000:]
    assert messages.pop(0) == {"processes": 1, "device": "cuda", "gpus_here": torch.cuda.device_count()}
    return messages


def masters(policy: Path) -> dict[str, Tensor]:
    """The fp32 weights beside a policy."""
    with Checkpoints(policy / TRAINING) as checkpoints:
        state = {name: torch.zeros(one.shape) for name, one in checkpoints.manifest().tensors.items()}
        checkpoints.load(state)
    return state


def losses(messages: list[dict[str, Any]]) -> dict[int, float]:
    return {one["step"]: one["loss"] for one in messages if "step" in one}


def test_a_training_that_is_killed_on_a_gpu_goes_on_to_the_same_loss_and_its_child_from_its_fp32_weights(
    tmp_path: Path,
) -> None:
    plan = job(tmp_path, "qwen3_vl", 64, 40, WIDE, processes=1, checkpoint_every=4)
    unbroken = losses(whole(plan.model_copy(update={"out": tmp_path / "unbroken"})))
    running = begun(plan)
    assert running.stdout is not None
    for line in running.stdout:
        if json.loads(line).get("step", 0) >= 10 and list(steps_folder(plan).glob("**/*.json")):
            break
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    assert not plan.out.exists()

    messages = whole(plan)
    assert 0 < messages[0]["resumed"] < plan.steps
    again = losses(messages)
    assert unbroken[40] < 0.8 * unbroken[1]
    # the GPU adds in no fixed order, so the losses are near and not equal
    assert all(abs(loss - unbroken[step]) < 0.05 * unbroken[1] for step, loss in again.items()), (again, unbroken)

    child = plan.model_copy(update={"parent": plan.out, "out": tmp_path / "child", "steps": 1, "learning_rate": 1e-9})
    whole(child)
    one, two, rounded = masters(plan.out), masters(child.out), load_file(plan.out / "model.safetensors")
    assert all(torch.allclose(one[name], two[name], rtol=1e-6, atol=1e-8) for name in one)
    assert any(not torch.equal(one[f"model.{name}"], weight.float()) for name, weight in rounded.items())


@pytest.mark.parametrize("method", ["grpo", "dpo", "ppo"])
def test_every_method_takes_its_steps_on_a_gpu(method: str, tmp_path: Path) -> None:
    plan = reply_job(tmp_path, "qwen3_vl", method, steps=2, count=8, batch=2)
    (last,) = [one for one in whole(plan) if "checkpoint" in one]
    before, after = (load_file(path / "model.safetensors") for path in (plan.parent, plan.out))
    assert torch.isfinite(torch.tensor(last["loss"]))
    assert any(not torch.equal(before[name], after[name]) for name in before)
