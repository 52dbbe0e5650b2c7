"""Texts of this project's own exports come back as they were: a text is no action, and nothing of a thought is lost."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.converters.exchanged import About, Exchanged, ExchangedStep, StepAbout
from curation.converters.format import FORMATS
from schemas.action import Click, Type, Wait
from tests.unit.curation.converters.records import picture, taken, written

LIKE_ACTIONS = [
    "Action: wait()",
    "wait()",
    "Action: click(start_box='(1,2)')\nclick(start_box='(3,4)')",
    "Action: click(start_box='(5000,2000)')",
    "Thought: t\nAction: finished(content='a')",
    "<think>\nx\n</think>\nAction: wait()",
    "type(content='x', press_enter=True, delete_existing_text=True)",
    '{"type":"wait"}',
    '{"action": "wait"}',
    "pyautogui.click(x=0.5, y=0.5)",
    "pyautogui.click(5000, 2000)",
    "computer.terminate(status='success')",
    "click(x=0.1, y=0.2)",
    "response(answer='x')",
    "flywheel.press_home()",
    "<action>\nwait()\n</action>",
    "<operation>\nx\n</operation>\n<action>\nclick(x=0.1, y=0.2)\n</action>",
    "<image> Action: wait() <|im_end|>",
    "",
    "\n",
    " a\n",
]
THOUGHTS = ["", "I see <image>.", "  spaced  ", "\n<|im_end|>\n", "Action: wait()", "</think> x\n"]
PIECES = [
    *LIKE_ACTIONS,
    *THOUGHTS,
    "Action:",
    "Thought: ",
    "\n",
    " ",
    "```",
    "<action>",
    "</operation>",
    "[INST]",
    "\\",
]


def between(step: ExchangedStep, place: int) -> Exchanged:
    """A trajectory with this step at a place among others."""
    steps = [ExchangedStep(picture(number), "so", (Wait(),)) for number in range(3)]
    steps[place] = replace(step, screen=picture(place))
    return Exchanged("t", "Do it.", tuple(steps), True, None, About(lake="l", trajectory_id="t"))


def same(name: str, record: Exchanged, folder: Path) -> None:
    """Check that an export of the trajectory is read back as what it was."""
    form = FORMATS.class_of(name)()
    (back,) = taken(form, written(form, [record], folder))
    for number, (one, again) in enumerate(zip(record.steps, back.steps, strict=True)):
        assert (one.action, one.text, one.thought, one.error) == (again.action, again.text, again.thought, again.error)
        assert one.about == again.about and record.is_target(number) == back.is_target(number)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS.names)
@pytest.mark.parametrize("target", [None, False])
@pytest.mark.parametrize("place", [0, 2])
def test_a_text_without_an_action_stays_one_whatever_it_looks_like(
    tmp_path: Path, name: str, target: bool | None, place: int
) -> None:
    about = StepAbout(target=target)
    for number, text in enumerate(LIKE_ACTIONS):
        for error in (None, "2 actions in one reply"):
            step = ExchangedStep(picture(0), THOUGHTS[number % len(THOUGHTS)], (), text, error, about=about)
            same(name, between(step, place), tmp_path / f"{number}-{error is None}")


@pytest.mark.parametrize("name", FORMATS.names)
def test_a_thought_comes_back_with_its_white_space(tmp_path: Path, name: str) -> None:
    for number, thought in enumerate(THOUGHTS):
        step = ExchangedStep(picture(0), thought, (Click(x=0.25, y=0.5),))
        same(name, between(step, 1), tmp_path / str(number))
        better = replace(step, better="  Better. ")
        form = FORMATS.class_of(name)()
        (back,) = taken(form, written(form, [between(better, 1)], tmp_path / f"better-{number}"))
        assert back.steps[1].thought == thought


@pytest.mark.parametrize("name", FORMATS.names)
@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map("".join), min_size=3, max_size=3),
    acts=st.booleans(),
)
def test_any_texts_come_back(tmp_path_factory: pytest.TempPathFactory, name: str, texts: list[str], acts: bool) -> None:
    thought, text, typed = texts
    step = ExchangedStep(picture(0), thought, (Type(content=typed),) if acts else (), "" if acts else text)
    same(name, between(step, 1), tmp_path_factory.mktemp("texts"))
