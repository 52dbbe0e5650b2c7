"""Group methods and preferences on real gloo ranks: whatever the plan, the gradient is that of plain `transformers`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from learning.job import Job
from learning.objectives import OBJECTIVES
from learning.sample import Screenshots
from learning.trainer import READERS
from models.random_vlm import KINDS
from tests.system.plain import plain_logits
from tests.system.ranks import run
from tests.unit.learning.replies import job


def plain_logprobs(plan: Job, model: Any) -> list[Tensor]:
    """The log probabilities of each document's reply, every document by itself, by the library's own forward."""
    screenshots = Screenshots(plan.screenshots)
    objective = OBJECTIVES[plan.train.method](plan, READERS[plan.train.method](plan.samples))
    chats, found = objective.encoder(), []
    for document in objective.documents:
        chat = chats.encode(document)
        logits = plain_logits(model, chats, chat, document.screenshots, screenshots)
        asked = chat.targets >= 0
        shares = (logits[asked] / chat.temperature).log_softmax(-1)
        found.append(shares.gather(1, chat.targets[asked, None])[:, 0])
    return found


def group_reference(plan: Job, said: list[Tensor], noise: Tensor) -> Tensor:
    """The clipped loss of old log probabilities that differ by the noise, written out token by token."""
    rollouts, config = READERS["grpo"](plan.samples), plan.train.group
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


def prepare(folder: Path, kind: str) -> None:
    """Writes a job and its reference gradient for each method."""
    from transformers import AutoModelForImageTextToText

    for method, reference in (("grpo", group_reference), ("dpo", pair_reference)):
        plan = job(folder, kind, method, token_cap=700)
        (folder / f"{method}.json").write_text(plan.model_dump_json())
        model = AutoModelForImageTextToText.from_pretrained(
            plan.parent, dtype=torch.float64, attn_implementation="sdpa", experts_implementation="eager"
        )
        said = plain_logprobs(plan, model)
        length = sum(map(len, said)) if method == "grpo" else len(said)
        noise = torch.randn(length, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.4
        loss = reference(plan, said, noise)
        loss.backward()
        gradient = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        torch.save((float(loss.detach()), gradient, noise), folder / f"{method}.pt")


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_two_ranks_is_that_of_plain_transformers_under_every_plan(kind: str, tmp_path: Path) -> None:
    prepare(tmp_path, kind)
    said = run("tests.system.objective_ranks", tmp_path, "grpo", "dpo", ranks=2, timeout=280.0)
    assert said.count(": ") == 6, said
