"""Which screens of a trajectory are pictures: the published rule's numbers, and a window that slides."""

import pytest

from schemas.config.policy import PolicyConfig
from schemas.context import ContextRule

FOLD = PolicyConfig(context="fold").context_rule


@pytest.mark.parametrize(
    ("screens", "folded"),
    [(1, 0), (20, 0), (21, 10), (30, 10), (31, 20), (35, 20), (40, 20), (41, 30), (50, 30), (51, 40)],
)
def test_folding_leaves_out_ten_screens_at_once(screens: int, folded: int) -> None:
    assert FOLD.folded(screens) == folded and FOLD.shown(screens) == screens - folded


def test_the_closed_form_is_the_rule_in_words() -> None:
    for live, fold in ((20, 10), (4, 4), (7, 3), (5, 1)):
        rule, folded = ContextRule(live, fold, folds=True), 0
        for screens in range(1, 101):
            while screens - folded > live:
                folded += fold
            assert rule.folded(screens) == folded
            assert max(1, live - fold + 1) <= rule.shown(screens) <= live or screens < live


def test_a_window_that_slides_leaves_out_one_more_screen_at_each_step() -> None:
    rule = PolicyConfig(history_images=3).context_rule
    assert [rule.folded(screens) for screens in range(1, 7)] == [0, 0, 0, 1, 2, 3] and not rule.folds


def test_a_trajectory_s_settings_give_its_rule() -> None:
    for policy in (PolicyConfig(context="fold", live_images=4, fold_images=2), PolicyConfig(history_images=5)):
        assert ContextRule.recorded(policy.asked) == policy.context_rule
    assert ContextRule.recorded({"history_images": 2}) == ContextRule(2)


def test_what_was_stored_before_there_was_folding_slides() -> None:
    old = {"base": "tiny", "history_images": 3, "history_turns": 6}
    policy = PolicyConfig.model_validate(old)
    assert policy.context_rule == ContextRule(3) and "context" not in policy.asked
    assert ContextRule.recorded({"template": "computer", "history_images": 3, "thoughts": True}) == ContextRule(3)


@pytest.mark.parametrize(
    ("fields", "key"),
    [({"live_images": 4, "fold_images": 5}, "policy.fold_images"), ({"history_turns": 4}, "policy.history_turns")],
)
def test_numbers_that_cannot_fold_are_refused(fields: dict[str, int], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        PolicyConfig.model_validate({"context": "fold", **fields})
