"""What a training tells of its steps: what the numbers mean, on one rank and on two, and what is left out."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from learning.algorithms.losses import entropies
from learning.algorithms.method import method_of
from learning.data.files import read_rollouts
from learning.data.rounds import Sampler
from learning.engines.fsdp.costs import peak_of
from learning.job import Job, TrainerReport
from learning.learner import Learner
from learning.trainer import refs_of, train
from models.families.registry import reply_limit
from schemas.tables.policy import MEASURES
from tasks.launching.trainer_process import TrainerProcess
from tests.unit.learning import replies
from tests.unit.learning.samples import job, parent

pytestmark = pytest.mark.usefixtures("forked")


def sampler_of(plan: Job) -> Sampler:
    return Sampler([one.weight for one in method_of(plan.train).read(plan.samples)], plan.seed)


def messages_of(plan: Job, folder: Path, processes: int = 1) -> list[TrainerReport]:
    """The points of a training in a process of its own."""
    folder.mkdir(exist_ok=True)
    alone = plan.model_copy(
        update={"train": plan.train.model_copy(update={"processes": processes}), "out": folder / "out"}
    )
    messages: list[TrainerReport] = []
    with TrainerProcess(alone, folder) as trainer:
        trainer.listen(messages.append)
    return [one for one in messages if one.step is not None]


def measured(plan: Job, steps: int = 1) -> dict[str, float]:
    """The measures of the first steps on one rank, by the learner itself."""
    learner, sampler = Learner(plan, method_of(plan.train).read(plan.samples), 0, 1), sampler_of(plan)
    try:
        for step in range(steps):
            result = learner.step(learner.prepare(refs_of(plan, sampler, step)), plan.learning_rate)
        return learner.measured(result)[1]
    finally:
        learner.close()


def test_imitation_of_the_small_policy_tells_what_is_known_and_leaves_out_what_is_not(tmp_path: Path) -> None:
    parent(tmp_path)
    (*_, last) = messages_of(job(tmp_path, steps=2), tmp_path / "one")
    known = {
        "grad_norm", "learning_rate", "entropy", "thought_tokens", "reply_tokens", "tokens_per_s", "peak_memory_gb"
    }  # fmt: skip
    assert set(last.measures) == known
    assert all(value > 0 for value in last.measures.values())


def test_replies_of_a_group_tell_their_advantages_ratios_and_lengths(tmp_path: Path) -> None:
    plan = replies.job(tmp_path, "qwen2_5_vl", "grpo")
    drawn = read_rollouts(plan.samples)
    found = measured(plan)
    batch = [drawn[ref.sample] for ref in refs_of(plan, sampler_of(plan), 0)]
    lengths = [len(one.token_ids) for one in batch]
    advantages = np.repeat([one.advantage for one in batch], lengths)
    assert found["advantage_std"] == pytest.approx(advantages.std(), rel=1e-6)
    assert found["reply_tokens"] == pytest.approx(np.mean(lengths))
    most = reply_limit(plan.policy)
    assert found["truncated"] == pytest.approx(np.mean([length >= most for length in lengths]))
    assert found["kl"] == pytest.approx(0.0, abs=1e-6) and found["clipped"] == 0.0
    assert found["mismatch"] < 1e-3
    assert found["entropy"] > 0 and "mfu" not in found and "staleness" not in found
    assert measured(plan, steps=3)["kl"] > 0


@pytest.mark.nightly
def test_two_ranks_tell_what_one_does(tmp_path: Path) -> None:
    plan = replies.job(tmp_path, "qwen2_5_vl", "grpo", steps=2)
    one, two = (messages_of(plan, tmp_path / str(n), n) for n in (1, 2))
    assert [point.step for point in one] == [point.step for point in two] == [1, 2]
    for alone, shared in zip(one, two, strict=True):
        assert alone.loss == pytest.approx(shared.loss, abs=2e-4)
        assert alone.measures.keys() == shared.measures.keys()
        for name in alone.measures.keys() - {"tokens_per_s", "peak_memory_gb"}:
            assert alone.measures[name] == pytest.approx(shared.measures[name], rel=1e-2, abs=1e-5), name


@pytest.mark.slow
def test_batches_of_a_stream_tell_how_old_their_tokens_are(tmp_path: Path) -> None:
    plan, stream = replies.streamed(tmp_path, "qwen2_5_vl")
    stream.end()
    points = messages_of(plan, tmp_path / "one")
    assert points[0].measures["staleness"] == 0.0 and 0 < points[-1].measures["staleness"] <= 1.0


def test_pairs_tell_margins_of_their_own_beside_the_lakes_measures(tmp_path: Path) -> None:
    found = measured(replies.job(tmp_path, "qwen2_5_vl", "dpo"))
    assert found.keys() - set(MEASURES) == {"margin", "preferred"}
    assert "kl" not in found


def test_an_entropy_is_that_of_the_distribution_also_over_many_rows_and_temperatures() -> None:
    logits = torch.randn(1300, 17, generator=torch.Generator().manual_seed(0))
    heat = torch.rand(1300, generator=torch.Generator().manual_seed(1)) + 0.5
    expected = torch.distributions.Categorical(logits=logits / heat[:, None]).entropy()
    assert torch.allclose(entropies(logits, heat), expected, atol=1e-5)
    assert entropies(torch.tensor([[0.0, -torch.inf]])).item() == 0.0
    assert entropies(logits[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_only_a_device_whose_peak_is_known_has_a_utilisation(name: str, peak: float | None) -> None:
    assert peak_of(name) == peak


def test_profiled_steps_leave_a_trace_of_each_rank_beside_the_checkpoint_and_change_no_weight(tmp_path: Path) -> None:
    parent(tmp_path)
    plain = job(tmp_path, steps=6)
    profiled = plain.train.model_copy(update={"profile": 2})
    looked = plain.model_copy(update={"train": profiled, "out": tmp_path / "p/out"})
    (tmp_path / "p").mkdir()
    train(plain)
    train(looked)
    (trace,) = looked.profiles.iterdir()
    assert trace.name == "rank-0.json.gz"
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    steps = {one["name"] for one in events if one.get("name", "").startswith("ProfilerStep#")}
    assert steps == {"ProfilerStep#2", "ProfilerStep#3"}
    assert (plain.out / "model.safetensors").read_bytes() == (looked.out / "model.safetensors").read_bytes()
    assert not plain.profiles.exists()
