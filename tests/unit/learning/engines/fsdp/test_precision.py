"""What a training computes in."""

from pathlib import Path
from typing import Any

import pytest
import torch

from learning.algorithms.method import method_of
from learning.engines.engine import SampleRef
from learning.learner import Learner
from tests.tiers import NIGHTLY
from tests.unit.learning.replies import job


def gradient(plan: Any, precision: str) -> dict[str, torch.Tensor]:
    """The gradient of the first step over all documents."""
    plan = plan.model_copy(update={"train": plan.train.model_copy(update={"precision": precision})})
    samples = method_of(plan.train).read(plan.samples)
    learner = Learner(plan, samples, 0, 1)
    try:
        learner.gradient(learner.engine.ready(learner.prepare([SampleRef(at, at) for at in range(len(samples))])))
        return learner.engine.gradients()
    finally:
        learner.close()


@pytest.mark.parametrize("method", ["grpo", "dpo"] if NIGHTLY else ["grpo"])
def test_a_cpu_computes_in_bfloat16_where_it_is_told_to_and_keeps_gradients_and_weights_in_fp32(
    method: str, tmp_path: Path
) -> None:
    plan = job(tmp_path, "qwen3_vl", method)
    full, half, usual = (gradient(plan, precision) for precision in ("float32", "bfloat16", "auto"))
    assert {one.dtype for one in half.values()} == {torch.float32}
    assert all(torch.equal(one, usual[name]) for name, one in full.items()), "auto is fp32 on a CPU"
    exact, rounded = (torch.cat([found[name].flatten() for name in sorted(full)]) for found in (full, half))
    assert not torch.equal(exact, rounded)
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.98
