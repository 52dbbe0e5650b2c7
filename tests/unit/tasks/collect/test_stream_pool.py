"""The pool between collecting and training: who may begin, and which finished groups can teach."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from environments.catalog import catalog
from learning.data.stream import StreamFolder
from rollout.trajectory import PlannedTrajectory
from schemas.action import Wait, to_json
from schemas.config import config_of
from schemas.config.training import GroupConfig
from schemas.failure import LakeError
from schemas.tables.screenshot import Screenshot
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.collect.stream_pool import StreamPool, can_teach
from tasks.running.run import run_of
from tasks.shared.material import PolicyRecipe
from tasks.train.groups import planned_groups


def finished(one: PlannedTrajectory, success: bool | None, reward: float | None = None) -> Trajectory:
    return Trajectory(
        trajectory_id=one.trajectory_id, iteration=1, run_id="run", task_id=one.task.task_id, seed=one.seed,
        split="train", group_id=one.group_id, attempt=one.attempt, policy="policy", policy_version="policy-0000",
        instruction="", n_steps=1, reward=success if reward is None else reward, success=success,
        termination="done", sampling="{}", started_at=datetime.now(UTC), wall_s=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(("stale", "room"), [(0, 2), (1, 4)])
def test_so_many_groups_are_on_their_way_and_one_that_cannot_teach_makes_room(
    tmp_path: Path, stale: int, room: int
) -> None:
    train = {"method": "grpo", "group": {"size": 2, "k": 1}, "stream": {"on": True, "groups": 2, "stale": stale}}
    fields = {"environments": {"fake": {}}, "suite": {"tasks": ["click-target"]}, "train": train}
    config = config_of({**fields, "lake": {"uri": str(tmp_path / "lake")}})
    lake = Lake.open(config.lake)
    pool = StreamPool(
        config, lake, PolicyRecipe("policy-0001", "policy-0000", 1, {}), StreamFolder(tmp_path / "stream")
    )
    trajectories = planned_groups(run_of(config), 1, catalog(config)[0], 12, "policy-0000")
    firsts, seconds = trajectories[0::2], trajectories[1::2]
    assert [pool.may_begin(one) for one in firsts] == [True] * room + [None] * (6 - room)
    assert pool.may_begin(seconds[0]) is True  # of a group that has begun
    pool.finished([finished(firsts[0], False)])
    assert pool.may_begin(firsts[room]) is None
    pool.finished([finished(seconds[0], False)])
    assert pool.may_begin(firsts[room]) is True
    pool.finished([finished(firsts[1], None), finished(seconds[1], True)])  # the environment failed: rolled out again
    assert pool.may_begin(firsts[-1]) is None


def test_a_critic_learns_from_groups_of_one_reward_too_so_they_wait_for_their_batch(tmp_path: Path) -> None:
    train = {"method": "ppo", "group": {"size": 2, "k": 1}, "stream": {"on": True, "groups": 2, "stale": 0}}
    fields = {"environments": {"fake": {}}, "suite": {"tasks": ["click-target"]}, "train": train}
    config = config_of({**fields, "lake": {"uri": str(tmp_path / "lake")}})
    lake = Lake.open(config.lake)
    pool = StreamPool(
        config, lake, PolicyRecipe("policy-0001", "policy-0000", 1, {}), StreamFolder(tmp_path / "stream")
    )
    trajectories = planned_groups(run_of(config), 1, catalog(config)[0], 6, "policy-0000")
    assert [pool.may_begin(one) for one in trajectories[0::2]] == [True, True, None]
    pool.finished([finished(one, False) for one in trajectories[:2]])
    assert pool.may_begin(trajectories[4]) is None


@pytest.mark.parametrize("suite", ["judged", "graded"])
@pytest.mark.parametrize(("scores", "teaches"), [((0.2, 0.4), True), ((0.2, 0.2), False)])
def test_trajectories_of_a_judged_or_graded_task_that_all_fail_teach_by_their_scores(
    tmp_path: Path, scores: tuple[float, float], teaches: bool, suite: str
) -> None:
    train = {"method": "grpo", "group": {"size": 2, "k": 1}, "stream": {"on": True, "groups": 2, "stale": 0}}
    fields = {"environments": {"fake": {}}, "suite": {"tasks": ["note"]}, "judge": {"kind": "fake"}, "train": train}
    if suite == "graded":
        fields |= {"environments": {"games": {}}, "suite": {"tasks": ["snake-1"]}, "judge": {}}
    config = config_of({**fields, "lake": {"uri": str(tmp_path / "lake")}})
    lake, stream = Lake.open(config.lake), StreamFolder(tmp_path / "stream")
    pool = StreamPool(config, lake, PolicyRecipe("policy-0001", "policy-0000", 1, {}), stream)
    trajectories = planned_groups(run_of(config), 1, catalog(config)[0], 6, "policy-0000")
    assert [pool.may_begin(one) for one in trajectories[0::2]] == [True, True, None]
    pool.finished([finished(one, False, score) for one, score in zip(trajectories[:2], scores, strict=True)])
    assert (pool.may_begin(trajectories[4]) is None) is teaches  # a group that teaches nothing makes room


def test_a_group_teaches_where_outcomes_differ_or_a_success_can_be_shown_or_lengths_cost() -> None:
    plain, injected = GroupConfig(), GroupConfig(inject=True)
    assert can_teach([True, False, None], plain, solved=True)
    for outcomes in ([False, False, None], [True, True], [None, None]):
        assert not can_teach(outcomes, plain, solved=outcomes[0] is True)
    assert can_teach([False, False, None], injected, solved=False)
    assert not can_teach([True, True], injected, solved=True)
    assert not can_teach([None, None], injected, solved=False)
    assert can_teach([True, True], GroupConfig(overlong=4), solved=True)
    easy = [True, True, True, False]  # whichever two are drawn, one succeeds
    assert can_teach(easy, plain, solved=True)
    assert not can_teach(easy, GroupConfig(size=4, k=2, advantage="passk"), solved=True)


def test_a_group_of_equal_scores_of_which_none_is_a_success_is_shown_one() -> None:
    injected = GroupConfig(inject=True)
    assert can_teach([0.4, 0.4], injected, solved=False) and not can_teach([0.9, 0.9], injected, solved=True)


@pytest.mark.parametrize(
    ("stored", "said"), [("another", "does not match its name"), (None, "1 of 1 screenshots are not in the")]
)
def test_a_batch_with_a_picture_that_is_damaged_or_missing_is_refused_by_its_name(
    tmp_path: Path, stored: str | None, said: str
) -> None:
    train = {"method": "grpo", "group": {"size": 2, "k": 1}, "stream": {"on": True, "groups": 1, "stale": 0}}
    fields = {"environments": {"fake": {}}, "suite": {"tasks": ["click-target"]}, "train": train}
    config = config_of({**fields, "lake": {"uri": str(tmp_path / "lake")}})
    lake, folder = Lake.open(config.lake), StreamFolder(tmp_path / "stream")
    pool = StreamPool(config, lake, PolicyRecipe("policy-0001", "policy-0000", 1, {}), folder)
    group = planned_groups(run_of(config), 1, catalog(config)[0], 2, "policy-0000")
    sampling = {"sampling": json.dumps({"temperature": 1.0})}
    outcomes = zip(group, (True, False), strict=True)
    rows = [finished(one, success).model_copy(update=sampling) for one, success in outcomes]
    shown = hashlib.sha256(b"the picture").hexdigest()
    steps = [
        Step(
            trajectory_id=one.trajectory_id, step=0, iteration=1, screenshot=shown, next_screenshot=None,
            screen_width=160, screen_height=210, thought="", actions=[to_json(Wait())], action_type="wait", x=None,
            y=None, dialect="box_v1", raw_text="wait()", action_error=None, actor="policy",
            policy_version="policy-0000", token_ids=[1, 2], logprobs=[-0.5, -0.5], elements="[]", observe_ms=1.0,
            think_ms=1.0, act_ms=1.0,
        )
        for one in rows
    ]  # fmt: skip
    lake.append("trajectories", rows)
    lake.append("steps", steps)
    if stored:
        seen = Screenshot(sha256=shown, iteration=1, png=stored.encode(), width=160, height=210, phash="0" * 16)
        lake.append("screenshots", [seen])
    with pytest.raises(LakeError, match=said) as refused:
        pool.finished(rows)
    assert shown in str(refused.value) and folder.batches() == 0
    right = Screenshot(sha256=shown, iteration=1, png=b"the picture", width=160, height=210, phash="0" * 16)
    lake.upsert("screenshots", [right])
    again = StreamPool(config, lake, PolicyRecipe("policy-0001", "policy-0000", 1, {}), folder)
    again.feed()
    assert folder.batches() == 1
