"""The learner of any model on real gloo ranks: whatever the plan, the gradient is that of plain `transformers`."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learning.data.sample import Screenshots, read_samples, write_samples
from learning.engines.fsdp.chats import Chats
from learning.job import Job
from learning.trainer import train
from models.random_vlm import KINDS, Kind
from schemas.config.training import LoraConfig
from tests.system.parts.plain import plain_output
from tests.system.parts.ranks import run
from tests.system.training.test_resume import whole
from tests.tiers import NIGHTLY
from tests.unit.learning.chats import job, varied


def plain_gradient(plan: Job, balance: float = 0.0) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient of the mean over all target tokens, every sample by itself, by the library's own forward;
    with the mean of its auxiliary loss over samples and layers, weighed, in the gradient alone."""
    from transformers import AutoModelForImageTextToText
    from transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe import load_balancing_loss_func

    model = AutoModelForImageTextToText.from_pretrained(
        plan.parent, dtype=torch.float64, attn_implementation="sdpa", experts_implementation="eager"
    )
    screenshots = Screenshots(plan.screenshots)
    chats = Chats(plan.parent, plan.policy, screenshots, plan.seed)
    samples = read_samples(plan.samples)
    total = sum(chats.measure(sample).targets for sample in samples)
    whole = 0.0
    for sample in samples:
        chat = chats.encode(sample)
        digests, more = chats.measure(sample).digests, {"output_router_logits": True} if balance else {}
        out = plain_output(model, chats, chat, digests, screenshots, **more)
        logits, asked = out.logits[0], chat.targets >= 0
        loss = torch.nn.functional.cross_entropy(logits[asked], chat.targets[asked], reduction="sum") / total
        uneven = [load_balancing_loss_func((one,), 4, 2) for one in (out.router_logits if balance else ())]
        (loss + balance / len(samples) * sum(uneven) / max(1, len(uneven))).backward()
        whole += float(loss.detach())
    return whole, {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def prepared(folder: Path, kind: Kind) -> Path:
    """A folder with a job, in which samples begin alike, and its reference gradient."""
    plan = job(folder, kind, token_cap=700)
    samples, _ = varied(8)
    more = [replace(one, thought=f"{one.thought} {word}") for one in samples[:2] for word in ("Go on.", "Now.")]
    write_samples(plan.samples, [*samples, *more])
    (folder / "job.json").write_text(plan.model_dump_json())
    torch.save(plain_gradient(plan), folder / "reference.pt")
    if kind.endswith("_moe"):
        torch.save(plain_gradient(plan, 0.1), folder / "balanced.pt")
    return folder


@pytest.fixture(scope="module", params=KINDS if NIGHTLY else ("qwen3_vl_moe",))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("model"), request.param)


@pytest.mark.slow
def test_the_gradient_of_four_ranks_depends_neither_on_the_plan_nor_on_who_holds_what(folder: Path) -> None:
    said = run("tests.system.parts.sharded_ranks", folder, timeout=300)
    undivided = (folder / "qwen3_5").exists() or (folder / "qwen3_5_moe").exists()
    plans = 7 if undivided else 11
    checked = [line for line in said.splitlines() if not line.startswith("{")]  # a warning about stored experts
    assert len(checked) == plans + (17 if (folder / "balanced.pt").exists() else 11), said


@pytest.mark.nightly
def test_ranks_that_are_no_power_of_two_give_the_same_gradient(tmp_path: Path) -> None:
    prepared(tmp_path, "qwen3_vl")
    said = run("tests.system.parts.sharded_ranks", tmp_path, ranks=3)
    assert said.count(": ") == 6, said


@pytest.mark.nightly
def test_adapters_trained_on_two_ranks_move_the_weights_as_on_one(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen3_vl", lora=LoraConfig(rank=4, alpha=16.0, targets=("q_proj", "v_proj")))
    apart = plan.model_copy(update={"out": tmp_path / "apart"})
    train(plan)
    whole(apart, 2)
    before, one, two = (load_file(path / "model.safetensors") for path in (plan.parent, plan.out, apart.out))
    moved = {name: (one[name] - before[name]).float() for name in before if not torch.equal(one[name], before[name])}
    assert moved and all(name.endswith(("q_proj.weight", "v_proj.weight")) for name in moved)
    for name in before:
        change = (two[name] - before[name]).float()
        # the weights are kept in bfloat16, so what differs in the last bit of the sums differs by whole roundings
        assert (change - moved.get(name, 0.0)).abs().mean() <= 0.05 * change.abs().mean(), name
