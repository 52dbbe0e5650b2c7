"""Agent DPO on the small policy: the preferred reply gains on the rejected one, against a parent that stays."""

from pathlib import Path

import pytest
import torch

from learning.data.preferences import Preference, write_preferences
from learning.data.sample import write_screenshots
from learning.engines.learner import Draw
from learning.engines.tiny.pairs import PairLearner
from learning.job import Job
from learning.trainer import learner_of, train
from schemas.config.training import PreferenceConfig
from tests.unit.learning.samples import POLICY, TRAIN, parent, samples


@pytest.fixture
def plan(tmp_path: Path) -> Job:
    parent(tmp_path)
    made, pngs = samples(4)
    pairs = [
        Preference(f"p{at}", one.task_id, one.screenshots, f"{one.instruction}<|im_start|>", click(at), click(50 + at))
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


def first_step(plan: Job, **changes: object) -> tuple[float, dict[str, float]]:
    from learning.data.preferences import read_preferences

    learner = learner_of(plan.model_copy(update=changes), read_preferences(plan.samples), 0, 1)
    assert isinstance(learner, PairLearner)
    taken = learner.step([Draw(at, at) for at in range(4)], 0.0)
    return float(taken.loss), learner.numbers()


def test_a_policy_that_is_its_reference_pays_ln_2(plan: Job) -> None:
    loss, numbers = first_step(plan)
    assert loss == pytest.approx(float(torch.tensor(2.0).log()))
    assert numbers == {"margin": 0.0, "preferred": 0.0}


def test_the_preferred_replies_gain_on_the_rejected_ones(plan: Job) -> None:
    train(plan)
    trained = plan.model_copy(update={"parent": plan.out})
    from learning.data.preferences import read_preferences

    pairs = read_preferences(plan.samples)
    learners = [PairLearner(job, pairs, 0, 1) for job in (plan, trained)]
    replies = [learners[0]._reply(pair, text) for pair in pairs for text in (pair.chosen, pair.rejected)]
    with torch.no_grad():
        old, new = (one._sums(one._net, replies) for one in learners)
    margins = (new - old)[0::2] - (new - old)[1::2]
    assert float(margins.min()) > 0


def test_an_end_token_is_no_part_of_thought_and_action(plan: Job) -> None:
    from learning.data.preferences import read_preferences

    pair = read_preferences(plan.samples)[0]
    learner = PairLearner(plan, [pair], 0, 1)
    reply = learner._reply(pair, pair.chosen)
    assert learner._layer._tokenizer.decode(list(reply.token_ids)) == pair.chosen
