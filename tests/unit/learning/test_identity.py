"""What makes two jobs the same training."""

from pathlib import Path

import pytest

from learning.data.sample import write_samples
from learning.job import Job, identity, steps_folder, sweep
from tests.unit.learning.samples import job, samples


@pytest.fixture
def plan(tmp_path: Path) -> Job:
    return job(tmp_path)


def changed(plan: Job, **train: object) -> Job:
    return plan.model_copy(update={"train": plan.train.model_copy(update=train)})


def test_a_job_on_other_ranks_or_shared_out_otherwise_is_the_same_training(plan: Job) -> None:
    other = changed(plan, processes=7, threads=3, balance=False, sequence_plans=False, token_cap=9, checkpoint_every=1)
    assert identity(other) == identity(plan)
    assert identity(plan.model_copy(update={"trace": Path("notes")})) == identity(plan)


def test_another_seed_rate_setting_or_sample_makes_another_training(plan: Job) -> None:
    known = {identity(plan), identity(plan.model_copy(update={"seed": 5})), identity(changed(plan, batch=3))}
    known.add(identity(plan.model_copy(update={"learning_rate": 1.0})))
    write_samples(plan.samples, samples(5)[0])
    known.add(identity(plan))
    assert len(known) == 5


def test_a_new_start_sweeps_what_other_trainings_left_and_keeps_its_own_checkpoints(plan: Job) -> None:
    stale = steps_folder(plan).with_name("another")
    making = plan.out.with_name("out.making-1")
    for folder in (steps_folder(plan), stale, making, plan.out):
        folder.mkdir(parents=True)
    sweep(plan)
    assert steps_folder(plan).exists() and plan.samples.exists()
    assert not any(folder.exists() for folder in (stale, making, plan.out))
