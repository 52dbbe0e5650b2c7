"""Input events become actions, each with the time at which it began."""

from typing import Any

import pytest
from pydantic import ValidationError

from curation.events import InputEvent, TimedActions, actions_of
from schemas.action import Click, Drag, Hotkey, LeftDouble, Press, Release, RightSingle, Scroll, TripleClick, Type


def done(*events: dict[str, Any]) -> list[TimedActions]:
    """The actions of events on a screen of 100 x 100 pixels; an event without a time comes a second after the last."""
    timed = [{"time": float(number), **event} for number, event in enumerate(events, 1)]
    return actions_of([InputEvent.model_validate(one) for one in timed], lambda x, y: (x / 100, y / 100))


def actions(*events: dict[str, Any]) -> list[Any]:
    return [action for one in done(*events) for action in one.actions]


def press(*keys: str) -> list[dict[str, Any]]:
    return [{"kind": "press", "key": key} for key in keys]


def test_a_button_down_and_up_at_one_place_is_a_click_that_begins_when_it_goes_down() -> None:
    down, up = {"kind": "down", "x": 10, "y": 20, "time": 3.0}, {"kind": "up", "x": 12, "y": 20, "time": 3.2}
    assert done(down, up) == [TimedActions(3.0, (Click(x=0.1, y=0.2),))]


@pytest.mark.parametrize(("button", "kind"), [("right", RightSingle)])
def test_each_button_has_its_click(button: str, kind: Any) -> None:
    at = {"x": 10, "y": 20, "button": button}
    assert actions({"kind": "down", **at}, {"kind": "up", **at}) == [kind(x=0.1, y=0.2)]


def test_a_button_that_goes_up_elsewhere_is_a_drag() -> None:
    assert actions({"kind": "down", "x": 10, "y": 20}, {"kind": "up", "x": 60, "y": 70}) == [
        Drag(x=0.1, y=0.2, to_x=0.6, to_y=0.7)
    ]


def test_two_quick_clicks_at_one_place_are_a_double_click_and_three_a_triple_click() -> None:
    at = [{"kind": "click", "x": 10, "y": 20, "time": 1 + number * 0.3} for number in range(3)]
    assert actions(*at[:2]) == [LeftDouble(x=0.1, y=0.2)]
    assert actions(*at) == [TripleClick(x=0.1, y=0.2)]
    assert actions(at[0], {**at[1], "time": 2.0}) == [Click(x=0.1, y=0.2)] * 2
    assert len(actions(at[0], {**at[1], "x": 90})) == 2


def test_turns_of_the_wheel_in_one_direction_are_one_scroll() -> None:
    turns = [{"kind": "scroll", "x": 50, "y": 50, "dy": dy, "time": 1 + at / 2} for at, dy in enumerate((-1, -2, 3))]
    down, up = done(*turns)
    assert (down.begin_s, down.actions, down.scrolled) == (1.0, (Scroll(x=0.5, y=0.5, direction="down"),), (0.0, -3.0))
    assert (up.begin_s, up.actions) == (2.0, (Scroll(x=0.5, y=0.5, direction="up"),))


def test_keys_become_the_text_that_they_leave_behind() -> None:
    typed = press("shift", "H", "i", "x", "backspace", "space", "enter")
    typed.insert(2, {"kind": "release", "key": "shift"})
    assert actions(*typed) == [Type(content="Hi \n")]
    assert actions(*press("a", "backspace")) == []
    assert actions({"kind": "text", "text": "ab"}, {"kind": "key", "key": "c"}) == [Type(content="abc")]


def test_keys_without_a_character_and_shortcuts_are_hotkeys_and_end_a_text() -> None:
    assert actions(*press("a", "tab", "enter", "backspace")) == [
        Type(content="a"), Hotkey(key="tab"), Hotkey(key="enter"), Hotkey(key="backspace"),
    ]  # fmt: skip
    copied = [*press("ctrl_l", "\x03"), {"kind": "release", "key": "ctrl_l"}, *press("page_down")]
    assert actions(*copied) == [Hotkey(key="ctrl c"), Hotkey(key="pagedown")]


def test_a_modifier_alone_is_a_hotkey_and_with_a_click_it_is_held() -> None:
    held, up = press("ctrl")[0], {"kind": "release", "key": "ctrl"}
    assert [one.begin_s for one in done({**held, "time": 1.0}, {**up, "time": 1.5})] == [1.0]
    assert actions(held, up) == [Hotkey(key="ctrl")]
    assert actions(held, {"kind": "click", "x": 10, "y": 20}, up) == [
        Press(key="ctrl"), Click(x=0.1, y=0.2), Release(key="ctrl"),
    ]  # fmt: skip


def test_what_the_recorders_start_and_stop_leave_behind_is_no_action() -> None:
    assert actions({"kind": "up", "x": 1, "y": 1}, {"kind": "release", "key": "q"}, {"kind": "move", "x": 1, "y": 1},
                   {"kind": "down", "x": 1, "y": 1}) == []  # fmt: skip


def test_an_event_of_agentnets_recorder_is_read() -> None:
    click = {"time_stamp": 5.5, "action": "click", "x": 10, "y": 20, "button": "left", "event_idx": 7}
    read = [InputEvent.model_validate({**click, "pressed": pressed}) for pressed in (True, False)]
    assert [(one.kind, one.time) for one in read] == [("down", 5.5), ("up", 5.5)]
    key = InputEvent.model_validate({"time_stamp": 6.0, "action": "press", "name": "alt_r", "pynput_key": "Key.alt_r"})
    assert (key.kind, key.key) == ("press", "altright")


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"kind": "click", "x": 1}, "`y` is missing"),
        ({"kind": "drag", "x": 1, "y": 1}, "`to_x` is missing"),
        ({"kind": "press"}, "`key` is missing"),
        ({"kind": "text"}, "`text` is missing"),
    ],
)
def test_an_event_without_one_of_its_fields_is_refused(event: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        InputEvent.model_validate({"time": 1.0, **event})
