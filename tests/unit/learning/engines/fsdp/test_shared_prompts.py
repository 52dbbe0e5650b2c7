"""Documents that begin alike are computed once; losses and gradients are those of separate documents."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from learning.algorithms.method import method_of
from learning.data.files import Rollout, read_rollouts, write_rollouts
from learning.data.sample import TrainSample, write_samples, write_screenshots
from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.model import gradients_of
from learning.engines.fsdp.phases import RankWork
from learning.job import Job
from learning.learner import Learner
from learning.parallel.packed_attention import Copied
from schemas.config.training import ExpertsConfig, GroupConfig, LoraConfig, MemoryConfig, PpoConfig
from tests.unit.learning.chats import job, varied
from tests.unit.learning.engines.fsdp.test_video_samples import PNGS, SAMPLE
from tests.unit.learning.folded import SLICES, folded_job
from tests.unit.learning.replies import job as replies

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


@dataclass
class Passed:
    """A step on all samples."""

    loss: float
    gradients: dict[str, torch.Tensor]
    """Those of the policy, and of a critic."""
    outputs: torch.Tensor
    """(targets, 2) log probability and entropy of each target, by its number."""
    works: list[RankWork]
    operations: float


def passed(plan: Job, shares: bool) -> Passed:
    """Takes a step on all samples in double precision."""
    plan = plan.model_copy(update={"train": plan.train.model_copy(update={"share_prompts": shares})})
    engine = FsdpEngine(plan, 0, 1, torch.float64)
    learner = Learner(plan, method_of(plan.train).read(plan.samples), 0, 1, engine)
    try:
        documents = range(len(engine.items))
        batch = engine.prepared(documents)
        loss = float(learner.gradient(batch))
        gradients, critic = engine.gradients(), getattr(learner.objective, "critic", None)
        if critic is not None:
            gradients["critic.head"] = critic.head.grad
            gradients |= {f"critic.{name}": one for name, one in gradients_of(critic.body._model).items()}
        outputs = torch.full((sum(engine.items[one].targets for one in documents), 2), torch.nan, dtype=torch.float64)
        for piece in engine.prepared(documents).pieces:
            found = engine.forward(piece)
            assert found.entropy is not None
            outputs[found.tokens] = torch.stack([found.logprobs.detach(), found.entropy], dim=1)
        return Passed(loss, gradients, outputs, list(batch.pieces), batch.operations)
    finally:
        learner.close()


def sizes(works: Sequence[RankWork]) -> list[int]:
    return [work.ids.numel() for work in works]


def compared(plan: Job, close: float = 1e-8) -> tuple[Passed, Passed]:
    """The step on separate documents, and the step on shared prompts, which has the same results."""
    apart, shared = passed(plan, shares=False), passed(plan, shares=True)
    assert abs(apart.loss - shared.loss) < 1e-10 and torch.allclose(apart.outputs, shared.outputs, atol=1e-8)
    assert apart.gradients.keys() == shared.gradients.keys()
    for name, one in apart.gradients.items():
        assert torch.allclose(one, shared.gradients[name], rtol=1e-6, atol=close), name
    cap = plan.train.token_cap
    assert cap is None or (isinstance(cap, int) and max(sizes(shared.works)) <= cap)
    return apart, shared


@pytest.mark.parametrize("kind", SHARING)
@pytest.mark.parametrize(("knobs", "share"), [({}, 0.3), ({"token_cap": 1500, "activation_checkpointing": True}, 0.8)])
def test_the_gradient_is_that_of_separate_documents_from_fewer_tokens_and_screens(
    kind: str, knobs: dict[str, Any], share: float, tmp_path: Path
) -> None:
    apart, shared = compared(grouped(job(tmp_path, kind, **knobs)))
    screens = [sum(len(one.grids) for one in each.works) for each in (apart, shared)]
    assert sum(sizes(shared.works)) < share * sum(sizes(apart.works)) and screens[1] < screens[0]
    assert shared.operations < share * apart.operations


@pytest.mark.parametrize("kind", SHARING)
def test_documents_without_a_common_beginning_are_those_of_separate_documents(kind: str, tmp_path: Path) -> None:
    """Questions have no system text; their lengths differ, and so do the first tokens."""
    plan, (made, pngs) = job(tmp_path, kind), varied(6)
    texts = ("What is shown?", "Which button is at the top, and what does it do when it is pressed?", "How many?")
    asked = [
        replace(
            made[0], kind="perception", screenshots=(digest,), instruction=text, thought="A page. " * (at + 1),
            actions=(), history=(), questions=(),
        )
        for at, (text, digest) in enumerate(zip(texts, sorted(pngs), strict=False))
    ]  # fmt: skip
    for samples in (asked, [*asked, made[0]], [*asked, *made[:2]]):
        _, shared = compared(rewritten(plan, samples))
        assert (shared.works[0].packed.seen is None) == (len(samples) < 5)


def test_gradients_of_many_copies_of_a_key_are_summed_exactly() -> None:
    key = torch.zeros(2, 1, 8, dtype=torch.bfloat16, requires_grad=True)
    copies = Copied.apply(key, torch.tensor([0] * 400 + [1]))
    assert isinstance(copies, torch.Tensor)
    copies.sum().backward()
    assert key.grad is not None and key.grad[:, 0, 0].tolist() == [400, 1]


@pytest.mark.parametrize(("kind", "knobs"), [
    ("qwen3_5", {}), ("qwen3_vl_moe", {"experts": ExpertsConfig(balance=0.1)}),
])  # fmt: skip
def test_states_from_token_to_token_and_balanced_experts_keep_documents_apart(
    kind: str, knobs: dict[str, Any], tmp_path: Path
) -> None:
    works = passed(grouped(job(tmp_path, kind, **knobs)), shares=True).works
    assert all(one.packed.seen is None and one.rows_of_screens is None for one in works)


def test_a_screen_that_documents_show_at_different_places_is_encoded_once(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen3_vl")
    made, _ = varied(4)
    made = [replace(one, screenshots=made[0].screenshots[-1:], history=()) for one in made]
    plan = rewritten(
        plan, [replace(one, instruction=f"{one.instruction} {one.instruction * at}") for at, one in enumerate(made)]
    )
    apart, shared = compared(plan)
    assert [sum(len(one.grids) for one in each.works) for each in (apart, shared)] == [4, 1]


@pytest.mark.parametrize(("kind", "frames"), [("qwen2_5_vl", 6), ("qwen3_vl", 4)])
def test_videos_share_frames_up_to_the_first_that_differs_in_picture_or_time(
    kind: str, frames: int, tmp_path: Path
) -> None:
    plan, still = job(tmp_path, kind), (SAMPLE.screenshots[0],) * 4
    first, second, *_, last = SAMPLE.screenshots
    videos = [
        SAMPLE, replace(SAMPLE, thought="Something else."), replace(SAMPLE, instruction="What is it?"),
        replace(SAMPLE, seconds=8.0), replace(SAMPLE, screenshots=(first, second, second, last)),
        replace(SAMPLE, screenshots=still), replace(SAMPLE, screenshots=still, seconds=6.0),
    ]  # fmt: skip
    write_screenshots(plan.screenshots, PNGS)
    apart, shared = compared(rewritten(plan, videos))
    assert sum(len(work.grids) for work in shared.works) == frames < sum(len(work.grids) for work in apart.works) / 5
    assert sum(sizes(shared.works)) < 0.7 * sum(sizes(apart.works))


def test_a_screen_that_a_document_shows_twice_is_encoded_once(tmp_path: Path) -> None:
    one = next(one for one in varied(6)[0] if len(one.screenshots) > 1)
    twice = replace(one, screenshots=one.screenshots[:1] * 2)
    turned = replace(one, screenshots=one.screenshots[::-1])
    _, shared = compared(rewritten(job(tmp_path, "qwen3_vl"), [twice, replace(twice, thought="Again."), one, turned]))
    assert [len(work.grids) for work in shared.works] == [2]


@pytest.mark.parametrize(("kind", "knobs"), [
    ("qwen2_5_vl", {}), ("qwen3_vl", {"lora": LoraConfig(rank=4)}),
    ("qwen3_vl_moe", {"memory": MemoryConfig(logits_chunk=7, freeze_vision=True)}),
])  # fmt: skip
def test_a_group_under_a_cap_is_one_micro_batch_and_separate_documents_are_several(
    kind: str, knobs: dict[str, Any], tmp_path: Path
) -> None:
    plan = job(tmp_path, kind, **knobs)
    one = next(one for one in varied(6)[0] if len(one.screenshots) > 1)
    plan = rewritten(plan, [replace(one, thought=word * (1 + at)) for at, word in enumerate(["Go on. ", "Wait. "] * 4)])
    longest = max(sizes(passed(plan, shares=False).works[:1])) // 8 + 1
    plan = plan.model_copy(update={"train": plan.train.model_copy(update={"token_cap": 3 * longest})})
    apart, shared = compared(plan)
    assert len(apart.works) >= 3 and len(shared.works) == 1 and shared.works[0].grids.shape[0] == 2


def in_groups(plan: Job) -> Job:
    """Rollouts in groups: each prompt with replies of other lengths and temperatures, one of them twice."""
    rollouts, made = read_rollouts(plan.samples), list[Rollout]()
    for group, one in enumerate(rollouts[:3]):
        for at, other in enumerate(rollouts[:4]):
            kept = len(other.token_ids) if at else 1
            won = at % 2 == 0
            given = {"token_ids": other.token_ids[:kept], "logprobs": other.logprobs[:kept]}
            given |= {"temperature": (1.0, 0.5, 0.8)[(group + at) % 3], "advantage": 0.3 * at - 0.4}
            given |= {"reward": float(won), "correct": won, "group_id": str(group), "step": 0}
            made.append(replace(one, trajectory_id=f"{group}-{at}", **given))  # type: ignore[arg-type]
    write_rollouts(plan.samples, [*made, replace(made[-1], trajectory_id="again")])
    return plan


PPO = PpoConfig(critic="alone", value_steps=0, policy_lambda=1.0, whiten=False, positive=0.3, most_mismatch=None)
METHODS: dict[str, dict[str, Any]] = {
    "grpo": {"group": GroupConfig(most_mismatch=None, ratio="sequence")}, "ppo": {"ppo": PPO}, "dpo": {},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_methods_that_compare_replies_to_one_prompt_share_it_in_every_pass(method: str, tmp_path: Path) -> None:
    plan = replies(tmp_path, "qwen3_vl", method, token_cap=800, **METHODS[method])
    apart, shared = compared(plan if method == "dpo" else in_groups(plan), 1e-6 if method == "ppo" else 1e-8)
    assert 2 * sum(sizes(shared.works)) < 1.1 * sum(sizes(apart.works)) and len(shared.works) < 0.6 * len(apart.works)


def test_slices_of_trajectories_that_begin_alike_share_the_prompt_of_their_first_replies(tmp_path: Path) -> None:
    plan = folded_job(tmp_path, "qwen2_5_vl", "sft")
    plan = plan.model_copy(update={"train": plan.train.model_copy(update={"token_cap": 900})})
    _, shared = compared(plan)
    beginnings = {SLICES[0][0], SLICES[3][0]}
    assert any(beginnings <= set(work.rows.tolist()) for work in shared.works)


def test_passes_without_a_step_take_documents_together_that_begin_alike(tmp_path: Path) -> None:
    plan = in_groups(replies(tmp_path, "qwen3_vl", "grpo", group=GroupConfig(most_mismatch=None)))
    engine = FsdpEngine(plan, 0, 1)
    engine.encode(read_rollouts(plan.samples), plan.screenshots)
    given = [at + 4 * group for at in range(4) for group in range(3)]
    assert engine.parts(given, 4) == [[4 * group + at for at in range(4)] for group in range(3)]
    engine.close()
