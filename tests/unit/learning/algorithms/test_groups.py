"""Groups become rollouts: who gets which advantage, and what is left out."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from learning.algorithms.advantages import SAME, analytic, centred
from learning.algorithms.groups import (
    DemonstrationStep,
    GroupStep,
    Member,
    demonstration,
    members_of,
    teaches,
    train_on,
)
from learning.data.documents import chat_of
from learning.data.files import Rollout, read_rollouts, write_rollouts
from models.families.family import ModelFamily, TinyFamily
from models.policy import Context
from models.vlm import CUT
from schemas.config.policy import PolicyConfig
from schemas.config.training import GroupConfig
from schemas.failure import FlywheelError
from schemas.observation import Observation, PastStep

POLICY = PolicyConfig(max_new_tokens=8, history_images=2)
PLAIN = GroupConfig(size=4, k=2)
SCREEN = Observation(b"", 1, 1, "")


def row(group: str, attempt: int, success: bool | None, step: int | None = 0, **changes: Any) -> GroupStep:
    fields = {
        "group_id": group,
        "trajectory_id": f"{group}-{attempt}",
        "attempt": attempt,
        "task_id": "t/a",
        "seed": 7,
        "instruction": "Click.",
        "success": success,
        "reward": None if success is None else float(success),
        "sampling": json.dumps({"temperature": 0.7}),
        "step": step,
        "screenshot": f"screen-{step}",
        "raw_text": "Action: wait()",
        "thought": "",
        "actions": ['{"type":"wait"}'],
        "token_ids": [1, 2, 3],
        "logprobs": [-0.1, -0.2, -0.3],
        "policy_version": "p1",
    }
    return GroupStep(**fields | changes)


def group(name: str, outcomes: list[bool | None]) -> list[GroupStep]:
    return [row(name, at, success) for at, success in enumerate(outcomes)]


def nothing(task: str, seed: int) -> None:
    return None


def success(seed: int = 7) -> Member:
    told = {
        "task_id": "t/a",
        "instruction": "Click.",
        "thought": "Click it.",
        "reward": 1.0,
        "screen_width": 100,
        "screen_height": 100,
    }
    told |= {"trajectory_id": "demo-0", "seed": seed, "actions": ['{"type":"click","x":0.5,"y":0.25}']}
    rows = [DemonstrationStep(**told, step=step, screenshot=f"screen-{step}") for step in range(2)]
    return demonstration(rows, TinyFamily(POLICY))


def test_successes_of_a_group_gain_and_failures_lose_by_the_group_advantage() -> None:
    found = train_on(members_of(group("g", [True, False, False, False]), POLICY, PLAIN), nothing, PLAIN, 0)
    assert (found.groups, found.informative) == (1, 1)
    wanted = centred(np.array([1.0, 0.0, 0.0, 0.0]))
    assert [rollout.advantage for rollout in found.rollouts] == pytest.approx(wanted)


def test_groups_of_one_reward_are_left_out() -> None:
    rows = [*group("a", [True] * 4), *group("b", [False] * 4), *group("c", [True, False])]
    found = train_on(members_of(rows, POLICY, PLAIN), nothing, PLAIN, 0)
    assert (found.groups, found.informative) == (3, 1)
    assert {rollout.trajectory_id[0] for rollout in found.rollouts} == {"c"}


def test_an_environment_failure_is_counted_and_changes_nobodys_advantage() -> None:
    rows = [*group("g", [True, False, None]), row("g", 3, None, None)]
    found = train_on(members_of(rows, POLICY, PLAIN), nothing, PLAIN, 0)
    alone = train_on(members_of(group("g", [True, False]), POLICY, PLAIN), nothing, PLAIN, 0)
    assert found.environment_failures == 2
    assert found.rollouts == alone.rollouts


def test_all_steps_of_a_play_share_its_advantage_and_show_the_last_screens_and_all_replies() -> None:
    rows = [row("g", 0, True, step) for step in range(3)] + [row("g", 1, False)]
    found = train_on(members_of(rows, POLICY, PLAIN), nothing, PLAIN, 0).rollouts
    assert [rollout.advantage for rollout in found] == [1.0, 1.0, 1.0, -1.0]
    assert found[2].screenshots == ("screen-1", "screen-2")
    assert found[2].past_replies == ("Action: wait()",) * 2
    assert found[2].token_ids == (1, 2, 3) and found[2].temperature == 0.7


def test_the_steps_of_a_play_show_the_screens_since_the_last_fold() -> None:
    policy = PolicyConfig(max_new_tokens=8, context="fold", live_images=3, fold_images=2)
    rows = [row("g", 0, True, step) for step in range(6)] + [row("g", 1, False)]
    found = train_on(members_of(rows, policy, PLAIN), nothing, PLAIN, 0).rollouts
    shown = [tuple(int(name[-1]) for name in rollout.screenshots) for rollout in found[:6]]
    assert shown == [(0,), (0, 1), (0, 1, 2), (2, 3), (2, 3, 4), (4, 5)]
    assert [len(rollout.past_replies) for rollout in found[:6]] == [0, 1, 2, 3, 4, 5]


def test_the_prompt_is_what_the_policy_was_asked() -> None:
    said = ("Thought: Look.\nAction: click(start_box='(480,520)')", "Action: type(content='it\\'s')\n\nmore")
    turns = (PastStep("Look.", "click(start_box='(480,520)')", SCREEN), PastStep("", "type(content='it\\'s')", SCREEN))
    family = ModelFamily(POLICY)
    messages, reply = chat_of(Rollout("t", 2, "a", ("x", "y"), "Do it.", said, "r"), family, [(1, 1)] * 2, 0)
    assert (messages, reply) == (family.messages(Context("Do it.", turns, SCREEN, 0)), "r")


def test_an_all_failed_group_is_shown_a_stored_success_in_place_of_its_last_trajectory() -> None:
    config = GroupConfig(size=4, k=2, inject=True)
    asked: list[tuple[str, int]] = []

    def stored(task: str, seed: int) -> Member:
        asked.append((task, seed))
        return success()

    rows = [*group("a", [False, False, None, False]), *group("b", [True, False, False, False])]
    found = train_on(members_of(rows, POLICY, config), stored, config, 0)
    assert asked == [("t/a", 7)]
    assert (found.injected, found.informative) == (1, 2)
    shown = [rollout for rollout in found.rollouts if rollout.trajectory_id == "demo-0"]
    assert shown[0].advantage == pytest.approx(math.sqrt(2)) and not shown[0].token_ids and not shown[0].logprobs
    assert shown[0].reply == "Thought: Click it.\nAction: click(start_box='(500,250)')"
    assert {rollout.trajectory_id for rollout in found.rollouts} == {"a-0", "a-1", "demo-0", "b-0", "b-1", "b-2", "b-3"}


def test_rewards_of_a_graded_task_are_compared_as_they_are_and_pass_at_k_asks_for_success_alone() -> None:
    rewards, successes = [0.9, 0.6, 0.3, 0.0], [True, False, False, False]
    rows = [row("g", at, won, reward=reward) for at, (reward, won) in enumerate(zip(rewards, successes, strict=True))]
    found = train_on(members_of(rows, POLICY, PLAIN), nothing, PLAIN, 0)
    assert [rollout.advantage for rollout in found.rollouts] == pytest.approx(centred(np.array(rewards)))
    config = GroupConfig(size=4, k=2, advantage="passk")
    found = train_on(members_of(rows, POLICY, config), nothing, config, 0)
    wanted = [gain for gain in analytic(np.array(successes, dtype=float), 2) if gain]
    assert [rollout.advantage for rollout in found.rollouts] == pytest.approx(wanted)


@pytest.mark.parametrize("solved", [False, True])
def test_a_group_with_rewards_but_without_a_success_is_shown_one(solved: bool) -> None:
    config = GroupConfig(size=4, k=2, inject=True)
    rows = [row("g", at, solved and at == 0, reward=reward) for at, reward in enumerate([0.5, 0.2, 0.2, 0.2])]
    found = train_on(members_of(rows, POLICY, config), lambda task, seed: success(), config, 0)
    assert found.injected == int(not solved)


def test_without_injection_nothing_stored_is_asked_for() -> None:
    def never(task: str, seed: int) -> Member:
        raise AssertionError

    assert train_on(members_of(group("a", [False] * 4), POLICY, PLAIN), never, PLAIN, 0).rollouts == []


@pytest.mark.parametrize("form", ["passk", "full", "bootstrap", "combined", "exceeding", "adaptive"])
def test_every_form_of_pass_at_k_gives_successes_more_than_failures(form: str) -> None:
    config = GroupConfig(size=8, k=4, advantage=form)  # type: ignore[arg-type]
    rows = [*group("a", [True] + [False] * 7), *group("b", [False, None, True] + [False] * 6)]
    found = train_on(members_of(rows, POLICY, config), nothing, config, 0)
    for name in "ab":
        gains = {
            rollout.trajectory_id: rollout.advantage for rollout in found.rollouts if rollout.trajectory_id[0] == name
        }
        assert max(gains, key=lambda key: gains[key]) in ("a-0", "b-2") or form == "full"
        assert max(gains.values()) > 0 > min(gains.values())


def test_the_analytic_form_is_the_papers() -> None:
    config = GroupConfig(size=8, k=4, advantage="passk")
    found = train_on(members_of(group("a", [True] + [False] * 7), POLICY, config), nothing, config, 0)
    wanted = analytic(np.array([1.0] + [0.0] * 7), 4)
    assert [rollout.advantage for rollout in found.rollouts] == pytest.approx(wanted)


def test_replies_near_the_limit_cost_a_success_some_of_its_reward() -> None:
    config = GroupConfig(size=4, k=2, overlong=4)
    rows = [row("g", 0, True), row("g", 1, True, token_ids=[1] * 6, logprobs=[-0.1] * 6)]
    members = members_of(rows, POLICY, config)["g"]
    assert [member.reward for member in members] == [1.0, 0.5]


def test_a_step_without_log_probabilities_is_refused_by_name() -> None:
    with pytest.raises(FlywheelError, match="g-0"):
        members_of(group("g", [True]) and [row("g", 0, True, logprobs=None)], POLICY, PLAIN)


def test_replies_of_a_server_without_log_probabilities_are_trained_on_as_text() -> None:
    unknown: dict[str, Any] = {"token_ids": None, "logprobs": None}
    cut = f"{CUT} 8 tokens (policy.max_new_tokens)"
    rows = [
        row("g", 0, True, 0, **unknown),
        row("g", 0, True, 1, **unknown),
        row("g", 1, False, actions=[], action_error=cut, **unknown),
        row("g", 2, False, actions=[], action_error="no call", **unknown),
    ]
    found = train_on(members_of(rows, POLICY, GroupConfig(size=4, k=2, recompute=True)), nothing, PLAIN, 0).rollouts
    assert [rollout.reply for rollout in found] == ["Action: wait()"] * 4
    assert {(rollout.token_ids, rollout.logprobs, rollout.temperature) for rollout in found} == {((), (), 0.7)}
    assert [rollout.ended for rollout in found] == [True, True, False, True]


def test_rollouts_come_back_from_a_file_as_they_were(tmp_path: Any) -> None:
    rollouts = [
        Rollout("t", 0, "a", ("x", "y"), "i", ("s",), "r", (1, 2), (-0.5, -0.25), 0.5, 1.5),
        Rollout("t", 1, "a", ("x",), "i", (), "r", ended=False),
    ]
    write_rollouts(tmp_path / "r.parquet", rollouts)
    assert list(read_rollouts(tmp_path / "r.parquet")) == rollouts


def judged(name: str, scores: list[float]) -> list[GroupStep]:
    return [row(name, at, score >= 0.5, reward=score) for at, score in enumerate(scores)]


def test_judged_and_verified_groups_share_a_batch_with_rewards_from_0_to_1() -> None:
    rows = [*judged("j", [0.2, 0.8, 0.5, 0.5]), *group("v", [True, False, False, False])]
    found = train_on(members_of(rows, POLICY, PLAIN), nothing, PLAIN, 0)
    assert found.informative == 2
    wanted = centred(np.array([0.2, 0.8, 0.5, 0.5]))[:2]
    gains = {rollout.trajectory_id: rollout.advantage for rollout in found.rollouts}
    assert [gains["j-0"], gains["j-1"]] == pytest.approx(wanted)
    assert gains["v-0"] == pytest.approx(centred(np.array([1.0, 0.0, 0.0, 0.0]))[0])


def test_pass_at_k_takes_a_judged_play_as_a_success_or_none() -> None:
    passk = PLAIN.model_copy(update={"advantage": "passk"})
    found = train_on(members_of(judged("j", [0.2, 0.8, 0.4, 0.1]), POLICY, passk), nothing, passk, 0)
    wanted = analytic(np.array([0.0, 1.0, 0.0, 0.0]), 2)
    assert [rollout.advantage for rollout in found.rollouts] == pytest.approx(wanted)


def test_groups_whose_best_reward_is_hardly_above_their_mean_are_left_out() -> None:
    rows = [*judged("near", [0.5, 0.6, 0.5, 0.6]), *judged("far", [0.1, 0.9, 0.2, 0.1])]
    curated = PLAIN.model_copy(update={"spread": 0.2})
    found = train_on(members_of(rows, POLICY, curated), nothing, curated, 0)
    assert {rollout.trajectory_id.split("-")[0] for rollout in found.rollouts} == {"far"}
    assert train_on(members_of(rows, POLICY, PLAIN), nothing, PLAIN, 0).informative == 2


# (successes of 4, groups of k = 2): any 2 of 4 with 3 successes hold one, so that Pass@2 is 1 whoever is drawn
TEACHES: dict[str, tuple[bool, bool, bool, bool, bool]] = {
    "pass1": (False, True, True, True, False),
    "passk": (False, True, True, False, False),
    "full": (False, True, True, False, False),
    "combined": (False, True, True, True, False),
    "exceeding": (False, True, True, False, False),
}


@pytest.mark.parametrize("form", [*TEACHES, "bootstrap", "adaptive"])
def test_a_group_is_informative_if_its_advantages_are_not_all_0_by_whichever_form(form: str) -> None:
    config = PLAIN.model_copy(update={"advantage": form, "size": 4, "k": 2})
    groups = {won: [won > at for at in range(4)] for won in range(5)}
    rows = [step for won, outcomes in groups.items() for step in group(f"{won}", outcomes)]
    found = train_on(members_of(rows, POLICY, config), nothing, config, 0)
    trained = {rollout.trajectory_id[0] for rollout in found.rollouts}
    assert found.informative == len(trained) and found.groups == 5
    assert all(abs(rollout.advantage) > SAME for rollout in found.rollouts)
    can = {won: teaches([float(one) for one in outcomes], config) for won, outcomes in groups.items()}
    assert {f"{won}" for won, one in can.items() if one} >= trained
    if form in TEACHES:
        assert tuple(f"{won}" in trained for won in range(5)) == TEACHES[form] == tuple(can.values())


@pytest.mark.parametrize(("share", "trained"), [(1.0, {"rare", "usual"}), (0.5, {"rare"})])
def test_groups_count_as_informative_by_the_steps_that_are_left_of_them(share: float, trained: set[str]) -> None:
    rows = [
        replace(step, logprobs=[logprob] * len(step.logprobs or ()))
        for name, logprob in (("rare", -2.0), ("usual", -0.1))
        for step in group(name, [True, False])
    ]
    config = PLAIN.model_copy(update={"entropy_share": share})
    found = train_on(members_of(rows, POLICY, config), nothing, config, 0)
    assert {rollout.trajectory_id.split("-")[0] for rollout in found.rollouts} == trained
    assert (found.groups, found.informative) == (2, len(trained))
