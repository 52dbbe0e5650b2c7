"""Group methods and preferences on real gloo ranks: whatever the plan, the gradient is that of plain `transformers`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from learning.algorithms.critic import BIAS, BODY, WEIGHT
from learning.algorithms.method import method_of
from learning.data.files import read_rollouts
from learning.data.sample import Screenshots
from learning.engines.choice import engine_of
from learning.engines.fsdp.chats import Chats
from learning.job import Job
from models.random_vlm import KINDS
from models.tiny.layout import CRITIC
from schemas.config.training import PpoConfig
from tests.system.parts.plain import plain_logits
from tests.system.parts.ranks import run
from tests.unit.learning.replies import job


def plain_logprobs(plan: Job, model: Any) -> list[Tensor]:
    """The log probabilities of each document's reply, every document by itself, by the library's own forward."""
    screenshots = Screenshots(plan.screenshots)
    method = method_of(plan.train)
    documents = method.objective(plan, engine_of(plan, 0, 1)).documents(method.read(plan.samples))
    chats, found = Chats(plan.parent, plan.policy, screenshots, plan.seed), []
    for document in documents:
        chat = chats.encode(document)
        logits = plain_logits(model, chats, chat, document.screenshots, screenshots)
        asked = chat.targets >= 0
        shares = (logits[asked] / chat.temperature).log_softmax(-1)
        found.append(shares.gather(1, chat.targets[asked, None])[:, 0])
    return found


def group_reference(plan: Job, said: list[Tensor], noise: Tensor) -> Tensor:
    """The clipped loss of old log probabilities that differ by the noise, written out token by token."""
    rollouts, config = read_rollouts(plan.samples), plan.train.group
    total, at = torch.zeros((), dtype=torch.float64), 0
    for rollout, logprobs in zip(rollouts, said, strict=True):
        old = logprobs.detach() + noise[at : at + len(logprobs)]
        at += len(logprobs)
        served = torch.tensor(rollout.logprobs, dtype=torch.float64)
        ratio, gain = (logprobs - old).exp(), rollout.advantage
        weight = (old - served).exp().clamp(max=config.most_weight)
        inside = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
        total = total - (weight * torch.minimum(ratio * gain, inside * gain)).sum()
    return total / at


def pair_reference(plan: Job, said: list[Tensor], noise: Tensor) -> Tensor:
    """-log sigmoid of the margins against references that differ by the noise."""
    sums = torch.stack([logprobs.sum() for logprobs in said])
    gains = sums - (sums.detach() + noise)
    margins = plan.train.preference.beta * (gains[0::2] - gains[1::2])
    return (1 + (-margins).exp()).log().mean()


def valued_reference(plan: Job, said: list[Tensor], noise: Tensor, seen: list[Tensor], head: Tensor) -> Tensor:
    """PPO of one-step trajectories: what the critic's head says of hidden states is the baseline; all losses written
    out."""
    rollouts, config = read_rollouts(plan.samples), plan.train.ppo
    count = sum(map(len, said))
    right = sum(len(one) for one, rollout in zip(said, rollouts, strict=True) if rollout.correct)
    total, at = torch.zeros((), dtype=torch.float64), 0
    for rollout, logprobs, hidden in zip(rollouts, said, seen, strict=True):
        values = hidden @ head[:-1] + head[-1]
        then = values.detach().float().double()  # what is known of a token is kept in fp32
        old = logprobs.detach() + noise[at : at + len(logprobs)]
        at += len(logprobs)
        served = torch.tensor(rollout.logprobs, dtype=torch.float64)
        ratio, gain = (logprobs - old).exp(), (rollout.reward - then).float().double()
        weight = (old - served).exp().clamp(max=config.most_weight)
        inside = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
        policy = -(weight * torch.minimum(ratio * gain, inside * gain)).sum()
        value = 0.5 * ((values - rollout.reward) ** 2).sum()
        total = total + (policy + config.value_weight * value) / count
        total = total - config.positive * rollout.correct * logprobs.sum() / right
    return total


def prepare_valued(folder: Path, kind: str, critic: str) -> None:
    """A `ppo` job whose parent has a critic, the reference gradient, and that of the critic's head and own network."""
    ppo = PpoConfig(critic=critic, value_steps=0, policy_lambda=1.0, whiten=False, positive=0.3)  # type: ignore[arg-type]
    (folder / critic).mkdir()
    plan = job(folder / critic, kind, "ppo", token_cap=700, ppo=ppo)
    (folder / f"ppo-{critic}.json").write_text(plan.model_dump_json())
    model, judge = plain(plan), plain(plan) if critic == "alone" else None
    width = model.get_output_embeddings().in_features
    draw = torch.Generator().manual_seed(1)
    drawn = 0.1 * torch.randn(width + 1, generator=draw)
    body: dict[str, Tensor] = {}
    if judge is not None:
        for name, weight in judge.named_parameters():
            moved = weight.detach() + 0.02 * torch.randn(weight.shape, generator=draw, dtype=torch.float64)
            body[f"{BODY}{name}"] = moved.to(torch.bfloat16)
            weight.data.copy_(body[f"{BODY}{name}"])
    save_file({WEIGHT: drawn[:-1].clone(), BIAS: drawn[-1:].clone(), **body}, plan.parent / CRITIC)
    read: list[Tensor] = []
    who = judge or model
    who.get_output_embeddings().register_forward_pre_hook(lambda _, given: read.append(given[0][0]))
    said = plain_logprobs(plan, model)
    if judge is not None:
        plain_logprobs(plan, judge)
    rollouts, screenshots = read_rollouts(plan.samples), Screenshots(plan.screenshots)
    chats = Chats(plan.parent, plan.policy, screenshots, plan.seed)
    seen = [hidden[chats.encode(one).targets >= 0] for hidden, one in zip(read, rollouts, strict=True)]
    head = drawn.double().requires_grad_()
    noise = torch.randn(sum(map(len, said)), dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.4
    loss = valued_reference(plan, said, noise, seen, head)
    loss.backward()
    torch.save((float(loss.detach()), gradient_of(model), noise), folder / f"ppo-{critic}.pt")
    assert head.grad is not None
    torch.save((head.grad.float(), gradient_of(judge) if judge is not None else {}), folder / f"critic-{critic}.pt")


def plain(plan: Job) -> Any:
    """The parent in double precision, by the library alone."""
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(
        plan.parent, dtype=torch.float64, attn_implementation="sdpa", experts_implementation="eager"
    )


def gradient_of(model: Any) -> dict[str, Tensor]:
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def prepare(folder: Path, kind: str) -> None:
    """Writes a job and its reference gradient for each method."""
    for method, reference in (("grpo", group_reference), ("dpo", pair_reference)):
        plan = job(folder, kind, method, token_cap=700)
        (folder / f"{method}.json").write_text(plan.model_dump_json())
        model = plain(plan)
        said = plain_logprobs(plan, model)
        length = sum(map(len, said)) if method == "grpo" else len(said)
        noise = torch.randn(length, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.4
        loss = reference(plan, said, noise)
        loss.backward()
        torch.save((float(loss.detach()), gradient_of(model), noise), folder / f"{method}.pt")
    for critic in ("shared", "alone"):
        prepare_valued(folder, kind, critic)


@pytest.mark.nightly  # test_sharded.py and test_ulysses.py always run
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_two_ranks_is_that_of_plain_transformers_under_every_plan(kind: str, tmp_path: Path) -> None:
    prepare(tmp_path, kind)
    said = run(
        "tests.system.parts.objective_ranks", tmp_path, "grpo", "dpo", "ppo-shared", "ppo-alone", ranks=2, timeout=280.0
    )
    assert sum(line.startswith(("grpo ", "dpo ", "ppo-")) for line in said.splitlines()) == 12, said
