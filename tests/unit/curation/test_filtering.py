from typing import Any

from curation.filtering import verdicts_of


def trajectory(**changes: Any) -> dict[str, Any]:
    row = {
        "trajectory_id": "t",
        "iteration": 0,
        "n_steps": 2,
        "reward": 1.0,
        "success": True,
        "termination": "done",
        "failure_boundary": None,
        "failure_reason": None,
    }
    return row | changes


def steps(*screens: str, action: str | None = '{"type":"wait"}') -> list[dict[str, Any]]:
    return [
        {"step": n, "screenshot": s, "action": action, "action_error": None, "thought": ""}
        for n, s in enumerate(screens)
    ]


def decision(trajectory_row: dict[str, Any], step_rows: list[dict[str, Any]]):
    return next(verdict for verdict in verdicts_of(trajectory_row, step_rows) if verdict.gate == "route")


def test_a_verified_success_is_routed_to_sft():
    assert decision(trajectory(), steps("a", "b")).route == "sft"


def test_a_failure_of_the_policy_is_routed_to_ct_with_its_last_step_as_the_error():
    verdict = decision(trajectory(success=False, reward=-1.0), steps("a", "b"))
    assert (verdict.route, verdict.error_step) == ("ct", 1)
    assert "raw reward -1" in verdict.reason


def test_an_environment_failure_goes_nowhere_and_says_why():
    verdict = decision(
        trajectory(success=None, reward=None, failure_boundary="sandbox", failure_reason="the browser is gone"),
        steps("a", "b"),
    )
    assert verdict.route == "none"
    assert "the browser is gone" in verdict.reason


def test_an_action_that_cannot_be_parsed_is_the_policys_failure_at_that_step():
    rows = steps("a", "b")
    rows[1] |= {"action": None, "action_error": "no action"}
    verdict = decision(trajectory(success=False, failure_boundary="action"), rows)
    assert (verdict.route, verdict.error_step) == ("ct", 1)


def test_the_same_action_on_the_same_screen_again_and_again_is_a_loop_even_if_it_succeeds():
    verdict = decision(trajectory(n_steps=6), steps("a", "a", "a", "a", "a", "b"))
    assert verdict.route == "ct"
    assert "again and again" in verdict.reason


def test_missing_steps_are_noticed():
    assert decision(trajectory(n_steps=3), steps("a", "b")).route == "ct"


def test_every_verdict_of_a_trajectory_carries_the_same_route():
    verdicts = verdicts_of(trajectory(success=False), steps("a", "b"))
    assert {verdict.route for verdict in verdicts} == {"ct"}
    assert [verdict.gate for verdict in verdicts] == ["environment", "rules", "verifier", "route"]


def test_where_a_judge_stands_in_for_the_verifier_its_word_and_score_are_the_verdict():
    verdicts = verdicts_of(trajectory(reward=0.7), steps("a", "b"), "orm gives 0.70: done")
    assert [verdict.gate for verdict in verdicts] == ["environment", "rules", "judge", "route"]
    assert (verdicts[2].passed, verdicts[2].score, verdicts[2].reason) == (True, 0.7, "orm gives 0.70: done")
    assert verdicts[-1].route == "sft"
    assert verdicts_of(trajectory(reward=0.2, success=False), steps("a", "b"), "poor")[-1].route == "ct"


def test_a_thought_that_repeats_itself_is_turned_away_even_if_the_play_succeeds():
    rows = steps("a", "b")
    rows[1]["thought"] = "Now I look at the page. " + "Let me think again. " * 4
    verdict = decision(trajectory(), rows)
    assert (verdict.route, verdict.error_step) == ("ct", 1)
    rows[1]["thought"] = "Click ok. Click ok. Then wait."
    assert decision(trajectory(), rows).route == "sft"
