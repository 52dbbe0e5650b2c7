"""Gates: what each turns away and why, in which order, and what makes a verdict another one."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from curation.gates.gate import Gate, GateContext, GateResult
from curation.gates.registry import gates_of, verdicts_of
from curation.gates.thoughts import repeats_itself
from schemas.config import config_of
from schemas.config.curating import FilterConfig
from schemas.config.section import Count, Section
from schemas.failure import UsageError
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from schemas.tables.verdict import Verdict
from tests.fixtures.sentences import Sentences

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def trajectory(**changes: Any) -> Trajectory:
    row = {
        "trajectory_id": "t", "iteration": 0, "n_steps": 2, "reward": 1.0, "success": True, "termination": "done",
        "failure_boundary": None, "failure_reason": None, "task_id": "a", "instruction": "Click.", "group_id": None,
        "policy": "policy",
    }  # fmt: skip
    return Trajectory.model_construct(**row | changes)


def steps(*screens: str, **changes: Any) -> list[Step]:
    row = {
        "actions": ['{"type":"click","x":0.5,"y":0.5}'], "action_type": "click", "x": 0.5, "y": 0.5,
        "action_error": None, "thought": "", "trajectory_id": "t", "iteration": 0,
    } | changes  # fmt: skip
    after = [*screens[1:], "end"]
    return [
        Step.model_construct(step=number, screenshot=screen, next_screenshot=then, **row)
        for number, (screen, then) in enumerate(zip(screens, after, strict=True))
    ]


def verdicts(
    row: Trajectory, rows: Sequence[Step], judged: Verdict | None = None, config: FilterConfig | None = None
) -> list[Verdict]:
    return verdicts_of(gates_of(config or FilterConfig()), row, rows, GateContext(judged), NOON)


def decision(row: Trajectory, rows: Sequence[Step], config: FilterConfig | None = None) -> Verdict:
    return verdicts(row, rows, config=config)[-1]


def test_a_verified_success_is_routed_to_sft_and_every_gate_has_its_verdict() -> None:
    found = verdicts(trajectory(), steps("a", "b"))
    rules = ["actions", "thoughts", "loops", "redundant", "transient", "evidence", "shortcut", "duplicates"]
    assert [verdict.gate for verdict in found] == ["environment", *rules, "verifier", "route"]
    assert {verdict.route for verdict in found} == {"sft"}
    raised = {
        "actions": 2,
        "thoughts": 3,
        "loops": 2,
        "redundant": 2,
        "transient": 4,
        "evidence": 3,
        "shortcut": 2,
        "duplicates": 7,
    }
    versions = " ".join(f"{gate}@{raised.get(gate, 1)}" for gate in rules)
    assert found[-1].gate_version == f"environment@1 {versions} verifier@3 judge@1 people@1"


def test_a_failure_of_the_policy_is_routed_to_ct_with_its_last_step_as_the_error() -> None:
    found = decision(trajectory(success=False, reward=-1.0), steps("a", "b"))
    assert (found.route, found.error_step, found.reason) == ("ct", 1, "verifier: ended with raw reward -1")


def test_a_score_that_reaches_its_threshold_passes_and_one_that_does_not_says_what_it_came_to() -> None:
    won = decision(trajectory(reward=0.8, termination="max_steps"), steps("a", "b"))
    assert (won.route, won.reason) == ("sft", "verifier: raw reward is 0.8")
    short = decision(trajectory(success=False, reward=0.6, termination="max_steps"), steps("a", "b"))
    assert (short.route, short.reason) == ("ct", "verifier: not done: max_steps with raw reward 0.6")
    assert short.error_step is None


def test_of_an_imported_trajectory_nobody_says_that_a_verifier_looked(sentence: Sentences) -> None:
    done = decision(trajectory(policy="import"), steps("a", "b"))
    assert (done.route, done.reason.partition(":")[0]) == ("sft", "verifier")
    sentence(done.reason)
    failed = decision(trajectory(policy="import", success=False, reward=0.0), steps("a", "b"))
    assert (failed.route, failed.error_step) == ("ct", 1)
    sentence(failed.reason)
    assert "raw reward" not in done.reason + failed.reason


def test_an_environment_failure_goes_nowhere_and_says_why(sentence: Sentences) -> None:
    row = trajectory(success=None, reward=None, failure_boundary="sandbox", failure_reason="the browser is gone")
    found = verdicts(row, steps("a", "b"))
    assert [verdict.gate for verdict in found] == ["environment", "route"]
    assert found[-1].route == "none"
    sentence(found[-1].reason)


def test_an_action_that_cannot_be_parsed_is_the_policys_failure_at_that_step() -> None:
    rows = [*steps("a"), steps("a", "b", actions=[], action_error="no action")[1]]
    found = decision(trajectory(success=False, failure_boundary="action"), rows)
    assert (found.route, found.error_step) == ("ct", 1)


def test_the_same_action_on_the_same_screen_again_and_again_is_a_loop_even_if_it_succeeds() -> None:
    looped = steps("a", "a", "a", "a", "a", "b")
    found = decision(trajectory(n_steps=6), looped)
    assert found.route == "ct" and "again and again" in found.reason
    patient = FilterConfig(options={"loops": {"max_repeats": 5}, "redundant": {"max_run": 9}})
    assert decision(trajectory(n_steps=6), looped, patient).route == "sft"


def test_missing_steps_are_noticed() -> None:
    assert decision(trajectory(n_steps=3), steps("a", "b")).route == "ct"


def test_a_thought_that_repeats_itself_is_turned_away_even_if_the_trajectory_succeeds() -> None:
    endless = [*steps("a"), steps("a", "b", thought="Now I look. " + "Let me think again. " * 4)[1]]
    found = decision(trajectory(), endless)
    assert (found.route, found.error_step) == ("ct", 1)
    assert decision(trajectory(), steps("a", "b", thought="Click ok. Click ok. Then wait.")).route == "sft"


@pytest.mark.parametrize(
    ("thought", "route"),
    [
        ("It is there.\nAction: wait()\n", "ct"),
        ("click(start_box='(1,2)')", "ct"),
        ("Action: click the button that says OK.", "sft"),
        ("The point is <point>1 2</point>, and start_box= is how I say it.", "sft"),
    ],
)
def test_a_thought_in_which_an_action_is_read_is_turned_away_and_one_that_speaks_of_it_is_not(
    thought: str, route: str
) -> None:
    found = decision(trajectory(), steps("a", "b", thought=thought))
    assert (found.route, found.error_step) == (route, 0 if route == "ct" else None)


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("go on " * 4, True),
        ("go on " * 3, False),
        ("I said: go on go on\ngo on  go on and on", True),
        ("a " * 5, False),
        ("a " * 12, True),
        ("".join(f"word{number:02} " for number in range(12)) * 4, True),
        ("".join(f"word{number:03} " for number in range(200)) * 4, False),
        ("点击提交按钮。" * 4, True),
        ("我先看一下。" + "我需要点击按钮\n" * 30, True),
        ("好" * 400, True),
        ("次へ進みます、" * 30, True),
        ("กดปุ่มถัดไป" * 30, True),
        ("clickclickclick" * 50, True),
        ("I click the button, then look whether the button, the big one, is there. " * 4, True),
        ("The text says: very very very very long day.", False),
        ("The row reads " + "100 " * 20, False),
        ("| --- | --- | --- | --- | --- | --- | --- |", False),
        ("点击提交按钮。然后点击下一步按钮。再点击提交按钮。", False),
        ("", False),
    ],
)
def test_a_phrase_of_any_script_may_follow_itself_three_times(text: str, repeats: bool) -> None:
    assert repeats_itself(text, 3) is repeats


@pytest.mark.parametrize("part", [" ", "\n", "a", "a ", "ab ba ", "x" * 80 + " "])
def test_a_long_thought_is_checked_in_time_that_grows_with_its_length(part: str) -> None:
    text = part * (200_000 // len(part)) + "end"
    started = time.process_time()
    repeats_itself(text, 10**6)
    repeats_itself(text, 3)
    assert time.process_time() - started < 3


def judged(passed: bool, version: str = "orm") -> Verdict:
    return Verdict(
        trajectory_id="t", gate="judge", gate_version=version, iteration=0, passed=passed, score=0.7, error_step=None,
        reason="orm gives 0.70: done", route="sft" if passed else "ct", created_at=NOON,
    )  # fmt: skip


def test_where_a_judge_stands_in_for_the_verifier_its_stored_verdict_decides_and_is_not_written_again(
    sentence: Sentences,
) -> None:
    found = verdicts(trajectory(reward=0.7), steps("a", "b"), judged(True))
    assert "verifier" not in [verdict.gate for verdict in found]
    assert (found[-1].route, found[-1].score) == ("sft", pytest.approx(0.7))
    assert "judge@orm" in found[-1].gate_version
    sentence(found[-1].reason)
    assert verdicts(trajectory(success=True), steps("a", "b"), judged(False))[-1].route == "ct"


class ShortOptions(Section):
    most: Count = 1


class ShortGate(Gate[ShortOptions]):
    """A gate of somebody else's."""

    name = "short"
    section = ShortOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        return GateResult(len(steps) <= self.options.most, f"{len(steps)} steps")


def test_a_gate_from_outside_is_named_by_its_path_and_has_options_of_its_own() -> None:
    config = FilterConfig(gates=("environment", f"{__name__}:ShortGate"))
    assert decision(trajectory(), steps("a", "b"), config).reason == "short: 2 steps"
    longer = config.model_copy(update={"options": {"short": {"most": 2}}})
    assert decision(trajectory(), steps("a", "b"), longer).route == "sft"


def test_another_option_is_another_version_and_the_default_written_out_is_not() -> None:
    def versions(**options: Any) -> tuple[str, str]:
        found = verdicts(trajectory(), steps("a", "b"), config=FilterConfig(options={"loops": options}))
        return next(one.gate_version for one in found if one.gate == "loops"), found[-1].gate_version

    assert versions(max_repeats=4) == versions()
    assert len({versions(), versions(max_repeats=5), versions(max_repeats=6)}) == 3
    assert len({decided for _, decided in (versions(), versions(max_repeats=5), versions(max_repeats=6))}) == 3


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"gates": ["environment", "rulse"]}, r"filter\.gates.*rulse"),
        ({"gates": ["environment", "loops", "loops"]}, r"filter\.gates"),
        ({"gates": ["environment", "rules", "verifier"]}, r"filter\.gates.*Write actions, thoughts, loops"),
        ({"gates": ["loops", "environment", "verifier"]}, r"filter\.gates.*loops.*Put `environment` first"),
        ({"gates": []}, r"filter\.gates"),
        ({"options": {"rules": {"max_repeats": 3}}}, r"filter\.options\.rules\.max_repeats.*filter\.options\.loops"),
        ({"options": {"loops": {"max_repeat": 3}}}, r"filter\.options\.loops\.max_repeat`.*max_repeats"),
        ({"options": {"loops": {"max_repeats": 0}}}, r"filter\.options\.loops\.max_repeats"),
        ({"options": {"short": {}}}, r"filter\.options\.short"),
    ],
)
def test_what_no_gate_knows_is_refused_by_name_when_the_config_is_read(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        config_of({"suite": {"tasks": ["click-target"]}, "filter": fields})
