"""What an action becomes as input events of a display."""

from typing import Any

import pytest

from environments.desktop.environment import DesktopConfig
from environments.desktop.sandbox import NOTCHES, WAIT_S, DesktopSandbox, events_of, pixel
from environments.osworld.code import code_of
from schemas import action as act
from schemas.failure import ActionFailure, SandboxFailure
from tests.fixtures.sentences import Sentences

SIZE = (1000, 500)


def test_the_last_pixel_is_the_furthest_that_a_fraction_reaches() -> None:
    assert pixel(0.0, 0.0, *SIZE) == (0, 0)
    assert pixel(0.5, 0.5, *SIZE) == (500, 250)
    assert pixel(1.0, 1.0, *SIZE) == (999, 499)


def test_a_click_a_double_and_a_right_one_move_first_and_press_then() -> None:
    press, release = ["button", 1, True], ["button", 1, False]
    assert events_of(act.Click(x=0.5, y=0.5), *SIZE) == [["move", 500, 250], press, release]
    assert events_of(act.LeftDouble(x=0.5, y=0.5), *SIZE)[1:] == [press, release, press, release]
    assert events_of(act.RightSingle(x=0.5, y=0.5), *SIZE)[1] == ["button", 3, True]


def test_a_drag_moves_several_times_between_its_ends_while_the_button_is_down() -> None:
    made = events_of(act.Drag(x=0.1, y=0.2, to_x=0.3, to_y=0.4), *SIZE)
    assert made[:2] == [["move", 100, 100], ["button", 1, True]] and made[-1] == ["button", 1, False]
    moves = [event[1:] for event in made[2:] if event[0] == "move"]
    assert len(moves) >= 4 and moves[-1] == [300, 200] and moves == sorted(moves)


@pytest.mark.parametrize(("direction", "button"), [("up", 4), ("down", 5), ("left", 6), ("right", 7)])
def test_a_scroll_turns_the_wheel_at_its_point(direction: act.Direction, button: int) -> None:
    made = events_of(act.Scroll(x=0.5, y=0.5, direction=direction), *SIZE)
    assert made[0] == ["move", 500, 250] and made.count(["button", button, True]) == NOTCHES
    assert events_of(act.Scroll(direction=direction), *SIZE) == made[1:]  # where the pointer is


@pytest.mark.parametrize(("kind", "times"), [(act.LeftDouble, 2), (act.TripleClick, 3)])
def test_several_clicks_without_a_place_are_where_the_pointer_is(kind: type[act.LeftDouble], times: int) -> None:
    clicks = [["button", 1, True], ["button", 1, False]] * times
    assert events_of(kind(), *SIZE) == clicks
    assert events_of(kind(x=0.5, y=0.5), *SIZE) == [["move", 500, 250], *clicks]


def test_keys_go_up_in_the_other_order_than_they_went_down() -> None:
    made = events_of(act.Hotkey(key="ctrl shift s"), *SIZE)
    keys = [event[1:] for event in made if event[0] == "key"]
    down = [keysym for keysym, pressed in keys if pressed]
    assert down == [0xFFE3, 0xFFE1, ord("s")] and [keysym for keysym, pressed in keys if not pressed] == down[::-1]


def test_several_names_of_a_key_are_one_key_to_a_desktop_and_to_a_machine_of_osworld() -> None:
    for made in (events_of, code_of):
        for ours, other in (
            ("return", "enter"),
            ("esc", "escape"),
            ("cmd", "meta"),
            ("up", "arrowup"),
            ("del", "delete"),
        ):
            assert made(act.Press(key=ours), *SIZE) == made(act.Press(key=other), *SIZE)
        assert made(act.Hotkey(key="Ctrl+Shift+T"), *SIZE) == made(act.Hotkey(key="ctrl shift t"), *SIZE)
        with pytest.raises(ActionFailure, match="hyperdrive"):
            made(act.Hotkey(key="hyperdrive"), *SIZE)


def test_a_key_that_a_display_lacks_is_refused_by_name(sentence: Sentences) -> None:
    with sentence.raises(ActionFailure, "'final'"):
        events_of(act.Hotkey(key="final"), *SIZE)


PHONE = (
    *(act.PressHome(), act.PressBack(), act.PressEnter(), act.PressRecent(), act.PressMenu()),
    act.OpenApp(app_name="x"),
)
BROWSER = (act.Navigate(content="x"), act.NavigateBack())


@pytest.mark.parametrize("action", [*PHONE, *BROWSER], ids=lambda one: one.type)
def test_what_a_phone_or_a_browser_does_is_the_policy_s_failure_on_a_desktop(action: act.Action) -> None:
    for made in (events_of, code_of):
        with pytest.raises(ActionFailure, match=action.type):
            made(action, *SIZE)


def test_a_desktop_that_did_not_start_is_a_failure_of_its_sandbox() -> None:
    sandbox = DesktopSandbox(DesktopConfig(kind="desktop"), {})
    with pytest.raises(SandboxFailure, match="not started"):
        _ = sandbox.box


def test_the_pointer_s_other_actions_are_events_of_a_desktop_and_code_of_osworld() -> None:
    place: dict[str, Any] = {"x": 0.5, "y": 0.5}
    press, release = ["button", 1, True], ["button", 1, False]
    assert events_of(act.TripleClick(**place), *SIZE) == [["move", 500, 250], *[press, release] * 3]
    assert events_of(act.MiddleSingle(**place), *SIZE)[1:] == [["button", 2, True], ["button", 2, False]]
    moves = [event for event in events_of(act.Move(**place), *SIZE) if event[0] == "move"]
    assert moves[-1] == ["move", 500, 250] and len(moves) == 2
    assert events_of(act.MouseDown(), *SIZE) == [press]
    assert events_of(act.MouseUp(**place, button="right"), *SIZE)[-1] == ["button", 3, False]
    assert "pyautogui.tripleClick(500, 250, interval=0.05)" in code_of(act.TripleClick(**place), *SIZE)
    assert "pyautogui.click(500, 250, button='middle')" in code_of(act.MiddleSingle(**place), *SIZE)
    assert "pyautogui.moveTo(500, 250" in code_of(act.Move(**place), *SIZE)
    assert code_of(act.MouseDown(), *SIZE).endswith("; pyautogui.mouseDown(button='left')")
    up = code_of(act.MouseUp(**place, button="right"), *SIZE)
    assert up.index("moveTo(500, 250") < up.index("mouseUp(button='right')")


def test_a_long_press_and_a_wait_last_as_long_as_they_ask_for() -> None:
    press = act.LongPress(x=0.5, y=0.5, seconds=2.5)
    assert ["pause", 2.5] in events_of(press, *SIZE) and "time.sleep(2.5)" in code_of(press, *SIZE)
    assert events_of(act.Wait(seconds=3), *SIZE) == [["pause", 3.0]]
    assert events_of(act.Wait(), *SIZE) == [["pause", WAIT_S]]
