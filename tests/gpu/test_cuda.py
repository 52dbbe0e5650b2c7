"""A GPU computes in bf16 what a CPU computes in fp32, within bf16's rounding; a killed training goes on there."""

import importlib
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

import models.fused
from learning.checkpoint import Checkpoints
from learning.data.sample import read_samples
from learning.engines.fsdp.engine import FsdpEngine
from learning.job import Job, steps_folder
from learning.learner import Learner
from learning.parallel.packed_attention import Copied, PackedDocuments, packed_attention
from learning.planning.shared_prompts import Segment
from models.attention import by_length, find_kernel
from models.attention_kernels import FLASH, Heads, KernelChoice, kernels_for
from models.fused import ROTARY, find_compiler, lacks_compiler
from models.random_vlm import KINDS, build_random
from models.serving.local import TransformersModel
from models.tiny.layout import TRAINING
from schemas.config.policy import PolicyConfig
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


GPU = torch.device("cuda")
LAYERS = [
    Heads("language model", 8, 2, 128, True, torch.bfloat16, GPU),
    Heads("vision tower", 4, 4, 80, False, torch.bfloat16, GPU),
]


def documents(heads: Heads, shared: bool) -> PackedDocuments:
    """Documents of one GPU; the last two share the first tokens of theirs if asked."""
    segments = [Segment(0, 0, 700, ()), Segment(1, 0, 300, ()), Segment(1, 300, 513, (1,)), Segment(2, 300, 420, (1,))]
    packed = PackedDocuments.sharing(segments) if shared else PackedDocuments.of((0, 1, 200, 712, 1300))
    return packed.map(Tensor.cuda)


@pytest.mark.parametrize(("heads", "shared"), [(LAYERS[0], False), (LAYERS[0], True), (LAYERS[1], False)])
def test_every_kernel_of_a_gpu_is_attention_of_each_document(heads: Heads, shared: bool) -> None:
    packed = documents(heads, shared)
    keys = packed.seen or packed
    numbers = torch.Generator().manual_seed(0)
    sizes = ((packed, heads.queries), (keys, heads.keys), (keys, heads.keys))
    parts = [torch.randn(edges.edges[-1], count, heads.width, generator=numbers) for edges, count in sizes]
    exact = [part.bfloat16().double().requires_grad_() for part in parts]
    lengths = [[end - start for start, end in pairwise(edges.edges)] for edges in (packed, keys)]
    wanted = by_length(exact[0], exact[1], exact[2], lengths[0], None, heads.causal, lengths[1] if shared else None)
    slope = torch.randn(wanted.shape, generator=numbers)
    right = torch.autograd.grad(wanted, exact, slope.double())
    kernels = kernels_for(heads)
    if shared:
        kernels.pop("documents")
    for name, kernel in kernels.items():
        q, k, v = on_gpu = [part.to("cuda", torch.bfloat16).requires_grad_() for part in parts]
        made = kernel(q, k, v, packed, keys, None, heads.causal)
        found = torch.autograd.grad(made, on_gpu, slope.to("cuda", torch.bfloat16))
        for one, other in zip((made, *found), (wanted, *right), strict=True):
            assert apart(one, other) < 1e-2, name


def test_gradients_of_many_copies_of_a_key_are_summed_exactly() -> None:
    key = torch.zeros(2, 1, 8, dtype=torch.bfloat16, device=GPU, requires_grad=True)
    copies = Copied.apply(key, torch.tensor([0] * 400 + [1], device=GPU))
    assert isinstance(copies, Tensor)
    copies.sum().backward()
    assert key.grad is not None and key.grad[:, 0, 0].tolist() == [400, 1]


@pytest.mark.parametrize("heads", LAYERS)
def test_a_gpu_waits_only_for_the_first_choice_of_a_kernel(heads: Heads, monkeypatch: pytest.MonkeyPatch) -> None:
    choice, long, shared = KernelChoice(heads), documents(heads, False), documents(heads, True)
    many = PackedDocuments.of(tuple(range(0, 6400, 64))).map(Tensor.cuda)
    assert shared.seen is not None
    first = choice.of(long, long)
    assert first in kernels_for(heads) and FLASH in kernels_for(heads)
    assert choice.of(shared, shared.seen) != "documents" != choice.of(many, many)
    monkeypatch.setattr(choice, "_seconds", lambda run: pytest.fail("timed again"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert choice.of(long, long) == first
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kind", KINDS)
def test_fused_rotations_and_gated_layers_are_those_of_the_library(kind: str) -> None:
    if reason := lacks_compiler(GPU):
        pytest.skip(lacks(reason, "apt-get install gcc python3-dev, pip install triton"))
    library = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    numbers = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=numbers).to("cuda", torch.bfloat16)

    for name in ROTARY:
        plain = getattr(library, name)
        plain = getattr(plain, "__wrapped__", plain) if hasattr(plain, "fused") else plain
        fused = models.fused._rotary(plain)
        for tokens in (40, 300, 77):
            if name == ROTARY[0]:
                q, k = (drawn(1, tokens, heads, 64).transpose(1, 2).requires_grad_() for heads in (4, 2))
                cos, sin = (drawn(1, tokens, 32 if kind.startswith("qwen3_5") else 64) for _ in range(2))
            else:
                q, k = (drawn(tokens, 4, 80).requires_grad_() for _ in range(2))
                cos, sin = (drawn(tokens, 80).float() for _ in range(2))
            exact = plain(q.double(), k.double(), cos.double(), sin.double())
            slopes = [drawn(*one.shape) for one in exact]
            made = fused(q, k, cos, sin)
            assert all(one.dtype == torch.bfloat16 for one in made)
            found = torch.autograd.grad(made, (q, k), slopes)
            right = torch.autograd.grad(exact, (q, k), [one.double() for one in slopes])
            for one, other in zip((*made, *found), (*exact, *right), strict=True):
                assert apart(one, other) < 1e-2


def test_a_local_model_on_a_gpu_answers_as_on_a_cpu_and_reports_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_random("qwen2_5_vl", ["Click it."], 0, tmp_path / "model")
    chat: Any = [[{"role": "user", "content": [{"type": "text", "text": "Click it."}]}]] * 2
    replies = {}
    for device in ("cuda", "cpu"):
        capsys.readouterr()
        local = TransformersModel(tmp_path / "model", PolicyConfig(device=device))
        lines = [line for line in (find_kernel(local.model.device), find_compiler(local.model.device)) if line]
        assert capsys.readouterr().err == "".join(f"flywheel: {line}\n" for line in lines)
        replies[device] = [reply.logprobs[0] for reply in local.generate(chat, range(2), 0.0, 4)]
    assert replies["cuda"] == pytest.approx(replies["cpu"], abs=0.1)


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
