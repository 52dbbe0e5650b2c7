"""Actions: their canonical JSON, which lakes store and hash, and what is refused."""

import pytest
from pydantic import ValidationError

from schemas import action as act
from schemas.action import TYPES, action_of, from_json, in_words, point_of, seconds_of, texts_of, to_json

STORED = (
    '{"type":"click","x":0.25,"y":0.75}',
    '{"type":"left_double","x":0.25,"y":0.75}',
    '{"type":"right_single","x":0.25,"y":0.75}',
    '{"type":"long_press","x":0.25,"y":0.75}',
    '{"direction":"down","type":"scroll","x":0.25,"y":0.75}',
    '{"to_x":1.0,"to_y":0.0,"type":"drag","x":0.25,"y":0.75}',
    '{"content":"a\\n","type":"type"}',
    '{"key":"ctrl c","type":"hotkey"}',
    '{"key":"ctrl","type":"press"}',
    '{"key":"ctrl","type":"release"}',
    '{"app_name":"Maps","type":"open_app"}',
    '{"type":"press_home"}',
    '{"type":"press_back"}',
    '{"type":"press_enter"}',
    '{"content":"https://a.example","type":"navigate"}',
    '{"type":"navigate_back"}',
    '{"command":"ls","type":"terminal"}',
    '{"path":"a","type":"read_file"}',
    '{"content":"","path":"a","type":"write_file"}',
    '{"type":"wait"}',
    '{"content":"","type":"finished"}',
    '{"type":"call_user"}',
)
"""Rows of lakes from before actions had optional fields, one of each type."""


@pytest.mark.parametrize("text", STORED)
def test_a_stored_action_keeps_its_bytes(text: str) -> None:
    assert to_json(from_json(text)) == text


def test_the_types_of_stored_actions_keep_their_numbers() -> None:
    """gymnasium's action space and LeRobot's vectors number the types in this order."""
    assert tuple(TYPES)[: len(STORED)] == tuple(from_json(text).type for text in STORED)


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"move","x":0.25,"y":0.75}',
        '{"type":"mouse_down"}',
        '{"type":"left_double"}',
        '{"type":"triple_click"}',
        '{"type":"triple_click","x":0.5,"y":1.0}',
        '{"button":"right","type":"mouse_up","x":0.0,"y":1.0}',
        '{"seconds":2.5,"type":"wait"}',
        '{"seconds":5.0,"type":"long_press","x":0.25,"y":0.75}',
        '{"content":"Which file?","type":"call_user"}',
        '{"content":"The total is 5.","type":"note"}',
        '{"arguments":{},"name":"ping","type":"tool"}',
        '{"arguments":{"a":[1,1.0,true,null,{"b":"\\u00e9"}],"n":1e+300},"name":"a.b-c","type":"tool"}',
    ],
)
def test_an_optional_field_is_stored_if_it_is_set(text: str) -> None:
    assert to_json(from_json(text)) == text


NESTED: dict[str, object] = {}
for _ in range(32):
    NESTED = {"a": [NESTED]}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"type": "mouse_down", "x": 0.5}, "`y` is missing"),
        ({"type": "mouse_up", "y": 0.5}, "`x` is missing"),
        ({"type": "left_double", "x": 0.5}, "`y` is missing"),
        ({"type": "mouse_up", "button": "wheel"}, "button"),
        ({"type": "move"}, "x"),
        ({"type": "wait", "seconds": 30.1}, "less than or equal to 30"),
        ({"type": "wait", "seconds": -1}, "greater than or equal to 0"),
        ({"type": "wait", "seconds": True}, "true is no number"),
        ({"type": "long_press", "x": 0, "y": 0, "seconds": 6}, "less than or equal to 5"),
        ({"type": "click", "x": 0, "y": 0, "seconds": 1}, "seconds"),
        ({"type": "tool", "name": "", "arguments": {}}, "name"),
        ({"type": "tool", "name": "a", "arguments": [1]}, "no JSON object"),
        ({"type": "tool", "name": "a", "arguments": {"n": float("nan")}}, "not JSON compliant"),
        ({"type": "tool", "name": "a", "arguments": {"n": {1, 2}}}, "no JSON"),
        ({"type": "tool", "name": "a", "arguments": {"n": "x" * 100_001}}, "at most 100,000 are allowed"),
        ({"type": "tool", "name": "a", "arguments": NESTED}, "more than 32 levels"),
    ],
)
def test_a_field_that_an_action_cannot_have_is_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        action_of(fields)


def test_an_action_at_the_pointer_has_no_place() -> None:
    assert point_of(act.MouseDown()) is None and point_of(act.MouseUp(x=0.5, y=1)) == (0.5, 1)
    assert point_of(act.Move(x=0, y=1)) == (0, 1) and point_of(act.Wait()) is None
    assert seconds_of(act.Wait(seconds=2)) == 2 and seconds_of(act.MouseDown()) is None


def test_a_tools_arguments_are_copied_made_storable_and_hashed_in_any_order() -> None:
    given: dict[str, object] = {"b": "a\0", "a": [1, "\ud800"]}
    one = act.UseTool(name="search", arguments=given)
    given["c"] = 1
    assert one.arguments == {"a": [1, "\\ud800"], "b": "a\\x00"}
    other = act.UseTool(name="search", arguments={"b": "a\0", "a": [1, "\ud800"]})
    assert one == other and hash(one) == hash(other) and len({one, other}) == 1
    assert texts_of(one) == ["search", "a", "\\ud800", "b", "a\\x00"] and texts_of(act.Wait()) == []
    assert in_words(to_json(one)) == 'tool search {"a": [1, "\\\\ud800"], "b": "a\\\\x00"}'
