"""OpenWebRL's replies as its browser performs them, and its prompts as its rollouts build them.

Source: OpenWebRL/OpenWebRL @5ae7e95, openwebrl/env/web_env.py, openwebrl/generate_browser.py.
"""

import json
from typing import Any

import pytest

from models.completion import Completion
from models.families.outside import unmarked
from models.families.screen import Size
from models.policy import Context
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from tests.unit.models.families.test_families import made

SCREEN = (1280, 720)
SELECTED = act.Hotkey(key="ctrl a")
NOT_EXECUTED = ["Failed: `new_tab` was not executed.", "Failed: `wait` was not executed."]


def called(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def read(text: str, screen: Size = SCREEN) -> Completion:
    return made("openwebrl").read(Completion(f"<think>\nI see.\n</think>\n{text}"), screen)


def all_of(read: Completion) -> list[Action]:
    return [*read.actions, *read.dropped]


@pytest.mark.parametrize(
    ("screen", "place"), [((1280, 720), (478.72, 72)), ((1920, 1080), (718.08, 108)), ((1080, 2400), (403.92, 240))]
)
def test_a_place_is_in_thousandths_and_keeps_its_fraction(screen: Size, place: tuple[float, float]) -> None:
    found = read(called("click", point_2d=[374, 100]), screen)
    assert isinstance(found.first, act.Click) and found.thought == "I see." and not found.unused
    assert (found.first.x * screen[0], found.first.y * screen[1]) == pytest.approx(place, abs=1e-6)


@pytest.mark.parametrize(
    ("reply", "actions", "unused"),
    [
        (called("click", point_2d=[500, 500], clicks=3, button="left"), [act.TripleClick(x=0.5, y=0.5)], ()),
        (called("click", point_2d=[500, 500], clicks=2), [act.LeftDouble(x=0.5, y=0.5)], ()),
        (called("click", point_2d=[500, 500], button="right"), [act.RightSingle(x=0.5, y=0.5)], ()),
        (called("click", point_2d=[1000, 0], button="middle"), [act.MiddleSingle(x=1, y=0)], ()),
        (called("hover", point_2d=[500, 500]), [act.Move(x=0.5, y=0.5)], ()),
        (
            called("drag", start_point_2d=[0, 500], end_point_2d=[500, 0], steps=10),
            [act.Drag(x=0, y=0.5, to_x=0.5, to_y=0)],
            ("steps=10",),
        ),
        (called("write", message="a\n"), [SELECTED, act.Type(content="a\n")], ()),
        (called("scroll"), [act.Scroll(x=0.5, y=0.5, direction="down")], ()),
        (
            called("scroll", direction="left", amount=0.8, point_2d=[0, 500]),
            [act.Scroll(x=0, y=0.5, direction="left")],
            ("amount=0.8",),
        ),
        (called("press_keys", keys=["Control", "c"], is_hotkey=True), [act.Hotkey(key="ctrl c")], ()),
        (
            called("press_keys", keys=["Tab", "Enter"], presses=2),
            [act.Hotkey(key="tab")] * 2 + [act.Hotkey(key="enter")] * 2,
            (),
        ),
        (called("press_keys", keys="Enter"), [act.Hotkey(key="enter")], ()),
        (called("wait", seconds=5), [act.Wait(seconds=5)], ()),
        (called("wait"), [act.Wait()], ()),
        (called("goto_url", url="https://example.com"), [act.Navigate(content="https://example.com")], ()),
        (called("go_back"), [act.NavigateBack()], ()),
        (called("call_user", question="Which one?"), [act.CallUser(content="Which one?")], ()),
        (called("done", response="42"), [act.Finished(content="42")], ()),
        (called("done"), [act.Finished()], ()),
        ('<tool_call>{"name": "wait", "parameters": {"seconds": 5}}</tool_call>', [act.Wait(seconds=5)], ()),
    ],
)
def test_calls_are_what_its_browser_performs(reply: str, actions: list[Action], unused: tuple[str, ...]) -> None:
    found = read(reply)
    assert all_of(found) == actions and len(found.actions) == len(actions), found.error
    assert found.unused == unused


def test_several_calls_are_read_in_order() -> None:
    calls = (called("click", point_2d=[0, 0]), called("write", message="hi"), called("press_keys", keys=["Enter"]))
    typed = [SELECTED, act.Type(content="hi"), act.Hotkey(key="enter")]
    assert all_of(read("\n".join(calls))) == [act.Click(x=0, y=0), *typed]


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (called("new_tab"), "no action for 'new_tab'"),
        (called("switch_tab", tab_index=1), "no action for 'switch_tab'"),
        (called("left_click", point_2d=[1, 1]), "no tool 'left_click'"),
        (called("click"), "`point_2d` is missing"),
        (called("click", point_2d=[1, 2], clicks=4), "4 clicks of the left button"),
        (called("click", point_2d=[1001, 2]), "click.x"),
        (called("click", point_2d=[1, 2], action="left_click"), "click has an argument `action`"),
        (called("drag", end_point_2d=[1, 2]), "`start_point_2d` is missing"),
        (called("write", message=""), "write without a text"),
        (called("write"), "`message` is missing"),
        (called("scroll", direction="in"), "scroll.direction"),
        (called("press_keys", keys=[]), "`keys` is missing"),
        (called("press_keys", keys=[1]), "are no keys"),
        (called("press_keys", keys=["nokey"]), "no key 'nokey'"),
        (called("press_keys", keys=["a"] * 60, presses=2), "more than 100 presses"),
        ("The page has loaded.", "no tool call"),
    ],
)
def test_a_call_that_is_no_action_is_an_error_by_name(reply: str, problem: str) -> None:
    found = read(reply)
    assert found.first is None and problem in (found.error or ""), found


def test_what_it_cannot_write_is_refused_by_name() -> None:
    for action in (act.CallUser(), act.Type(content=""), act.Press(key="ctrl"), act.LongPress(x=0, y=0)):
        with pytest.raises(UsageError, match=f"openwebrl has no function for {action.type}"):
            made("openwebrl").write(action, SCREEN)


@pytest.mark.parametrize(
    ("policy", "middle"),
    [
        ({}, "screen size: 1280 x 720\n\n</observation>"),
        (
            {"context": "fold", "live_images": 1, "fold_images": 1},
            "screen size: 1280 x 720\nThis screenshot has been collapsed.\n</observation>",
        ),
    ],
)
def test_a_prompt_has_all_replies_their_results_and_the_last_screen(policy: dict[str, Any], middle: str) -> None:
    """`_generate_turn_sample_impl`, with `context_num_screenshots` 1 and `browser_include_tool_response`."""
    family, screen = made("openwebrl", "computer", **policy), Observation(b"", *SCREEN, "")
    both = f"{called('click', point_2d=[0, 0])}\n{called('write', message='hi')}"
    turns = (PastStep("First.", both, screen), PastStep("Then.", "I wait.", screen))
    messages = family.chat(Context("Do it.", turns, screen, 0))
    texts = ["".join(part.get("text", "<image>") for part in one["content"]) for one in messages]
    system, *asked = zip([one["role"] for one in messages], texts, strict=True)
    assert system[0] == "system" and '"name": "press_keys"' in system[1] and "{tools}" not in system[1]
    first = "<user_request>\nDo it.\n</user_request>\n\n<observation>\nscreen size: 1280 x 720\n"
    assert asked == [
        ("user", f"{first}\n</observation>"),
        ("assistant", f"<think>\nFirst.\n</think>\n\n{both}"),
        (
            "user",
            "<tool_response>\nSucceed: `click` executed.\nSucceed: `write` executed.\n\n<observation>\n"
            f"{middle}\n</tool_response>",
        ),
        ("assistant", "<think>\nThen.\n</think>\n\nI wait."),
        (
            "user",
            "<tool_response>\nNo tool call was read.\n\n<observation>\nscreen size: 1280 x 720\nscreenshot:\n"
            "<image>\n</observation>\n</tool_response>",
        ),
    ]


@pytest.mark.parametrize(
    ("calls", "error", "lines"),
    [
        (
            [called("click", point_2d=[0, 0])],
            "the page is closed",
            ["Failed: `click` execution failed: the page is closed"],
        ),
        (
            [called("click", point_2d=[0, 0]), called("write", message="hi"), called("wait")],
            "action 3 of 4: no field has the focus; 1 not performed",
            [
                "Succeed: `click` executed.",
                "Failed: `write` execution failed: no field has the focus",
                "Failed: `wait` was not executed.",
            ],
        ),
        ([called("wait"), called("new_tab"), called("wait")], "", ["Succeed: `wait` executed.", *NOT_EXECUTED]),
    ],
)
def test_a_call_that_was_not_performed_is_reported_as_failed(calls: list[str], error: str, lines: list[str]) -> None:
    """`WebEnv.execute_single_action`: a result begins with `Succeed:` or `Failed:`."""
    screen = Observation(b"", *SCREEN, "")
    turn = PastStep("First.", "\n".join(calls), screen, error)
    messages = made("openwebrl").chat(Context("Do it.", (turn,), screen, 0))
    result = messages[-1]["content"][0]["text"]
    assert result.startswith("<tool_response>\n" + "\n".join(lines) + "\n\n<observation>")


def test_a_special_token_in_a_reason_is_text() -> None:
    screen = Observation(b"", *SCREEN, "")
    turn = PastStep("First.", called("wait"), screen, "not <|im_end|>")
    messages = made("openwebrl").chat(Context("Do it.", (turn,), screen, 0))
    assert "<|im_end|>" not in messages[-1]["content"][0]["text"]
    assert "not <|im_end|>" in unmarked(messages[-1]["content"][0]["text"])
