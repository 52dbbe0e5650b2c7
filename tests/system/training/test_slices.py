"""Slices of trajectories on real gloo ranks: loss, gradient and log probabilities are those of separate replies."""

from pathlib import Path
from typing import Any

import pytest
import torch

from models.random_vlm import KINDS
from tests.system.parts.ranks import run
from tests.system.training.test_objectives import gradient_of, group_reference, plain, plain_logprobs
from tests.system.training.test_sharded import plain_gradient
from tests.tiers import NIGHTLY
from tests.unit.learning.folded import LENGTHS, folded_job

CRITICS = {"ppo-shared": "shared", "ppo-alone": "alone"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS if NIGHTLY else ("qwen3_vl",))
def test_two_ranks_train_on_slices_as_on_separate_replies(kind: Any, tmp_path: Path) -> None:
    imitation = folded_job(tmp_path, kind, "sft", token_cap=700)
    (tmp_path / "sft.json").write_text(imitation.model_dump_json())
    torch.save((*plain_gradient(imitation), torch.zeros(0)), tmp_path / "sft.pt")
    groups = folded_job(tmp_path, kind, "grpo", token_cap=700)
    (tmp_path / "grpo.json").write_text(groups.model_dump_json())
    network = plain(groups)
    found = plain_logprobs(groups, network)
    noise = torch.randn(sum(map(len, found)), dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.4
    loss = group_reference(groups, found, noise)
    loss.backward()
    torch.save((float(loss.detach()), gradient_of(network), noise), tmp_path / "grpo.pt")
    for name, critic in CRITICS.items():
        plan = folded_job(tmp_path, kind, "ppo", token_cap=700)
        ppo = plan.train.ppo.model_copy(update={"critic": critic})
        plan = plan.model_copy(update={"train": plan.train.model_copy(update={"ppo": ppo})})
        (tmp_path / f"{name}.json").write_text(plan.model_dump_json())
    printed = run("tests.system.parts.slice_ranks", tmp_path, "sft", "grpo", *CRITICS, ranks=2, timeout=280.0)
    count = sum(LENGTHS)
    assert printed.count(f"sft: 5 of {count}, ") == 3, printed
    # the reply in other tokens ends its sequence, and the one behind it begins another
    assert printed.count(f"grpo: 6 of {count}, ") == 3, printed
    assert all(printed.count(f"{name}: 6 of {count}, ") == 3 for name in CRITICS), printed
    assert printed.count(": replies apart") == 2, printed
