"""Agent DPO on the small policy: the preferred reply gains on the rejected one, against a parent that stays."""

from pathlib import Path

import pytest
import torch

from learning.algorithms.dpo import PairObjective
from learning.data.sample import Preference, read_preferences, write_preferences, write_screenshots
from learning.engines.engine import SampleRef
from learning.engines.tiny.engine import TinyEngine
from learning.job import Job
from learning.learner import Learner
from learning.trainer import train
from models.tiny.generator import read_tokenizer
from schemas.config.training import PreferenceConfig
from tests.unit.learning.samples import POLICY, TRAIN, parent, samples


@pytest.fixture
def plan(tmp_path: Path) -> Job:
    parent(tmp_path)
    made, pngs = samples(4)
    pairs = [
        Preference(f"p{at}", one.task_id, one.screenshots, one.instruction, (), click(at), click(50 + at))
        for at, one in enumerate(made)
    ]
    write_preferences(tmp_path / "samples.parquet", pairs)
    write_screenshots(tmp_path / "screenshots.parquet", pngs)
    wanted = {"method": "dpo", "batch": 4, "warmup": 0, "decay": 0.0, "preference": PreferenceConfig(beta=0.5)}
    return Job(
        parent=tmp_path / "parent",
        out=tmp_path / "out",
        samples=tmp_path / "samples.parquet",
        screenshots=tmp_path / "screenshots.parquet",
        steps=4,
        learning_rate=2e-3,
        policy=POLICY,
        train=TRAIN.model_copy(update=wanted),
    )


def click(at: int) -> str:
    return f"Action: click(start_box='({10 * at},500)')"


def first_step(plan: Job) -> tuple[float, dict[str, float]]:
    learner = Learner(plan, read_preferences(plan.samples), 0, 1)
    result = learner.step(learner.prepare([SampleRef(at, at) for at in range(4)]), 0.0)
    return float(result.loss), learner.metrics()


def test_a_policy_that_is_its_reference_pays_ln_2(plan: Job) -> None:
    loss, numbers = first_step(plan)
    assert loss == pytest.approx(float(torch.tensor(2.0).log()))
    assert numbers == {"margin": 0.0, "preferred": 0.0}


def test_the_preferred_replies_gain_on_the_rejected_ones(plan: Job) -> None:
    train(plan)

    def sums(checkpoint: Path) -> torch.Tensor:
        learner = Learner(plan.model_copy(update={"parent": checkpoint}), read_preferences(plan.samples), 0, 1)
        return learner.sums(learner.engine.ready(learner.prepare([SampleRef(at, at) for at in range(4)])))

    gains = sums(plan.out) - sums(plan.parent)
    assert float((gains[0::2] - gains[1::2]).min()) > 0


def test_an_end_token_is_no_part_of_thought_and_action(plan: Job) -> None:
    pair = read_preferences(plan.samples)[0]
    engine = TinyEngine(plan, 0, 1)
    documents = PairObjective(plan, engine).documents([pair])
    engine.encode(documents, plan.screenshots)
    tokens = engine.ready([SampleRef(0, 0)]).pieces[0].targets
    assert read_tokenizer(plan.parent).decode(tokens.tolist()) == pair.chosen
