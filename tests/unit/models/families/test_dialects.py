"""Text dialects: what is written is read back, and what a model may say never raises."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curation.converters.units import scale_of
from models.families.dialects import DIALECTS, THOUSANDTHS, format_action, format_reply, parse_reply
from models.families.tools import read_calls
from schemas import action as act
from schemas.action import Action, action_of
from schemas.keyboard import KEYS

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "dialects.json").read_text())

fraction = st.floats(0, 1)
text = st.text(max_size=40)
name = st.sampled_from([one for one in KEYS if one.isascii() and one.isalnum() and one == one.lower()])
key = st.lists(name, min_size=1, max_size=3).map(" ".join)
point = {"x": fraction, "y": fraction}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
lasting = st.none() | st.floats(0, 5)
pointed = (act.Click, act.LeftDouble, act.TripleClick, act.RightSingle, act.MiddleSingle, act.Move)
plain = (act.PressHome, act.PressBack, act.PressEnter, act.PressRecent, act.PressMenu, act.NavigateBack)
button = st.sampled_from(("left", "middle", "right"))
actions: st.SearchStrategy[Action] = st.one_of(
    *(st.builds(kind, **point) for kind in pointed),
    *(st.builds(kind) for kind in plain),
    st.builds(act.LongPress, **point, seconds=lasting),
    st.builds(act.Wait, seconds=lasting),
    *(st.builds(kind, **at, button=button) for kind in (act.MouseDown, act.MouseUp) for at in (point, {})),
    *(st.builds(kind) for kind in (act.LeftDouble, act.TripleClick)),
    st.builds(act.CallUser, content=text),
    st.builds(act.Scroll, **point, direction=st.sampled_from(("up", "down", "left", "right"))),
    st.builds(act.Drag, **point, to_x=fraction, to_y=fraction),
    st.builds(act.Type, content=text),
    st.builds(act.Navigate, content=text),
    st.builds(act.Note, content=text),
    st.builds(act.UseTool, name=text.filter(bool), arguments=st.dictionaries(text, values, max_size=3)),
    st.builds(act.Finished, content=text),
    st.builds(act.OpenApp, app_name=text),
    st.builds(act.Hotkey, key=key),
    st.builds(act.Press, key=name),
    st.builds(act.Release, key=name),
    st.builds(act.Terminal, command=text),
    st.builds(act.ReadFile, path=text),
    st.builds(act.WriteFile, path=text, content=text),
)


def rounded(action: Action) -> Action:
    """To whole thousandths as dialects write them: of places a half goes to the even one, of seconds as by `round`."""
    fields = action.model_dump()
    places = {name: round(1000 * v) / 1000 for name, v in fields.items() if isinstance(v, float) and name != "seconds"}
    seconds = {name: round(v, 3) for name, v in fields.items() if isinstance(v, float) and name == "seconds"}
    return action_of({**fields, **places, **seconds})


@settings(max_examples=300, deadline=None)
@given(actions, st.sampled_from(DIALECTS))
@example(act.Wait(seconds=0.0005), DIALECTS[0])
@example(act.Wait(seconds=0.0015), DIALECTS[0])
def test_every_action_comes_back_from_every_dialect_up_to_a_thousandth(action: Action, dialect: str) -> None:
    parsed = parse_reply(format_reply("Because.", format_action(action, dialect)))
    assert parsed.error is None
    assert parsed.thought == "Because."
    assert parsed.first is not None and rounded(parsed.first) == rounded(action)
    assert parsed.action_text == format_action(action, dialect)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.sampled_from(("", "Action: ", "Action: click(", "Thought: a\nAction: type(content='")))
def test_whatever_a_model_says_is_an_action_or_an_error(said: str, start: str) -> None:
    parsed = parse_reply(start + said)
    assert (parsed.first is None) == (parsed.error is not None)


@pytest.mark.parametrize("case", GOLDEN["replies"], ids=lambda case: case["text"][:40])
def test_published_forms_are_read(case: dict) -> None:
    parsed = parse_reply(case["text"])
    assert parsed.first == action_of(case["action"])
    assert parsed.thought == case["thought"]


@pytest.mark.parametrize("said", GOLDEN["broken"])
def test_broken_forms_say_what_is_wrong(said: str) -> None:
    parsed = parse_reply(said)
    assert parsed.first is None and parsed.error


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply",
    [
        "Thought: a{}x",
        "Thought: a{}Action: wait(){}",
        "click(a='b'{}x",
        "click(start_box='{}",
        "click( {}a",
        "type(content='{}')x",
    ],
)
@pytest.mark.parametrize("part", ["\n", "\n ", "\\'", "')  ", "a='b', ", "1 "])
def test_a_long_reply_is_read_in_time_that_grows_with_its_length(reply: str, part: str) -> None:
    def seconds(length: int) -> float:
        started = time.process_time()
        parse_reply(reply.format(*[part * length] * reply.count("{}")))
        return time.process_time() - started

    if (twice := seconds(100_000)) >= 0.2:
        once, twice = (min(seconds(length) for _ in range(2)) for length in (50_000, 100_000))
        assert twice < min(max(5 * once, 0.2), 1.0)


@pytest.mark.parametrize("reading", ["absolute", "relative"])
def test_coordinates_reach_the_published_pixels(reading: str) -> None:
    for case in GOLDEN[reading]:
        width, height = case["screen"]
        x, y = case["raw"]
        sides = scale_of("resized_pixels", width, height) if reading == "absolute" else THOUSANDTHS
        parsed = parse_reply(f"click(start_box='({x},{y})')", sides)
        assert isinstance(parsed.first, act.Click)
        assert [int(parsed.first.x * width), int(parsed.first.y * height)] == case["pixel"]


def test_a_coarse_grid_rounds_coordinates() -> None:
    assert format_action(act.Click(x=0.483, y=0.526), "box_v1", grid=10) == "click(start_box='(480,530)')"


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown dialect"):
        format_action(act.Wait(), "morse")


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "computer_use", "arguments": {"action": "type", "text": "one\ntwo"}}',
        '{"name": "computer_use", "arguments": "{\\"action\\": \\"type\\", \\"text\\": \\"one\\\\ntwo\\"}"}',
    ],
    ids=["a newline as it is", "arguments as a string"],
)
@pytest.mark.parametrize(
    "around", ["<tool_call>\n{}\n</tool_call>", "The set {{x}} is empty. {}"], ids=["tagged", "alone"]
)
def test_tool_calls_are_read_as_models_and_servers_write_them(call: str, around: str) -> None:
    read = read_calls(around.format(call), (1000, 1000))
    assert [action.model_dump() for action in read.actions] == [{"type": "type", "content": "one\ntwo"}]
