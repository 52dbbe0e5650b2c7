"""Training while collecting goes on: what is too old, what the folder between the two holds, and rounds of batches."""

import json
import threading
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from learning.data.files import Rollout
from learning.data.stream import KEEP, StreamFolder, leave_out_stale, staleness, updates_of, weights_name
from learning.job import Job
from learning.learner import Learner
from learning.trainer import train
from schemas.failure import FlywheelError, UsageError
from tests.unit.learning.engines.tiny.test_small_groups import GROUP, job, rolled_out
from tests.unit.learning.samples import parent


def rollout(trajectory: str = "t", step: int = 0) -> Rollout:
    return Rollout(trajectory, step, "task", ("s",), "asked", (), "reply", (1, 2), (-0.5, -0.5))


def test_the_name_of_weights_tells_how_many_updates_they_have_had() -> None:
    for updates in (0, 1, 17):
        assert updates_of(weights_name("policy-0003", "policy-0002", updates), "policy-0003", "policy-0002") == updates
    for foreign in ("policy-0003", "policy-0001", "policy-0004+2", "policy-0003+x", "explorer-2"):
        assert updates_of(foreign, "policy-0003", "policy-0002") is None


@pytest.mark.parametrize(
    ("chosen_at", "trained_at", "age"), [(0, 0, 0), (2, 5, 3), (5, 5, 0), (6, 5, None), (None, 5, None)]
)
def test_staleness_counts_updates_and_knows_nothing_of_weights_that_were_not_made(
    chosen_at: int | None, trained_at: int, age: int | None
) -> None:
    assert staleness(chosen_at, trained_at) == age


def test_of_a_play_that_spans_weights_only_the_steps_beyond_the_bound_are_left_out() -> None:
    steps = [rollout(step=step) for step in range(4)]
    ages: dict[tuple[str, int], int | None] = {("t", 0): 3, ("t", 1): 2, ("t", 2): 0, ("t", 3): None}
    kept, left_out = leave_out_stale(steps, ages, 2)
    assert [(one.step, one.age) for one in kept] == [(1, 2), (2, 0)] and left_out == 2
    assert leave_out_stale(steps, ages, 0)[1] == 3


def test_of_a_play_that_a_critic_judges_none_is_left_where_one_step_is_too_old() -> None:
    steps = [rollout(name, step) for name in ("old", "young") for step in range(2)]
    ages: dict[tuple[str, int], int | None] = {("old", 0): 3, ("old", 1): 0, ("young", 0): 1, ("young", 1): 0}
    kept, left_out = leave_out_stale(steps, ages, 2, whole=True)
    assert [(one.trajectory_id, one.age) for one in kept] == [("young", 1), ("young", 0)] and left_out == 2


def test_what_no_policy_drew_is_never_too_old() -> None:
    kept, left_out = leave_out_stale([rollout("demonstration")], {}, 0)
    assert len(kept) == 1 and left_out == 0


def test_batches_are_counted_and_keep_their_notes_and_half_a_batch_is_none(tmp_path: Path) -> None:
    folder = StreamFolder(tmp_path / "stream")
    assert (folder.batches(), folder.published(), folder.ended()) == (0, 0, False)
    assert [folder.put([rollout()], {"s": b"png"}, {"n": n}) for n in (1, 2)] == [1, 2]
    folder.rollouts(3).write_bytes(b"half")
    assert folder.batches() == 2 and folder.has(2) and not folder.has(3)
    assert [notes["n"] for notes in StreamFolder(tmp_path / "stream").notes()] == [1, 2]
    assert folder.put([rollout()], {"s": b"png"}, {"n": 3}) == 3
    folder.end()
    assert folder.ended()


def test_only_the_newest_weights_stay_and_half_written_ones_are_not_there(tmp_path: Path) -> None:
    folder = StreamFolder(tmp_path)
    for updates in range(1, 7):
        folder.weights(updates).mkdir()
    (tmp_path / "weights-00007.making-123").mkdir()
    folder.forget()
    assert folder.published() == 6
    kept = [updates for updates in range(1, 8) if folder.weights(updates).exists()]
    assert kept == list(range(7 - KEEP, 7))


@pytest.fixture
def streamed(tmp_path: Path) -> Job:
    """A job with a stream whose folder is still empty."""
    parent(tmp_path)
    rollouts, pngs = rolled_out(tmp_path)
    again = GROUP.model_copy(update={"most_mismatch": None})  # the same rollouts for every update
    plan = job(tmp_path, tmp_path / "job", rollouts, pngs, group=again)
    folder = StreamFolder(tmp_path / "stream")
    return plan.model_copy(
        update={"stream": tmp_path / "stream", "samples": folder.rollouts(1), "screenshots": folder.screenshots(1)}
    )


def test_batches_are_trained_on_as_they_come_and_each_gives_weights(
    streamed: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert streamed.stream is not None
    folder = StreamFolder(streamed.stream)
    rollouts, pngs = rolled_out(tmp_path)

    def feed() -> None:
        for number in (1, 2):
            time.sleep(0.3)
            folder.put(rollouts, pngs, {})
            while folder.published() < number:
                time.sleep(0.01)
        folder.end()

    feeder = threading.Thread(target=feed)
    feeder.start()
    train(streamed)
    feeder.join()
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["published"] for one in said if "published" in one] == [1, 2]
    assert said[-1]["waited_s"] >= 0.5
    numbers = said[-1]["numbers"]
    assert 0.0 < numbers["mismatch_fresh"] == pytest.approx(numbers["mismatch"])
    weights = [
        load_file(path / "model.safetensors")["model.language_model.norm.weight"].tolist()
        for path in (streamed.parent, folder.weights(1), folder.weights(2), streamed.out)
    ]
    assert weights[0] != weights[1] != weights[2] == weights[3]


def test_each_batch_is_compared_with_the_weights_before_it(
    streamed: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One step per batch: then the policy has not moved when its loss is taken, however often it moved before."""
    assert streamed.stream is not None
    folder = StreamFolder(streamed.stream)
    rollouts, pngs = rolled_out(tmp_path)
    for _ in range(3):
        folder.put(rollouts, pngs, {})
    folder.end()
    group = streamed.train.group.model_copy(update={"epochs": 1.0})
    train(streamed.model_copy(update={"train": streamed.train.model_copy(update={"group": group})}))
    numbers = json.loads(capsys.readouterr().out.splitlines()[-1])["numbers"]
    assert numbers["moved"] == 0.0 and numbers["clipped"] == 0.0


def test_a_stream_that_ends_without_a_batch_is_said(streamed: Job) -> None:
    assert streamed.stream is not None
    StreamFolder(streamed.stream).end()
    with pytest.raises(FlywheelError, match="without a batch"):
        train(streamed)


def test_a_method_that_cannot_go_on_with_other_samples_says_so(streamed: Job) -> None:
    wanted = streamed.model_copy(update={"train": streamed.train.model_copy(update={"method": "dpo"})})
    with pytest.raises(UsageError, match=r"train\.stream\.on.*dpo"):
        Learner(wanted, [], 0, 1)
