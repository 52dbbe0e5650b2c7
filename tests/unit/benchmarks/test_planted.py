"""Planted faults are the faults that they are called."""

import pytest

from tests.fixtures.planted.faults import Script, form, planted


@pytest.mark.parametrize("script", [form(number, 0) for number in range(4)], ids=lambda one: one.trajectory.task_id)
def test_a_blank_screen_is_always_acted_on_since_a_finish_there_is_no_action_on_it(script: Script) -> None:
    for number in range(30):
        made = planted("blank", number, script, 1)
        (before,) = [one for one, then in zip(script.shots, made.shots, strict=True) if one.png != then.png]
        assert '"finished"' not in (before.action or "")
