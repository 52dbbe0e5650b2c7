"""A method that is named by a dotted path trains the small policy and any other model, on one rank and on two."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from learning.data.sample import read_samples
from learning.engines.engine import SampleRef
from learning.job import Job
from learning.learner import Learner
from learning.trainer import train
from tests.system.parts.trainings import trained
from tests.unit.learning import chats, samples

METHOD = "tests.foreign:METHOD"


def small(folder: Path, **train: object) -> Job:
    samples.parent(folder)
    return samples.job(folder, **train)


def large(folder: Path, **train: object) -> Job:
    return chats.job(folder, "qwen3_vl", **train)


@pytest.mark.parametrize("job", [small, large])
def test_a_method_from_outside_is_trained_against_its_parent(
    job: Callable[..., Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = job(tmp_path, method=METHOD, options={"pull": 0.5})
    train(plan)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    losses = [one["loss"] for one in said if "step" in one]
    assert len(losses) == plan.steps and losses[-1] < losses[0]
    assert said[-1]["numbers"]["tokens"] > 0 and said[-1]["numbers"]["moved"] > 0
    before, after = (load_file(folder / "model.safetensors") for folder in (plan.parent, plan.out))
    assert any(not before[name].equal(after[name]) for name in before)


@pytest.mark.parametrize("job", [small, large])
def test_before_the_first_step_the_parent_is_the_policy(job: Callable[..., Job], tmp_path: Path) -> None:
    plan = job(tmp_path, method=METHOD)
    learner = Learner(plan, read_samples(plan.samples), 0, 1)
    learner.step(learner.prepare([SampleRef(at, at) for at in range(8)]), 0.0)
    assert learner.metrics()["moved"] < 1e-4
    learner.close()


@pytest.mark.nightly
def test_two_ranks_train_by_it_as_one_does(tmp_path: Path, forked: None) -> None:
    losses = []
    for processes in (1, 2):
        plan = large(tmp_path, method=METHOD, processes=processes)
        _, messages = trained(plan.model_copy(update={"out": tmp_path / f"out-{processes}"}))
        losses.append([one.loss for one in messages if one.step is not None])
    assert losses[0] == pytest.approx(losses[1], abs=2e-4)
