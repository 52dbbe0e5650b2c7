"""An argument that a model writes is performed or reported, in every family."""

import json
import time
from typing import Any

import pytest

from apps.commands.parsing import as_read
from models.completion import Completion
from models.families.dialects import parse_reply
from models.families.reading import finds_call
from models.families.registry import FAMILIES
from schemas import action as act
from schemas.action import Action
from tests.unit.models.families.test_families import SCREEN, made

CLICK, CLEAR, TYPED = act.Click(x=0.5, y=0.5), act.Hotkey(key="ctrl a"), act.Type(content="hi\n")


def called(**arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>"


def phone(**arguments: Any) -> str:
    return f"Memory: \nReason: a\nAction: {json.dumps(arguments)}"


BOX = [[500, 500, 500, 500]]
ALL = {"press_enter": True, "delete_existing_text": True}


@pytest.mark.parametrize(
    ("family", "reply", "actions"),
    [
        ("qwen3-vl", called(action="type", text="hi", coordinate=[500, 500]), [CLICK, act.Type(content="hi")]),
        ("qwen3-vl", called(action="type", text="hi", coordinate=[500, 500], **ALL), [CLICK, CLEAR, TYPED]),
        ("qwen3-vl", called(action="type", text="hi", press_enter=True), [TYPED]),
        ("qwen3-vl", called(action="type", text="hi\n", press_enter=True), [TYPED]),
        ("qwen3-vl", called(action="type", text="hi", press_enter=False), [act.Type(content="hi")]),
        (
            "qwen3-vl",
            called(action="type", text="", delete_existing_text=True),
            [CLEAR, act.Hotkey(key="backspace"), act.Type(content="")],
        ),
        ("qwen2.5-vl", called(action="type", text="hi", coordinate=[966, 546], **ALL), [CLICK, CLEAR, TYPED]),
        ("glm", phone(action_type="input_text", text="hi", box_2d=BOX, **ALL), [CLICK, CLEAR, TYPED]),
        ("doubao", "Action: type(content='hi', point='<point>500 500</point>', press_enter=True)", [CLICK, TYPED]),
        (
            "ui-tars-2",
            "<function=type><parameter=content>hi</parameter><parameter=point><point>500 500</point></parameter>"
            "<parameter=delete_existing_text>true</parameter><parameter=press_enter>true</parameter></function>",
            [CLICK, CLEAR, TYPED],
        ),
    ],
)
def test_typing_with_a_place_and_its_switches_is_all_that_it_stands_for(
    family: str, reply: str, actions: list[Action]
) -> None:
    """microsoft/fara `_prompts.py` @360e87f: `coordinate`, `press_enter` and `delete_existing_text` of `type`."""
    read = made(family).read(Completion(reply), SCREEN)
    assert [*read.actions, *read.dropped] == actions and len(read.actions) == len(actions)
    assert not read.unused


def test_a_switch_that_is_a_number_is_on_where_it_is_1() -> None:
    """X-PLUG/MobileAgent `Mobile-Agent-v3/os_world_v3/mm_agents/owl_agent.py` @11cea57: GUI-Owl's prompt asks for
    `clear` and `enter` as 1 or 0."""
    for family, written in (("qwen3-vl", called), ("glm", lambda **given: phone(action_type="input_text", **given))):
        place = {"box_2d": BOX} if family == "glm" else {"action": "type"}
        for number, wanted in ((1, [CLEAR, TYPED]), (0, [act.Type(content="hi")]), ("1", [CLEAR, TYPED])):
            read = made(family).read(Completion(written(text="hi", enter=number, clear=number, **place)), SCREEN)
            assert [*read.actions, *read.dropped][-len(wanted) :] == wanted
            assert (CLEAR in (*read.actions, *read.dropped)[1:] or read.first == CLEAR) == (
                number != 0
            ) and not read.unused


DRAG = act.Drag(x=0.1, y=0.2, to_x=0.3, to_y=0.4)


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        # X-PLUG/MobileAgent @11cea57: owl_agent.py of Mobile-Agent-v3/os_world_v3, run_gui_owl_1_5_for_mobile.py
        ({"action": "drag", "coordinate": [100, 200], "coordinate2": [300, 400]}, DRAG),
        ({"action": "left_click_drag", "coordinate": [100, 200], "coordinate2": [300, 400]}, DRAG),
        ({"action": "scroll", "coordinate": [100, 200], "coordinate2": [300, 400]}, DRAG),
        ({"action": "swipe", "coordinate": [100, 200], "coordinate2": [300, 400]}, DRAG),
        ({"action": "interact", "text": "Log in."}, act.CallUser(content="Log in.")),
        # microsoft/fara src/fara/_prompts.py @3f3f1fd
        ({"action": "visit_url", "url": "https://a.example"}, act.Navigate(content="https://a.example")),
        ({"action": "history_back"}, act.NavigateBack()),
    ],
)
def test_actions_of_models_that_were_trained_from_qwens_are_read(arguments: dict[str, Any], action: Action) -> None:
    read = made("qwen3-vl").read(Completion(called(**arguments)), SCREEN)
    assert (*read.actions, *read.dropped) == (action,), read.error


@pytest.mark.parametrize("name", ["drag", "left_click_drag"])
def test_a_drag_with_one_place_ends_there_and_begins_at_the_cursor(name: str) -> None:
    """X-PLUG/MobileAgent `Mobile-Agent-v3.5/computer_use/run_gui_owl_1_5_for_pc.py` @11cea57."""
    moved = called(action="mouse_move", coordinate=[100, 200])
    dragged = called(action=name, coordinate=[300, 400])
    assert made("qwen3-vl").read(Completion(f"{moved}\n{dragged}"), SCREEN).first == DRAG
    alone = made("qwen3-vl").read(Completion(dragged), SCREEN)
    assert (*alone.actions, *alone.dropped) == (act.MouseDown(), act.MouseUp(x=DRAG.to_x, y=DRAG.to_y))
    assert len(alone.actions) == 2
    started = made("qwen3-vl").read(
        Completion(called(action=name, start_coordinate=[100, 200], coordinate=[300, 400])), SCREEN
    )
    assert started.first == DRAG and not started.unused


@pytest.mark.parametrize(
    ("literal", "action"),
    [
        (
            "{'arguments': {'action': 'swipe', 'coordinate': (100, 200), 'coordinate2': (300, 400)}}",
            DRAG,
        ),
        ("{'name': 'computer_use', 'arguments': {'action': 'key', 'keys': ('ctrl', 'c')}}", act.Hotkey(key="ctrl c")),
        ("{{'name': 'computer_use', 'arguments': {'action': 'wait'}}}", None),
        ("{['a']: 'computer_use', 'arguments': {'action': 'wait'}}", None),
    ],
)
def test_a_python_literal_is_read_with_its_tuples_and_one_that_python_refuses_is_an_error(
    literal: str, action: Action | None
) -> None:
    """X-PLUG/MobileAgent `Mobile-Agent-v3.5/computer_use/utils.py` @11cea57 reads calls with `ast.literal_eval`, to
    which a dictionary in braces is a set that cannot be."""
    read = made("qwen3-vl").read(Completion(f"<tool_call>\n{literal}\n</tool_call>"), SCREEN)
    assert read.first == action and (action is None) == bool(read.error)


@pytest.mark.parametrize(
    ("family", "template", "reply", "kind", "unused"),
    [
        ("qwen3-vl", "", called(action="wait", time="soon"), "wait", ("time=soon",)),
        ("qwen3-vl", "", called(action="left_click", coordinate=[1, 2], text="OK"), "click", ("text=OK",)),
        ("qwen3-vl", "", called(action="left_click", coordinate=[1, 2], text=None), "click", ()),
        ("qwen3-vl", "mobile", called(action="long_press", coordinate=[1, 2], time=9), "long_press", ("time=9",)),
        ("glm", "mobile", phone(action_type="click", box_2d=BOX, why="x"), "click", ("why=x",)),
        (
            "glm",
            "computer",
            "<|begin_of_box|>scroll(start_box='[1,2]', direction='up', step=5, element_info='a list')<|end_of_box|>",
            "scroll",
            ("step=5", "element_info=a list"),
        ),
        ("holo-2", "", '{"x": 1, "y": 2, "element": "OK"}', "click", ("element=OK",)),
        ("ui-tars-1.5", "", "Action: wait(time='50')", "wait", ("time=50",)),
        ("ui-tars-1.5", "", "Action: call_user(content='why', to='me')", "call_user", ("to=me",)),
        ("doubao", "", "Action: type(content='a', delay=100)", "type", ("delay=100",)),
        ("thousandths", "", "Action: click(start_box='(1,2)', end_box='(3,4)')", "click", ("end_box=(3,4)",)),
        (
            "ui-tars-2",
            "",
            "<function=wait><parameter=time>-5</parameter></function>",
            "wait",
            ("time=-5",),
        ),
        ("opencua", "", "```python\npyautogui.click(x=1, y=2, duration=0.5)\n```", "click", ("duration=0.5",)),
        (
            "opencua",
            "",
            "```python\npyautogui.moveTo(1, 2, duration=1)\npyautogui.dragTo(9, 9, 0.5)\n```",
            "drag",
            ("duration=1", "duration=0.5"),
        ),
        ("opencua", "", "```python\npyautogui.write('a', interval=0.1)\ntime.sleep(2)\n```", "type", ("interval=0.1",)),
        ("scalecua", "computer", "<action>\nwait(seconds=300)\n</action>", "wait", ("seconds=300",)),
        ("qwen3-vl", "", called(action="scroll", coordinate=[1, 2], pixels=-2000), "scroll", ("pixels=-2000",)),
        ("qwen3-vl", "", called(action="terminate", status="failure"), "call_user", ()),
        (
            "qwen3-vl",
            "",
            called(action="terminate", status="infeasible", text="no such file", code=3),
            "call_user",
            ("code=3",),
        ),
        ("qwen3-vl", "", called(action="key", keys=["a"], text="b"), "hotkey", ("text=b",)),
        (
            "qwen3-vl",
            "",
            f"{called(action='mouse_move', coordinate=[1, 2], time=1)}{called(action='left_click', button=1)}",
            "click",
            ("time=1",),
        ),
        ("glm", "mobile", phone(action_type="status", goal_status="infeasible"), "call_user", ()),
        ("opencua", "", "```python\npyautogui.scroll(-50, x=1, y=2)\n```", "scroll", ("clicks=-50",)),
        (
            "opencua",
            "",
            "```python\npyautogui.hscroll(50, x=1, y=2, _pause=False)\n```",
            "scroll",
            ("_pause=False", "clicks=50"),
        ),
        ("opencua", "", "```python\npyautogui.doubleClick(1, 2, interval=0.2)\n```", "left_double", ("interval=0.2",)),
        ("opencua", "", "```python\npyautogui.doubleClick(1, 2, interval=1)\n```", "click", ()),
        (
            "opencua",
            "",
            "```python\ncomputer.terminate(status='failure', answer='no such file')\n```",
            "call_user",
            (),
        ),
        (
            "scalecua",
            "computer",
            "<action>terminate(status='failure', info='a', answer='b')</action>",
            "call_user",
            ("answer=b",),
        ),
        ("scalecua", "computer", "<action>terminate(info='a', answer='b')</action>", "finished", ("answer=b",)),
        (
            "scalecua",
            "mobile",
            "<action>swipe(from_coord=[1, 2], to_coord=[3, 4], direction='up', amount=0.1)</action>",
            "drag",
            ("direction=up", "amount=0.1"),
        ),
        ("scalecua", "mobile", "<action>swipe(direction='up', amount=0.1)</action>", "drag", ()),
    ],
)
def test_an_argument_that_no_action_has_is_reported_and_the_action_stands(
    family: str, template: str, reply: str, kind: str, unused: tuple[str, ...]
) -> None:
    reader = made(family, template)
    read = reader.read(Completion(reply), SCREEN)
    assert read.first is not None and (read.first.type, read.unused) == (kind, unused)
    assert as_read(reader, reply, SCREEN).get("unused", []) == list(unused)


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        ("qwen3-vl", called(action="key", keys=["ctrl+a", "delete"])),
        ("opencua", "```python\npyautogui.hotkey('ctrl+a', 'delete')\n```"),
        ("scalecua", "<action>hotkey(['ctrl+c', 'ctrl+v'])</action>"),
    ],
)
def test_several_chords_in_a_list_of_keys_are_an_error(family: str, reply: str) -> None:
    read = made(family).read(Completion(reply), SCREEN)
    assert read.first is None and "several chords" in (read.error or "")


def test_holo_clicks_where_its_reply_names_a_click_and_nothing_else() -> None:
    for action, kind in (("click_absolute", "click"), ("right_click", None), (["click"], None)):
        read = made("holo-1.5").read(Completion(json.dumps({"action": action, "x": 1, "y": 2})), SCREEN)
        assert (read.first.type if read.first else None) == kind and bool(read.error) == (kind is None)


def test_an_argument_that_an_action_needs_is_no_number_where_it_is_a_text() -> None:
    assert made("doubao").read(Completion("Action: type(content=3)"), SCREEN).first is None


def pointed(family: str, name: str = "click", **arguments: Any) -> Completion:
    """A call at a place, read with its further arguments in the grammar of a family."""
    place: dict[str, Any] = {"coordinate": [500, 500]}
    if family == "glm":
        reply = phone(action_type="click", box_2d=BOX, **arguments)
    elif family == "holo-2":
        reply = json.dumps({"x": 500, "y": 500, **arguments})
    elif family.startswith("qwen"):
        place = {"coordinate": [966, 546]} if family == "qwen2.5-vl" else place
        reply = called(action={"click": "left_click"}.get(name, name), **place, **arguments)
    elif family == "ui-tars-2":
        given = "".join(f"<parameter={key}>{value}</parameter>" for key, value in arguments.items())
        reply = f"<function={name}><parameter=point><point>500 500</point></parameter>{given}</function>"
    else:
        given = "".join(f", {key}={str(value)!r}" for key, value in arguments.items())
        place["start_box"] = "(966,546)" if family == "ui-tars-1.5" else "(500,500)"
        reply = f"Action: {name}(start_box='{place['start_box']}'{given})"
    return made(family).read(Completion(reply), SCREEN)


POINTING = (
    "qwen2.5-vl",
    "qwen3-vl",
    "ui-tars-1.0",
    "ui-tars-1.5",
    "doubao",
    "ui-tars-2",
    "thousandths",
    "glm",
    "holo-2",
)


@pytest.mark.parametrize("family", POINTING)
@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"button": "right"}, "right_single"),
        ({"button": "Left"}, "click"),
        ({"mouse_button": "secondary"}, "right_single"),
        ({"clicks": 2}, "left_double"),
        ({"click_count": 1}, "click"),
        ({"button": "right", "num_clicks": 1}, "right_single"),
        ({"button": "middle"}, "middle_single"),
        ({"button": "wheel"}, "middle_single"),
        ({"button": "fnord"}, None),
        ({"button": "right", "clicks": 2}, None),
        ({"clicks": 3}, "triple_click"),
        ({"clicks": 4}, None),
        ({"button": "middle", "clicks": 2}, None),
        ({"clicks": "often"}, None),
        ({"text": "shift"}, None),
        ({"text": "ctrl+shift"}, None),
        ({"modifiers": "ctrl"}, None),
        ({"modifier": "Meta"}, None),
        ({"key": "alt"}, None),
        ({"hold_keys": "a"}, None),
        ({"modifiers": "None"}, "click"),
        ({"modifier": "NULL"}, "click"),
        ({"held_keys": "empty"}, "click"),
        ({"button": "None", "mouse_button": "right"}, "right_single"),
        ({"clicks": "null"}, "click"),
        ({"num_clicks": "", "click_count": 2}, "left_double"),
    ],
)
def test_an_argument_that_makes_a_click_another_action_is_done_or_is_an_error(
    family: str, arguments: dict[str, Any], kind: str | None
) -> None:
    read = pointed(family, **arguments)
    assert (read.first.type if read.first else None) == kind, read
    assert bool(read.error) == (kind is None) and not read.unused
    if kind:
        assert read.first is not None and act.point_of(read.first) == pytest.approx((0.5, 0.5), abs=2e-3)


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl"])
@pytest.mark.parametrize("keys", [["ctrl"], ["Shift", "alt"], "command", [["super"]]])
def test_a_list_of_keys_that_are_held_is_an_error_that_names_them(family: str, keys: object) -> None:
    for name in ("modifiers", "keys"):
        held: dict[str, Any] = {name: keys}
        read = pointed(family, **held)
        assert read.first is None and "is held" in (read.error or "")


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ({"action": "double_click", "coordinate": [1, 2], "button": "right"}, None),
        ({"action": "right_click", "coordinate": [1, 2], "button": "left"}, None),
        ({"action": "right_click", "coordinate": [1, 2], "button": "right"}, ["right_single"]),
        ({"action": "scroll", "coordinate": [1, 2], "pixels": 5, "keys": ["ctrl"]}, None),
        ({"action": "drag", "coordinate": [1, 2], "coordinate2": [3, 4], "button": "right"}, None),
        ({"action": "drag", "coordinate": [1, 2], "coordinate2": [3, 4], "modifiers": ["shift"]}, None),
        ({"action": "drag", "coordinate": [1, 2], "coordinate2": [3, 4], "button": "left"}, ["drag"]),
        ({"action": "type", "text": "a", "modifiers": ["ctrl"]}, None),
        ({"action": "key", "keys": ["down"], "presses": 3}, ["hotkey"] * 3),
        ({"action": "key", "keys": ["down"], "repeat": 0}, None),
        ({"action": "key", "keys": ["c"], "modifiers": ["ctrl"]}, ["hotkey"]),
        ({"action": "left_click", "coordinate": [1, 2], "modifiers": []}, ["click"]),
        ({"action": "left_click", "coordinate": [1, 2], "modifiers": "none", "button": ""}, ["click"]),
        ({"action": "left_click", "coordinate": [1, 2], "modifiers": ["None", None, ""]}, ["click"]),
        ({"action": "left_click", "coordinate": [1, 2], "modifiers": ["None", "ctrl"]}, None),
        ({"action": "key", "keys": ["down"], "repeat": "None", "modifiers": "Null"}, ["hotkey"]),
        ({"action": "triple_click", "coordinate": [1, 2], "clicks": 3}, ["left_double"]),
        ({"action": "triple_click", "coordinate": [1, 2], "num_clicks": "3", "button": "left"}, ["left_double"]),
        ({"action": "triple_click", "coordinate": [1, 2], "clicks": 4}, None),
        ({"action": "triple_click", "coordinate": [1, 2], "clicks": 3, "button": "right"}, None),
        ({"action": "double_click", "coordinate": [1, 2], "clicks": 2}, ["left_double"]),
        ({"action": "double_click", "coordinate": [1, 2], "clicks": 3}, None),
        ({"action": "right_click", "coordinate": [1, 2], "click_count": 1}, ["right_single"]),
    ],
)
def test_the_rule_holds_for_every_action(arguments: dict[str, Any], kinds: list[str] | None) -> None:
    read = made("qwen3-vl").read(Completion(called(**arguments)), SCREEN)
    assert [one.type for one in (*read.actions, *read.dropped)] == (kinds or []), read.error
    assert not read.dropped
    if arguments.get("keys") == ["c"]:
        assert read.first == act.Hotkey(key="ctrl c")


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        ("qwen3-vl", called(action="key", keys=["fnord"])),
        ("qwen3-vl", called(action="key", keys=["ctrl", "hyperdrive"])),
        ("glm", "<|begin_of_box|>key(keys='down,down,enter')<|end_of_box|>"),
        ("ui-tars-1.5", "Action: hotkey(key='ctrl fnord')"),
        ("ui-tars-1.5", "Action: press(key='fnord')"),
        ("opencua", "```python\npyautogui.press('fnord')\n```"),
        ("opencua", "```python\npyautogui.keyDown('fnord')\n```"),
        ("scalecua", "<action>hotkey('ctrl', 'fnord')</action>"),
    ],
)
def test_a_key_that_no_keyboard_has_is_an_error(family: str, reply: str) -> None:
    read = made(family).read(Completion(reply), SCREEN)
    assert read.first is None and "there is no key" in (read.error or "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"action": "type"}, "`text` is missing"),
        ({"action": "type", "text": 3}, "`text` is no text: 3"),
        ({"action": "answer"}, "`text` is missing"),
        ({"action": "open", "text": ["a"]}, "`text` is no text"),
        ({"action": "visit_url"}, "`url` is missing"),
        ({"action": "mouse_move"}, "mouse_move without a coordinate"),
        ({"action": "middle_click"}, "middle_click without a coordinate"),
        ({"action": "hover", "coordinate": [1, 2]}, "there is no action for 'hover'"),
    ],
)
def test_an_error_names_the_models_own_argument(arguments: dict[str, Any], problem: str) -> None:
    for family in ("qwen2.5-vl", "qwen3-vl"):
        read = made(family).read(Completion(called(**arguments)), SCREEN)
        assert read.first is None and problem in (read.error or "")


@pytest.mark.parametrize(
    "place", ["[500, 300]", ["500", "300"], [500, "300"], ["490", "290", "510", "310"], [[500, 300]]]
)
def test_numbers_of_a_place_may_be_texts(place: object) -> None:
    for read in (
        made("qwen3-vl").read(Completion(called(action="left_click", coordinate=place)), SCREEN),
        made("glm", "mobile").read(Completion(phone(action_type="click", box_2d=place)), SCREEN),
    ):
        assert read.first == RIGHT, read.error
    for none in (["a", "b"], ["500"], [True, 3], [10**400, 3], "left"):
        assert made("qwen3-vl").read(Completion(called(action="left_click", coordinate=none)), SCREEN).error
    assert made("holo-2").read(Completion('{"x": "500", "y": 300}'), SCREEN).first == RIGHT


@pytest.mark.parametrize(
    "head", ["<|im_start|>assistant\n", "<|assistant|>\n", "\n<|im_start|>assistant\n<think>a</think>"]
)
@pytest.mark.parametrize("family", [name for name in FAMILIES.names if name != "tiny"])
def test_markup_before_a_reply_is_no_thought(family: str, head: str) -> None:
    reader = made(family)
    reply = reader.reply("", [act.Click(x=0.5, y=0.3)], SCREEN)
    read = reader.read(Completion(head + reply), SCREEN)
    assert read.first is not None and read.thought == ("a" if "<think>" in head else "")


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl", "holo-1.5", "holo-2", "glm", "internvl"])
@pytest.mark.parametrize(("before", "thought"), [("```json\n", ""), ("It is there.\n```json\n", "It is there.")])
def test_a_fence_around_a_call_is_no_thought(family: str, before: str, thought: str) -> None:
    reader = made(family, "mobile" if family == "glm" else "")
    call = reader.write(act.Click(x=0.5, y=0.3), SCREEN)
    if family.startswith("qwen"):
        call = call.removeprefix("<tool_call>").removesuffix("</tool_call>").strip()
    read = reader.read(Completion(f"{before}{call}\n```"), SCREEN)
    assert read.first is not None and read.thought == thought and not read.unused


@pytest.mark.parametrize("family", [name for name in FAMILIES.names if name != "tiny"])
def test_words_behind_the_call_are_reported_in_every_family(family: str) -> None:
    reader = made(family)
    reply = reader.reply("I look.", [act.Click(x=0.5, y=0.3)], SCREEN)
    assert not reader.read(Completion(reply), SCREEN).unused
    read = reader.read(Completion(f"{reply}\nThat was it."), SCREEN)
    assert read.first is not None and read.unused == ("text behind the action=That was it.",)


RIGHT = act.Click(x=0.5, y=0.3)


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        # bytebot-ai/bytebot #153: a coordinate that is a text
        ("qwen3-vl", called(action="left_click", coordinate="[500, 300]")),
        # QwenLM/Qwen3-VL #732: a conclusion behind the call
        (
            "qwen3-vl",
            f"<thinking>a</thinking>\n{called(action='left_click', coordinate=[500, 300])}\n<conclusion>b</conclusion>",
        ),
        # microsoft/fara fara_agent.py @360e87f: a Python literal in place of JSON
        (
            "qwen3-vl",
            "a\n<tool_call>\n{'name': 'computer_use', 'arguments': {'action': 'click', 'coordinate': [500, 300]}}\n"
            "</tool_call>",
        ),
        # langgenius/dify-official-plugins #3861: JSON in a thought before the one of the action
        (
            "qwen3-vl",
            'Thought: as {"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [1, 1]}}\n'
            'Action: {"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [500, 300]}}',
        ),
        # web-infra-dev/midscene #843
        ("doubao", "1. x\n\nAction：click(start_box='<bbox>500 300 500 300</bbox>')"),
        # bytedance/UI-TARS-desktop #28
        ("doubao", "Thought: a\n\nAction: click(start_box='[490, 290, 510, 310]')"),
        # ByteDance-Seed/Seed-1.8 #4: parameters without their end
        ("ui-tars-2", "<function=click><parameter=point><point>500 300</point></function>"),
        ("ui-tars-2", "<function=other></function>\nAction: click(point='<point>500 300</point>')"),
    ],
)
def test_replies_of_public_reports_are_read(family: str, reply: str) -> None:
    read = made(family).read(Completion(reply), SCREEN)
    assert (*read.actions, *read.dropped) == (RIGHT,), read.error


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl"])
@pytest.mark.parametrize("name", ["other_tool", "web_search", "Computer_Use", "", 3, ["computer_use"], "left_click"])
def test_a_call_of_a_tool_that_the_family_has_not_is_an_error_that_names_it(family: str, name: object) -> None:
    wait = {"action": "wait"}
    for call in ({"name": name, "arguments": wait}, {"name": name, **wait}):
        read = made(family).read(Completion(f"<tool_call>\n{json.dumps(call)}\n</tool_call>"), SCREEN)
        assert read.first is None and f"there is no tool {str(name)!r}" in (read.error or "")


@pytest.mark.parametrize("name", ["computer_use", "mobile_use", "computer", None])
def test_a_call_of_a_known_tool_is_read_also_where_its_name_stands_beside_its_arguments(name: str | None) -> None:
    """QwenLM/Qwen3-VL cookbooks/utils/agent_function_call.py, trycua/cua loops/fara/config.py (`computer`)."""
    wait = {"action": "wait"}
    for call in ({"name": name, "arguments": wait}, {"name": name, **wait}):
        read = made("qwen3-vl").read(Completion(f"<tool_call>\n{json.dumps(call)}\n</tool_call>"), SCREEN)
        assert read.first == act.Wait() and not read.unused


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            {"action": "left_click", "coordinate": [1, 2], "clicks": 0},
            "not supported: 0 clicks of the left button",
        ),
        (
            {"action": "right_click", "coordinate": [1, 2], "button": "left"},
            "1 click of the right button by name are",
        ),
        (
            {"action": "double_click", "coordinate": [1, 2], "clicks": 1},
            "2 clicks of the left button by name",
        ),
        (
            {"action": "triple_click", "coordinate": [1, 2], "clicks": 1},
            "3 clicks of the left button by name",
        ),
        ({"action": "key", "keys": ["a"], "repeat": 0.0}, "a key pressed 0 times"),
        ({"action": "key", "keys": ["a"], "presses": 2.5}, "a key pressed 2.5 times"),
    ],
)
def test_an_error_names_the_number_that_was_written(arguments: dict[str, Any], problem: str) -> None:
    assert problem in (made("qwen3-vl").read(Completion(called(**arguments)), SCREEN).error or "")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"keys": ["ctrl"], "text": "c"}, "ctrl c"),
        ({"keys": "ctrl+shift", "text": "T"}, "ctrl shift t"),
        ({"keys": ["ctrl"], "text": "Ctrl+C"}, "ctrl c"),
        ({"keys": ["Ctrl"], "text": ""}, "ctrl"),
        ({"keys": [], "text": "enter"}, "enter"),
        ({"keys": "ctrl", "text": "v"}, "ctrl v"),
        ({"keys": ["alt"], "text": 4}, "alt 4"),
        ({"keys": ["ctrl"], "text": "copies the text"}, None),
    ],
)
def test_a_text_next_to_modifiers_is_the_key_to_press_with_them(arguments: dict[str, Any], key: str | None) -> None:
    given = ", ".join(f"{name.removesuffix('s')}={value!r}" for name, value in arguments.items())
    replies = {"qwen3-vl": called(action="key", **arguments)}
    if isinstance(arguments["keys"], str):
        replies |= {"ui-tars-1.5": f"Action: hotkey({given})", "doubao": f"Action: hotkey({given})"}
    for family, reply in replies.items():
        read = made(family).read(Completion(reply), SCREEN)
        assert (getattr(read.first, "key", "").lower() or None) == key and not read.unused
        assert bool(read.error) == (key is None)


@pytest.mark.parametrize("held", [{"keys": ["ctrl"]}, {"modifiers": "shift"}, {"text": "alt"}])
def test_keys_that_are_held_during_a_mere_move_are_an_error(held: dict[str, Any]) -> None:
    moved = called(action="mouse_move", coordinate=[100, 200], **held)
    for reply in (moved, moved + called(action="left_click"), moved + called(action="drag", coordinate=[3, 4])):
        read = made("qwen3-vl").read(Completion(reply), SCREEN)
        assert read.first is None and "mouse_move while" in (read.error or "")


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        ("scalecua", "<action>\nwait()\n</action>\nThen I go on.\n<action>\npress('a')\n</action>"),
        ("scalecua", "<operation>Wait.</operation><action>wait()</action>Then I go on.<action>wait()</action>"),
        ("ui-tars-2", "<function=wait></function>\nThen I go on.\n<function=wait></function>"),
        ("ui-tars-2", "<function=wait>\nThen I go on.\n<function=wait></function>"),
        ("qwen3-vl", f"{called(action='wait')}\nThen I go on.\n{called(action='wait')}"),
    ],
)
def test_words_between_calls_are_reported(family: str, reply: str) -> None:
    read = made(family).read(Completion(reply), SCREEN)
    assert read.first == act.Wait() and len((*read.actions, *read.dropped)[1:]) == 1
    assert read.unused == ("text behind the action=Then I go on.",)


def test_words_next_to_a_fence_behind_the_action_are_reported() -> None:
    for reply in ('{"x": 1, "y": 2}\n```Done', '{"x": 1, "y": 2}\n```\nDone\n```json'):
        assert made("holo-2").read(Completion(reply), SCREEN).unused == ("text behind the action=Done",)


@pytest.mark.parametrize("family", ["holo-1.5", "holo-2"])
@pytest.mark.parametrize("note", [["a"], 5, {"a": 1}, True])
def test_a_note_of_holo_that_is_no_text_is_reported(family: str, note: object) -> None:
    for name in ("note", "thought"):
        read = made(family).read(Completion(json.dumps({"note": "n", name: note, "x": 1, "y": 2})), SCREEN)
        assert isinstance(read.first, act.Click) and read.unused == (f"{name}={note}",)
        assert read.thought == ("n" if name == "thought" else "")


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("Click(10, 20)", "no place in 'Click(10, 20)'"),
        ("{}", "no place in"),
        ('{"x": null, "y": null}', "no place in"),
        ('{"x": 3}', "`y` is missing in"),
        ('{"y": 3, "element": "OK"}', "`x` is missing in"),
        ('{"x": "left", "y": 3}', "is no coordinate in"),
    ],
)
def test_a_reply_of_holo_without_a_place_is_an_error_that_names_what_is_missing(reply: str, problem: str) -> None:
    assert (made("holo-2").read(Completion(reply), SCREEN).error or "").find(problem) >= 0


@pytest.mark.parametrize(
    ("arguments", "key", "unused"),
    [
        ({"keys": ["c"], "text": "ctrl"}, "ctrl c", ()),
        ({"keys": ["a"], "key": "ctrl"}, "ctrl a", ()),
        ({"keys": ["ctrl"], "text": "shift", "key": "t"}, "ctrl t shift", None),
        ({"keys": ["ctrl", "c"], "text": "ctrl+c"}, "ctrl c", ()),
        ({"keys": ["ctrl"], "key": "none"}, "ctrl", ()),
        ({"keys": ["alt"], "text": "null"}, "alt", ()),
        ({"keys": "none", "text": "enter"}, "enter", ()),
        ({"keys": [], "text": "enter"}, "enter", ()),
        ({"key": "enter"}, "enter", ()),
        ({"keys": ["a"], "text": "b"}, "a", ("text=b",)),
        ({"keys": " "}, "space", ()),
        ({"text": "\n"}, "enter", ()),
        ({"keys": "ctrl", "text": " "}, "ctrl space", ()),
        ({"keys": "  ", "text": "enter"}, "enter", ()),
        ({"keys": "\u00a0", "key": "enter"}, "enter", ()),
        ({"keys": ["c"], "key": "\t\t"}, "c", ()),
        ({"keys": ["none"], "text": "enter"}, "enter", ()),
        ({"keys": ["c"], "modifiers": " "}, "c", ()),
        ({"keys": ["c"], "modifiers": ["ctrl", "none"]}, "ctrl c", ()),
        ({"keys": ["ctrl", "c"], "modifiers": ["ctrl"]}, "ctrl c", ()),
        ({"keys": ["ctrl", "c"], "text": "Control+C"}, "ctrl c", ()),
        ({"keys": " ", "key": "enter"}, "enter", ("keys= ",)),
    ],
)
def test_keys_in_two_arguments_are_pressed_together_if_one_of_them_is_modifiers(
    arguments: dict[str, Any], key: str, unused: tuple[str, ...] | None
) -> None:
    read = made("qwen3-vl").read(Completion(called(action="key", **arguments)), SCREEN)
    if unused is not None:
        assert (read.first, read.unused) == (act.Hotkey(key=key), unused), read.error
    else:
        assert isinstance(read.first, act.Hotkey) and set(read.first.key.split()) == set(key.split())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("Success", "finished"), ("SUCCESS", "finished"), ("done", "finished"), ("completed ", "finished"),
        ("none", "finished"), (None, "finished"), ("Failure", "call_user"), ("failed", "call_user"),
        ("infeasible", "call_user"), ("finished", "finished"), ("Success.", "finished"), ("true", "finished"),
        ("Task complete", "finished"), ("task-impossible", "call_user"), ("incomplete", "call_user"),
    ],
)  # fmt: skip
def test_a_status_is_one_word_in_every_family(status: str | None, kind: str) -> None:
    replies = {
        "qwen3-vl": called(action="terminate", status=status),
        "opencua": f"```python\ncomputer.terminate(status={status!r})\n```",
        "scalecua": f"<action>terminate(status={status!r})</action>",
        "ui-tars-1.5": f"Action: finished(status='{status}')",
    }
    for family, reply in replies.items():
        read = made(family).read(Completion(reply), SCREEN)
        assert (read.first.type if read.first else None) == kind, (family, read.error)


def test_an_unknown_status_is_no_action_in_any_family() -> None:
    replies = {
        ("qwen3-vl", ""): called(action="terminate", status="partial"),
        ("opencua", ""): "```python\ncomputer.terminate(status='partial')\n```",
        ("scalecua", ""): "<action>terminate(status='partial')</action>",
        ("ui-tars-1.5", ""): "Action: finished(content='x', status='partial')",
        ("glm", "mobile"): phone(action_type="status", goal_status="partial"),
    }
    for (family, template), reply in replies.items():
        read = made(family, template).read(Completion(reply), SCREEN)
        assert read.first is None and "an end with the status 'partial'" in str(read.error), family


def test_a_nul_in_a_reply_is_written_out() -> None:
    read = made("qwen3-vl").read(Completion(called(action="type", text="a\0b") + "\0"), SCREEN)
    assert "\0" not in read.text and "\\x00" in read.text


@pytest.mark.parametrize("arguments", [{"keys": "  "}, {"text": "\u00a0"}, {"keys": ["\t\t"]}, {"key": " \n"}])
def test_several_blanks_are_no_key(arguments: dict[str, Any]) -> None:
    read = made("qwen3-vl").read(Completion(called(action="key", **arguments)), SCREEN)
    assert read.first is None and "without a key" in str(read.error)


@pytest.mark.parametrize(
    ("reply", "key"),
    [
        ("hotkey(key=['ctrl','c'])", "ctrl c"), ("hotkey(key=[\"ctrl\", 'shift+t', ])", "ctrl shift t"),
        ("hotkey(hotkey=['enter'])", "enter"),
    ],
)  # fmt: skip
def test_a_list_of_keys_is_a_chord_in_ui_tars_text(reply: str, key: str) -> None:
    read = made("ui-tars-1.5").read(Completion(f"Thought: So.\nAction: {reply}"), SCREEN)
    assert read.first == act.Hotkey(key=key), read.error
    read = made("glm").read(
        Completion(f"<|begin_of_box|>{reply.replace('hotkey(key', 'key(keys')}<|end_of_box|>"), SCREEN
    )
    assert read.first == act.Hotkey(key=key) or "hotkey=" in reply, read.error


@pytest.mark.parametrize(("status", "kind"), [("1", "finished"), ("0", "call_user"), ("true", "finished")])
def test_a_status_may_be_a_number(status: str, kind: str) -> None:
    read = made("ui-tars-1.5").read(Completion(f"Action: finished(status={status})"), SCREEN)
    assert read.first is not None and read.first.type == kind
    read = made("qwen3-vl").read(Completion(called(action="terminate", status=json.loads(status))), SCREEN)
    assert read.first is not None and read.first.type == kind


def test_an_end_with_failure_keeps_its_words() -> None:
    read = made("ui-tars-1.5").read(Completion("Action: finished(content='no shop', status='failure')"), SCREEN)
    assert (read.first, read.unused) == (act.CallUser(content="no shop"), ())


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ("42", act.Finished(content="42")),
        ("main()", act.Finished(content="main()")),
        ("Use print(5).", act.Finished(content="Use print(5).")),
        ('{"price": 3}', act.Finished(content='{"price": 3}')),
        ("finished(content='42')", act.Finished(content="42")),
        ("click(start_box='(500,500)')", act.Click(x=0.5, y=0.5)),
        ('do(action="Tap", element=[499,182])', None),
        ("[{'action': 'click', 'point': [1, 2], 'input_text': 'no'}]", None),
        ('{"action_type": "click"}', None),
        ('{"thought": "x", "action": "click"}', None),
        ("{'thought': 'x', 'action': 'click'}", None),
        ('```json\n[{"action": "click"}]\n```', None),
        ('{"name": "computer_use", "arguments": {"action": "left_click"}}', None),
        ("```\nclick(start_box='(500,500)')\n```", act.Click(x=0.5, y=0.5)),
        ("`click(start_box='(500,500)')`", act.Click(x=0.5, y=0.5)),
        ("Action: click(start_box='(500,500)').", act.Click(x=0.5, y=0.5)),
        ("click(start_box='(500,500)')\nDone.", None),
        ("I click.\nclick(start_box='(500,500)')", None),
        ("click(500, 500)", None),
        ("left_click(500, 500)", None),
        ("TAP(500, 500)", None),
        ("```python\npyautogui.click(5, 5)\n```", None),
        ("<action>click(5, 5)</action>", None),
        ('<tool_call>{"name": "fly", "arguments": {}}</tool_call>', None),
        ("Click (2006)", act.Finished(content="Click (2006)")),
        ("Wait(5) hours", act.Finished(content="Wait(5) hours")),
        ('{"action": "none"}', act.Finished(content='{"action": "none"}')),
    ],
)
def test_an_answer_that_is_a_call_is_no_finish(answer: str, wanted: act.Action | None) -> None:
    """zai-org/Open-AutoGLM writes `do(...)` between these tags, ritzz-ai/GUI-R1 a list of objects."""
    read = parse_reply(f"<think>So.</think>\n<answer>{answer}</answer>")
    assert read.first == wanted and (wanted is not None or read.error)


@pytest.mark.parametrize(
    "answer",
    [
        '{"action": "click", "coordinate": [1, 2]',
        '{"action": "click", "coordinate": [1, 2],}',
        '[{"action": "type", "input_text": "say "hi""}]',
        '{"action": [{"click_element": {"index": 3}}]}',
        '{"action": ["click", [1,2]]}',
        '{"ACTION":"CLICK","POINT":[1,2]}',
        '{"type":"tool_use","name":"computer","input":{"action":"left_click","coordinate":[1,2]}}',
        '{"function_call": {"name":"click","arguments":"{}"}}',
        '{"tool_calls": [{"name":"a","arguments":{}}]}',
        '{"name":"click_at","args":{"x":1,"y":2}}',
        '{"name":"click_at","args":{"x":1,',
        '{"type":"left_click","coordinate":[1,2]}',
        '{"type":"keypress","keys":["ENTER"]}',
        '{"actions":[{"type":"click","x":1}]}',
        "{'name': 'click', 'arguments': {'x': 1}}",
        "[{'type': 'click', 'x': 1}, {'type': 'type', 'text': 'a'}]",
        "for i in range(3): pyautogui.click(1, 2)",
        "import pyautogui\npyautogui.press('enter')",
        "double_tap(100,200)",
        'input_text("hello")',
        "long_press((1, 2))\nwait(3)",
        "1. click(100, 200)\n2. click(3, 4)",
        "Action: click(500, 500)",
        "<function=click><parameter=x>1",
        *("Click(box=(5,5))", 'Type(content="x")', 'Hotkey(keys=["ctrl","c"])', 'LaunchApp(app="x")', "PressBack()"),
        *('{"tool_name": "click", "x": 5, "y": 5}', '{"coordinate": [447, 81]}', '{"type":"type","text":"x"}'),
        *("open(app_name='Chrome')", '{"coordinate": ["500", "300"]}'),
        *('{"action": "system_button", "button": "Back"}', '{"action": {"go_to_url": {"url": "x"}}}'),
        *('{"action": "zoom", "x": 1}', '{"action": "web_search", "query": "a"}', '{"coordinates": "[447, 81]"}'),
        *("explain:x\taction:CLICK\tpoint:5,5", '{"name":"open","parameters":{}}', 'Finished(content="done")'),
    ],
)
def test_a_call_in_any_notation_is_no_answer_even_if_it_is_cut_off(answer: str) -> None:
    read = parse_reply(f"<answer>{answer}</answer>")
    assert read.first is None and "a call in an answer" in str(read.error)


@pytest.mark.parametrize(
    "answer",
    [
        *("Patients (n=42): 17 improved", "Total (n=42)", "Chrome (version='126')", "Python(version=3)"),
        *("Type(s): Fire, Water (Kanto)", "Press(es)", "Click(s): 5 (unique: 3)", "Wait(ing) list: 5 (est.)"),
        *("Release(2024)", "scroll(down)", "on_click(event)", "type(x)", "Computer.Science(101)"),
        *("pid = fork();\nwait(NULL);", "time.sleep(1) pauses", "print('a')\nwrite('b')", "def click(x): return x"),
        *("```python\ntime.sleep(5)\n```", "$('#b').click()", "obj.click()", "a, b = click(1, 2)"),
        *('{"type": "press", "name": "Reuters"}', '{"type":"release","version":"1.2"}', "[1, 2]", "[]", "{}", "{"),
        *('{"name": "Widget", "parameters": {"color": "red"}}', '[{"day": 1, "action": "login"}]'),
        *("The last line of the file is: pyautogui.click(10, 20)", "CS: computer.org(IEEE)"),
        *(
            '{"action": "Comedy", "title": "x"}',
            '{"action": "buy", "price": 5}',
            '{"next_action": "call him"}',
        ),
        *('{"type": "answer", "content": "42"}', '{"type": "status", "text": "ok"}', "status(code=5)", "answer('x')"),
        *('{"actions": {"GET": {"path": "/"}}}', '{"action": {"by": {"name": "Bob"}}}'),
        *('{"position": "Software Engineer"}', '{"point": "A"}', '{"x": "yes", "y": "no"}'),
        *('{"box": ["apples", "pears"]}', '{"coordinates": "48.85N 2.35E"}', "open('data.txt')", "browser('x')"),
        *('{"actions": []}', '{"actions": ["click","type"]}', '{"actions": [{"id": 1}]}', '{"tool_calls": 5}'),
        *('{"type": "key", "key": "value"}', '{"type": "input", "key": "email"}', '{"function_call": "yes"}'),
        *("hotkey(key='ctrl c') copies.", "To copy, press Ctrl+C:\nhotkey(key='ctrl c')"),
        *("Genre:\nAction: Matrix(1999)", "**Action:** Rating(8.1)", "pyautogui", "click", "computer.name(3)"),
    ],
)
def test_words_data_and_programs_are_answers(answer: str) -> None:
    read = parse_reply(f"Thought: So.\n<answer>{answer}</answer>")
    assert (read.thought, read.first, read.error) == ("So.", act.Finished(content=answer), None)


@pytest.mark.parametrize(
    ("reply", "thought"),
    [
        ("<answer>Action: click(start_box='(5,5)')</answer>", ""),
        ("<answer>Thought: x\nAction: click(start_box='(5,5)')</answer>", "x"),
        ("So.\n<answer>\nclick(start_box='(5,5)')\n</answer>", "So."),
    ],
)
def test_the_tags_around_a_call_are_no_part_of_the_thought(reply: str, thought: str) -> None:
    read = parse_reply(reply)
    assert (read.thought, read.first) == (thought, act.Click(x=0.005, y=0.005))


@pytest.mark.parametrize(
    ("reply", "name"),
    [
        ("<answer>Thought: b\nAction: screenshot()</answer>", "screenshot"),
        ("<answer>Action: zoom(start_box='(1,2)')</answer>", "zoom"),
        ("Thought: so.\n<answer>\nAction: fly()", "fly"),
        ("Thought: The page has the tag <answer>.\nAction: fly()\n\n</answer>", "fly"),
    ],
)
def test_an_unknown_call_behind_its_label_is_no_answer_and_named(reply: str, name: str) -> None:
    read = parse_reply(reply)
    assert read.first is None and f"there is no '{name}'; known:" in str(read.error)


@pytest.mark.parametrize(
    ("reply", "thought", "text"),
    [
        ("<answer>Thought: b\nAction: wait()</answer>", "b", "wait()"),
        ("<answer>\nwait()\nwait()\n</answer>", "", "wait()"),
        ("Thought: I type <answer>.\nAction: type(content='x')\n</answer>", "I type <answer>.", "type(content='x')"),
    ],
)
def test_the_text_of_a_call_in_an_answer_is_the_call_alone(reply: str, thought: str, text: str) -> None:
    read = parse_reply(reply)
    assert (read.thought, read.action_text) == (thought, text)


def test_an_answer_of_many_blanks_is_read_in_linear_time() -> None:
    def seconds(many: int) -> float:
        begin = time.process_time()
        for blanks in ("\t" * many, "\t " * (many // 2), "\n" * many):
            parse_reply(f"<answer>a{blanks}b</answer>")
        return time.process_time() - begin

    assert seconds(80_000) < 40 * max(seconds(8_000), 0.002)


def test_two_values_of_one_argument_in_json_are_refused() -> None:
    reply = called(action="left_click", coordinate=[1, 2])
    for twice, refused in ((', "action": "right_click"}', True), (', "action": "left_click"}', False)):
        read = made("qwen3-vl").read(Completion(reply.replace("]}", f"]{twice}", 1)), SCREEN)
        assert (read.first is None) == refused and ("argument 'action' twice" in str(read.error)) == refused


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"action": "left_click", "coordinates": [1, 2]}, "without a coordinate, in a call with action, coordinates,"),
        ({"action": "scroll", "direction": "up"}, "scroll without `pixels`, in a call with action, direction,"),
        ({"action": "swipe", "coordinate": [1, 2]}, "swipe without `coordinate2` or `direction`"),
    ],
)
def test_a_refused_call_names_its_arguments(given: dict[str, Any], problem: str) -> None:
    read = made("qwen3-vl").read(Completion(called(**given)), SCREEN)
    assert read.first is None and problem in str(read.error)


@pytest.mark.parametrize(
    ("name", "reply", "problem"),
    [
        ("ui-tars-1.5", "Action: click(100, 200)", "the arguments of click need names"),
        ("ui-tars-1.5", "Action: type('a')", "the arguments of type need names"),
        ("qwen3-vl", '<tool_call>{"name": "computer_use", "arguments": {"action": "wait"}', "no JSON: "),
        ("qwen3-vl", "<tool_call>\n<function=computer_use>\n</tool_call>", "as XML, which `qwen3.5` reads"),
    ],
)
def test_a_call_in_another_notation_is_named(name: str, reply: str, problem: str) -> None:
    read = made(name).read(Completion(reply), SCREEN)
    assert read.first is None and problem in str(read.error)


def test_a_number_of_pixels_may_be_a_text() -> None:
    read = made("qwen3-vl").read(Completion(called(action="scroll", coordinate=[500, 500], pixels="-300")), SCREEN)
    assert read.first == act.Scroll(x=0.5, y=0.5, direction="down")


def test_a_later_call_that_is_no_action_is_reported() -> None:
    read = parse_reply("click(start_box='(5,5)')\nclick(start_box='(5000,5)')\nwait()")
    assert read.unused == ("text behind the action=click(start_box='(5000,5)')\nwait()",)


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        ("I will put it in <answer> tags.\n<answer>42</answer>", "42"),
        ("The format is <answer>...</answer>.\n<answer>42</answer>", "42"),
        ("<answer>41</answer>\nWait, that is wrong.\n<answer>42</answer>", "42"),
        ("<answer>41</answer>\nNo.\n<answer>42", "42"),
        ("<answer>The tag <answer> is used</answer>", "The tag <answer> is used"),
        ("I have it. <answer>42", "42"),
        ("The page shows an <answer> tag.", None),
        ("The page shows an </answer> tag.", None),
    ],
)
def test_the_last_answer_counts_and_a_mention_of_its_tag_is_none(reply: str, content: str | None) -> None:
    read = parse_reply(reply)
    assert read.first == (None if content is None else act.Finished(content=content))
    assert finds_call(reply) == (content is not None)


@pytest.mark.parametrize(
    "held",
    [
        *({"keys": ["null", "ctrl"]}, {"text": "ctrl none"}, {"key": ["shift", ["null"]]}),
        *({"keys": ["a", "ctrl"]}, {"key": ["shift", "banana"]}),
    ],
)
def test_a_click_while_a_key_is_held_is_refused_whatever_else_the_list_names(held: dict[str, Any]) -> None:
    read = made("qwen3-vl").read(Completion(called(action="left_click", coordinate=[9, 5], **held)), SCREEN)
    assert read.first is None and ("is held" in str(read.error) or "holds keys" in str(read.error))
