"""The context rule: all past thoughts and actions as text, the last N screens, the current one last."""

from dataclasses import replace

import pytest

from models.families.family import ModelFamily, PixelFamily, TinyFamily
from models.families.prompt import messages_of, screens_of
from models.families.screen import ImageLimits
from models.policy import Context
from schemas.action import Wait
from schemas.config.policy import PolicyConfig
from schemas.context import ContextRule
from schemas.observation import Observation, PastStep


def look(number: int) -> Observation:
    return Observation(bytes([number]), 10, 10, "")


LIMITS = ImageLimits(28, 3136, 12845056)
CONTEXT = Context("Do it.", tuple(PastStep(f"t{n}", f"wait({n})", look(n)) for n in range(3)), look(9), 0)


@pytest.mark.parametrize(("images", "shown"), [(1, [9]), (2, [2, 9]), (4, [0, 1, 2, 9]), (9, [0, 1, 2, 9])])
def test_the_last_screens_are_shown_the_current_one_last(images: int, shown: list[int]) -> None:
    assert [screen.png[0] for screen in screens_of(messages_of(CONTEXT, ContextRule(images), ""))] == shown


def test_every_past_thought_and_action_stays_as_text() -> None:
    chat = messages_of(CONTEXT, ContextRule(1), "")
    said = [message["content"][0]["text"] for message in chat if message["role"] == "assistant"]
    assert said == [f"Thought: t{n}\nAction: wait({n})" for n in range(3)]
    assert [message["role"] for message in chat] == ["system", "user", *["assistant"] * 3, "user"]


def test_a_screen_comes_right_before_what_was_said_about_it() -> None:
    chat = messages_of(CONTEXT, ContextRule(2), "")
    at = next(index for index, message in enumerate(chat) if message["content"][0].get("observation") == look(2))
    assert chat[at + 1]["content"][0]["text"].endswith("wait(2)")


def test_the_system_turn_shows_actions_as_the_family_writes_them() -> None:
    wide = Context("Do it.", (), Observation(b"", 1400, 700, ""), 0)
    families = [family(PolicyConfig(dialect="point")) for family in (ModelFamily, PixelFamily)]
    for family in families:
        family.fit(LIMITS)
    told = [family.messages(wide)[0] for family in families]
    thousandths, pixels = (message["content"][0]["text"] for message in told)
    assert "click(point='<point>480 520</point>')" in thousandths and "thousandths of the screen" in thousandths
    assert "click(point='<point>672 364</point>')" in pixels and "thousandths" not in pixels


def test_a_policy_that_is_not_to_think_is_shown_replies_without_a_thought() -> None:
    silent = replace(CONTEXT, thinks=False)
    for family in (ModelFamily(PolicyConfig()), PixelFamily(PolicyConfig())):
        family.fit(LIMITS)
        asked, plain = (family.messages(one)[0]["content"][0]["text"] for one in (CONTEXT, silent))
        assert "Thought: ...\nAction: ..." in asked and "Thought" not in plain and "as\nAction: ..." in plain
    told = TinyFamily(PolicyConfig()).messages(silent)
    assert told[1]["content"][0]["text"] == "Do it.\nAction: "
    without = TinyFamily(PolicyConfig(thoughts=False))
    assert without.reply("Because.", [Wait()], (10, 10)) == "Action: wait()"
