"""Documents that begin alike are computed once; losses and gradients are those of separate documents."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from learning.data.sample import TrainSample, read_samples, write_samples
from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.phases import RankWork
from learning.job import Job
from learning.learner import Learner
from schemas.config.training import ExpertsConfig
from tests.unit.learning.chats import job, varied

SHARING = ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")


def rewritten(plan: Job, made: Sequence[TrainSample]) -> Job:
    write_samples(plan.samples, list(made))
    return plan


def grouped(plan: Job) -> Job:
    """The same screens and histories with several replies each, as groups have, and two that differ in a screen."""
    made, pngs = varied(6)
    more = [replace(one, thought=f"{one.thought} {word}") for one in made[:4] for word in ("Then.", "Now.", "Go on.")]
    long = next(one for one in made if len(one.screenshots) > 1)
    other = next(digest for digest in pngs if digest not in long.screenshots)
    return rewritten(plan, [*more, *made[4:], replace(long, screenshots=(long.screenshots[0], other))])


def passed(plan: Job, shares: bool) -> tuple[float, dict[str, torch.Tensor], list[RankWork], float]:
    """The loss and gradient of all samples in double precision, the works, and the operations."""
    plan = plan.model_copy(update={"train": plan.train.model_copy(update={"share_prompts": shares})})
    engine = FsdpEngine(plan, 0, 1, torch.float64)
    samples = read_samples(plan.samples)
    learner = Learner(plan, samples, 0, 1, engine)
    try:
        batch = engine.prepared(range(len(samples)))
        part = learner.gradient(batch)
        return float(part), engine.gradients(), list(batch.pieces), batch.operations
    finally:
        learner.close()


@pytest.mark.parametrize("kind", SHARING)
@pytest.mark.parametrize(("knobs", "share"), [({}, 0.3), ({"token_cap": 1500, "activation_checkpointing": True}, 0.8)])
def test_the_gradient_is_that_of_separate_documents_from_fewer_tokens_and_screens(
    kind: str, knobs: dict[str, Any], share: float, tmp_path: Path
) -> None:
    plan = grouped(job(tmp_path, kind, **knobs))
    loss, apart, works, operations = passed(plan, shares=False)
    shared_loss, shared, fewer, less = passed(plan, shares=True)
    assert abs(loss - shared_loss) < 1e-10
    assert apart.keys() == shared.keys()
    assert all(torch.allclose(apart[name], shared[name], rtol=1e-6, atol=1e-8) for name in apart)
    many, few = (sum(one.ids.numel() for one in each) for each in (works, fewer))
    all_screens, once = (sum(len(one.grids) for one in each) for each in (works, fewer))
    assert few < share * many and once < all_screens and less < share * operations


@pytest.mark.parametrize(("kind", "knobs"), [
    ("qwen3_5", {}), ("qwen3_vl_moe", {"experts": ExpertsConfig(balance=0.1)}),
])  # fmt: skip
def test_states_from_token_to_token_and_balanced_experts_keep_documents_apart(
    kind: str, knobs: dict[str, Any], tmp_path: Path
) -> None:
    _, _, works, _ = passed(grouped(job(tmp_path, kind, **knobs)), shares=True)
    assert all(one.packed.seen is None and one.rows_of_screens is None for one in works)


def test_a_screen_that_documents_show_at_different_places_is_encoded_once(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen3_vl")
    made, _ = varied(4)
    made = [replace(one, screenshots=made[0].screenshots[-1:], history=()) for one in made]
    plan = rewritten(
        plan, [replace(one, instruction=f"{one.instruction} {one.instruction * at}") for at, one in enumerate(made)]
    )
    loss, apart, works, _ = passed(plan, shares=False)
    shared_loss, shared, fewer, _ = passed(plan, shares=True)
    assert abs(loss - shared_loss) < 1e-10
    assert all(torch.allclose(apart[name], shared[name], rtol=1e-6, atol=1e-8) for name in apart)
    assert sum(len(one.grids) for one in works) == 4 and sum(len(one.grids) for one in fewer) == 1
