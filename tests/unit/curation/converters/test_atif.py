"""ATIF as other agents write it: Harbor's computer-1 (harbor 0.26.0, `harbor/agents/computer_1`) and cua-bench (0.3.1,
`cua_bench/results.py`), each call as the step that it is."""

import base64
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from curation.converters.atif.computer import codes_of, shrunk
from curation.converters.exchanged import About, Exchanged, ExchangedStep, Picture, Sampled
from curation.converters.format import FORMATS
from curation.redaction import Redactor
from schemas.action import (
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    MiddleSingle,
    MouseDown,
    MouseUp,
    Move,
    Navigate,
    NavigateBack,
    RightSingle,
    Scroll,
    Terminal,
    TripleClick,
    Type,
    Wait,
)
from schemas.observation import Element
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import picture, refused, taken, written

FORM = FORMATS.class_of("atif")()


def image(number: int) -> dict[str, Any]:
    return {"type": "image", "source": {"media_type": "image/png", "path": f"{number}.png"}}


def call(name: str, at: str = "c", **arguments: object) -> dict[str, Any]:
    return {"tool_call_id": at, "function_name": name, "arguments": arguments}


def agent(*calls: dict[str, Any], shown: int | None = None, **more: Any) -> dict[str, Any]:
    """A step whose picture, if any, belongs to no call."""
    seen = {} if shown is None else {"observation": {"results": [{"content": [image(shown)]}]}}
    return {"source": "agent", "message": "", "tool_calls": list(calls) or None, **seen, **more}


def document(*steps: dict[str, Any], name: str = "theirs", **more: Any) -> dict[str, Any]:
    asked = {"source": "user", "message": [{"type": "text", "text": "Buy it."}, image(0)]}
    whole = [{"step_id": at, **step} for at, step in enumerate([asked, *steps], 1)]
    about = {"schema_version": "ATIF-v1.8", "session_id": "s", "agent": {"name": name, "version": "1"}}
    return {**about, "steps": whole, **more}


def saved(folder: Path, value: dict[str, Any], name: str = "trajectory.json", pictures: int = 6) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(pictures):
        (folder / f"{number}.png").write_bytes(picture(number).png)
    (folder / name).write_text(json.dumps(value))
    return folder / name


def read(folder: Path, *steps: dict[str, Any], name: str = "theirs", **more: Any) -> Exchanged:
    (record,) = taken(FORM, saved(folder, document(*steps, name=name, **more)))
    return record


def actions(record: Exchanged) -> list[Action | None]:
    return [step.action for step in record.steps]


def targets(record: Exchanged) -> list[bool]:
    return [record.is_target(step) for step in range(len(record.steps))]


CLICKED = {"type": "click", "x": 25, "y": 10}


@pytest.mark.parametrize(
    ("calls", "outcome"),
    [
        ([call("computer", type="terminate", status="success")], True),
        ([call("computer", type="terminate", status="failure")], False),
        ([call("computer", type="terminate")], None),
        ([call("computer", type="terminate", status="paused")], None),
        ([call("computer_action", type="terminate", status="failure"), call("mark_task_complete", "d")], False),
        ([call("computer", "a", **CLICKED), call("computer", "b", type="terminate", status="failure")], False),
        ([call("computer", type="answer", text="42")], None),
        ([call("computer", **CLICKED)], None),
    ],
)
def test_a_last_terminate_is_the_outcome(calls: list[dict[str, Any]], outcome: bool | None, tmp_path: Path) -> None:
    record = read(tmp_path / "in", agent(call("computer", **CLICKED), shown=1), agent(*calls))
    assert record.success is outcome
    (again,) = taken(FORM, written(FORM, [record], tmp_path / "out"))
    assert (again.success, actions(again)) == (outcome, actions(record))


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_reward_is_the_outcome_whatever_a_last_terminate_says(reward: float, tmp_path: Path) -> None:
    status = "failure" if reward else "success"
    last = agent(call("computer", type="terminate", status=status))
    given = {"final_metrics": {"extra": {"reward": reward}}}
    assert read(tmp_path, agent(call("computer", **CLICKED), shown=1), last, **given).success is bool(reward)


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ({"type": "click", "x": 25, "y": 10, "button": "left"}, Click(x=0.5, y=0.25)),
        ({"type": "click", "x": 25, "y": 10, "button": "right"}, RightSingle(x=0.5, y=0.25)),
        ({"type": "double_click", "x": 25, "y": 10}, LeftDouble(x=0.5, y=0.25)),
        ({"type": "right_click", "x": 25, "y": 10}, RightSingle(x=0.5, y=0.25)),
        ({"type": "scroll", "x": 25, "y": 10, "scroll_x": 0, "scroll_y": 300}, Scroll(x=0.5, y=0.25, direction="down")),
        ({"type": "scroll", "x": 25, "y": 10, "scroll_y": -1}, Scroll(x=0.5, y=0.25, direction="up")),
        (
            {"type": "scroll", "x": 25, "y": 10, "scroll_x": 90, "scroll_y": 0},
            Scroll(x=0.5, y=0.25, direction="right"),
        ),
        ({"type": "type", "text": "red 'shoes'\\"}, Type(content="red 'shoes'\\")),
        ({"type": "keypress", "keys": ["ctrl", "c"]}, Hotkey(key="ctrl c")),
        ({"type": "keypress", "keys": ["c"], "modifiers": ["ctrl"]}, Hotkey(key="ctrl c")),
        ({"type": "keypress", "keys": ["enter"]}, Hotkey(key="enter")),
        ({"type": "keypress", "keys": "enter"}, Hotkey(key="enter")),
        (
            {"type": "drag", "path": [{"x": 0, "y": 0}, {"x": 25, "y": 10}]},
            Drag(x=0.0, y=0.0, to_x=0.5, to_y=0.25),
        ),
        ({"type": "wait", "ms": 500}, Wait()),
        ({"type": "wait", "duration": 2}, Wait(seconds=2)),
        ({"type": "click", "x": 25, "y": 10, "button": "middle"}, MiddleSingle(x=0.5, y=0.25)),
        ({"type": "triple_click", "x": 25, "y": 10}, TripleClick(x=0.5, y=0.25)),
        ({"type": "mouse_move", "x": 25, "y": 10}, Move(x=0.5, y=0.25)),
        ({"type": "mouse_down", "x": 25, "y": 10}, MouseDown(x=0.5, y=0.25)),
        ({"type": "left_mouse_up"}, MouseUp()),
        ({"type": "mouse_up", "button": "right"}, MouseUp(button="right")),
        ({"action": "left_click", "coordinate": [25, 10]}, Click(x=0.5, y=0.25)),
        ({"action": "key", "text": "ctrl+c"}, Hotkey(key="ctrl c")),
        ({"action": "key", "text": "Return"}, Hotkey(key="enter")),
        ({"action": "key", "text": "ctrl + shift + t"}, Hotkey(key="ctrl shift t")),
        ({"action": "key", "text": "ctrl++"}, Hotkey(key="ctrl +")),
        ({"action": "key", "text": "Control_L+KeyA"}, Hotkey(key="control_l keya")),
        ({"type": "keypress", "keys": ["Page Down"]}, Hotkey(key="pagedown")),
        (
            {"action": "left_click_drag", "start_coordinate": [0, 0], "coordinate": [25, 10]},
            Drag(x=0.0, y=0.0, to_x=0.5, to_y=0.25),
        ),
        (
            {"action": "scroll", "coordinate": [25, 10], "scroll_direction": "left", "scroll_amount": 3},
            Scroll(x=0.5, y=0.25, direction="left"),
        ),
        ({"action": "ClickAction(x=25, y=10)"}, Click(x=0.5, y=0.25)),
        (
            {"action": "DragAction(from_x=0, from_y=0, to_x=25, to_y=10)"},
            Drag(x=0, y=0, to_x=0.5, to_y=0.25),
        ),
        ({"action": "HotkeyAction(keys=['ctrl', 'c'])"}, Hotkey(key="ctrl c")),
        ({"action": "TypeAction(text='a')"}, Type(content="a")),
        ({"action": "DoneAction()"}, Finished()),
        ({"action": {"type": "click", "x": 25, "y": 10}}, Click(x=0.5, y=0.25)),
        ({"type": "terminate", "status": "failure"}, CallUser()),
        ({"type": "terminate", "status": "Infeasible"}, CallUser()),
        ({"type": "terminate", "status": "success"}, Finished()),
        ({"type": "terminate"}, Finished()),
        ({"type": "click", "x": 25, "y": 10, "clicks": 1}, Click(x=0.5, y=0.25)),
        ({"type": "click", "x": 25, "y": 10, "mouse_button": "right"}, RightSingle(x=0.5, y=0.25)),
        ({"type": "click", "x": 25, "y": 10, "button": "", "mouse_button": "Secondary"}, RightSingle(x=0.5, y=0.25)),
        ({"type": "right_click", "x": 25, "y": 10, "button": "right"}, RightSingle(x=0.5, y=0.25)),
        ({"type": "click", "x": 25, "y": 10, "button": "None", "modifiers": "None"}, Click(x=0.5, y=0.25)),
        ({"type": "keypress", "keys": ["ctrl"], "text": "c"}, Hotkey(key="ctrl c")),
        ({"type": "keypress", "keys": ["c"], "text": "copied"}, Hotkey(key="c")),
        ({"type": "keypress", "keys": ["c"], "text": "ctrl"}, Hotkey(key="ctrl c")),
        ({"type": "key", "text": " "}, Hotkey(key="space")),
        ({"type": "key", "keys": [], "text": "enter"}, Hotkey(key="enter")),
        ({"type": "key", "keys": ["ctrl"], "text": "none"}, Hotkey(key="ctrl")),
        ({"type": "key", "keys": ["ctrl", None], "text": "none"}, Hotkey(key="ctrl")),
        ({"type": "key", "keys": ["ctrl", None, "c"]}, Hotkey(key="ctrl c")),
        ({"type": "key", "keys": [["ctrl"], ["", ["c"]]]}, Hotkey(key="ctrl c")),
        ({"type": "key", "keys": " ", "text": "enter"}, Hotkey(key="enter")),
        ({"type": "key", "keys": "  ", "text": "enter"}, Hotkey(key="enter")),
        ({"type": "key", "keys": "ctrl", "text": " "}, Hotkey(key="ctrl space")),
        ({"type": "key", "keys": [" "]}, Hotkey(key="space")),
        ({"type": "key", "keys": ["c"], "key": "C"}, Hotkey(key="c")),
        ({"type": "key", "keys": ["ctrl", "c"], "modifiers": ["Control"], "text": "ctrl+c"}, Hotkey(key="control c")),
        ({"type": "terminate", "status": "Success"}, Finished()),
        ({"type": "click", "x": 25, "y": 10, "num_clicks": 2}, LeftDouble(x=0.5, y=0.25)),
        ({"type": "click", "x": 25, "y": 10, "click_count": "1"}, Click(x=0.5, y=0.25)),
        ({"type": "right_click", "x": 25, "y": 10, "clicks": 1}, RightSingle(x=0.5, y=0.25)),
        ({"type": "double_click", "x": 25, "y": 10, "clicks": 2}, LeftDouble(x=0.5, y=0.25)),
        ({"action": "DoubleClickAction(x=25, y=10, clicks=None)"}, LeftDouble(x=0.5, y=0.25)),
        ({"action": "TerminateAction(status=None)"}, Finished()),
    ],
)
def test_a_call_of_a_computer_tool_is_the_action_that_it_is(
    tmp_path: Path, arguments: dict[str, Any], action: Action
) -> None:
    record = read(tmp_path, agent(call("computer", **arguments), shown=1, message="So."))
    (step,) = record.steps
    assert (step.action, step.thought, step.error, record.after) == (action, "So.", None, picture(1))


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ({"type": "click", "x": 25, "y": 10, "button": None, "text": None}, Click(x=0.5, y=0.25)),
        ({"type": "drag", "x": 0, "y": 0, "end_x": 25, "end_y": 10}, Drag(x=0.0, y=0.0, to_x=0.5, to_y=0.25)),
        ({"type": "type", "text": "red", "press_enter": True}, Type(content="red\n")),
        ({"type": "navigate", "url": "http://shop/"}, Navigate(content="http://shop/")),
        ({"type": "go_back"}, NavigateBack()),
        ({"type": "go_forward"}, Hotkey(key="alt right")),
        ({"type": "scroll"}, Scroll(x=0.5, y=0.5, direction="down")),
        ({"type": "scroll", "scroll_y": -100}, Scroll(x=0.5, y=0.5, direction="up")),
        ({"type": "bash", "command": "ls"}, Terminal(command="ls")),
        ({"type": "answer", "result": "42", "text": "no"}, Finished(content="42")),
        ({"type": "click", "x": 999, "y": 999, "source": "normalized_completion"}, Click(x=0.98, y=0.975)),
    ],
)
def test_a_call_of_computer_1_is_the_action_that_its_runtime_performs(
    tmp_path: Path, arguments: dict[str, Any], action: Action
) -> None:
    record = read(tmp_path, agent(call("computer_action", **arguments), shown=1), name="computer-1")
    assert actions(record) == [action]


@pytest.mark.parametrize(
    "arguments",
    [
        {"type": "double_click", "x": 25, "y": 10, "button": "middle"},
        {"type": "click", "x": 25, "y": 10, "mouse_button": "fnord"},
        {"type": "click", "x": 25, "y": 10, "button": ["right"]},
        {"type": "right_click", "x": 25, "y": 10, "mouse_button": "left"},
        {"type": "double_click", "x": 25, "y": 10, "mouse_button": "right"},
        {"type": "drag", "path": [[0, 0], [5, 5]], "mouse_button": "right"},
        {"type": "click", "x": 25, "y": 10, "clicks": 4},
        {"type": "click", "x": 25, "y": 10, "modifier": "shift"},
        {"type": "click", "x": 25, "y": 10, "keys": ["CTRL"]},
        {"action": "left_click", "coordinate": [25, 10], "text": "ctrl+shift"},
        {"action": "key", "text": "ctrl+c ctrl+v"},
        {"type": "keypress", "keys": ["down", "down"]},
        {"type": "hold_key", "keys": ["a"], "duration": 2},
        {"type": "keypress", "keys": ["fnord"]},
        {"type": "key_down", "key": "fnord"},
        {"type": "click", "x": 25, "y": 10, "modifiers": ["ctrl"]},
        {"type": "scroll", "x": 25, "y": 10, "scroll_y": 5, "keys": ["ctrl"]},
        {"type": "drag", "path": [[0, 0], [5, 5]], "button": "right"},
        {"type": "drag", "path": [[0, 0], [5, 5]], "modifiers": ["shift"]},
        {"type": "type", "text": "a", "modifiers": ["ctrl"]},
        {"type": "key", "key": "down", "repeat": 3},
        {"type": "key", "keys": ["a"], "text": "b"},
        {"type": "key", "keys": ["enter"], "key": "tab"},
        {"type": "key", "keys": [None, []]},
        {"type": "key_down", "keys": ["a"], "text": "b"},
        {"type": "key_down", "key": "a", "repeat": 2},
        {"type": "scroll", "x": 25, "y": 10, "scroll_x": 5, "scroll_y": 5},
        {"type": "scroll", "x": 25, "y": 10, "scroll_x": 0, "scroll_y": 0},
        {"type": "drag", "path": [[0, 0], [5, 5], [25, 10]]},
        {"type": "scroll", "x": 25, "y": 10, "scroll_y": 10**400},
        {"type": "terminate", "status": "paused"},
        {"type": "click", "x": 25, "y": 10, "click_count": 4},
        {"type": "click", "x": 25, "y": 10, "click_count": "often"},
        {"type": "right_click", "x": 25, "y": 10, "clicks": 2},
        {"type": "double_click", "x": 25, "y": 10, "clicks": 3},
        {"type": "nothing known"},
        {"type": "click", "x": "left", "y": [1]},
        {"type": 7},
        {"action": "__import__('os').system('touch ran')"},
        {"action": "ClickAction(x=open('a'), y=1)"},
        {},
    ],
)
def test_a_call_that_is_no_action_of_ours_is_kept_as_text_and_never_run(
    tmp_path: Path, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (step,) = read(tmp_path, agent(call("computer", **arguments), shown=1)).steps
    assert step.action is None and step.error and "computer(" in step.text
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("kind", "arguments", "keys"),
    [
        ("key_down", {"key": "shift"}, ["shift"]),
        ("key_up", {"keys": ["shift", None]}, ["shift"]),
        ("key_down", {"key": "a", "modifiers": ["ctrl"]}, ["ctrl", "a"]),
        ("key_up", {"keys": [["ctrl"], "a"], "text": "none"}, ["ctrl", "a"]),
    ],
)
def test_keys_that_go_down_or_up_are_all_that_the_call_names(
    kind: str, arguments: dict[str, Any], keys: list[str]
) -> None:
    function = "keyDown" if kind == "key_down" else "keyUp"
    assert codes_of(kind, arguments) == ["\n".join(f"pyautogui.{function}(key={one!r})" for one in keys)]


PLACE, ALL = Click(x=0.5, y=0.25), Hotkey(key="ctrl a")


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        (
            "computer",
            {"action": "type", "text": "hi", "coordinate": [25, 10], "delete_existing_text": True, "press_enter": True},
            [PLACE, ALL, Type(content="hi\n")],
        ),
        ("computer", {"type": "type", "text": "hi", "x": 25, "y": 10}, [PLACE, Type(content="hi")]),
        ("computer", {"type": "type", "text": "hi", "clear_before_typing": "true"}, [ALL, Type(content="hi")]),
        (
            "computer",
            {"type": "type", "text": "", "clear": True},
            [ALL, Hotkey(key="backspace"), Type(content="")],
        ),
        ("computer", {"type": "type", "text": "hi", "press_enter": "false", "enter": False}, [Type(content="hi")]),
        (
            "computer_action",
            {"type": "type_text_at", "x": 25, "y": 10, "text": "hi"},
            [PLACE, ALL, Type(content="hi\n")],
        ),
        (
            "computer_action",
            {"type": "type_text_at", "x": 25, "y": 10, "text": "hi", "clear_before_typing": False},
            [PLACE, Type(content="hi\n")],
        ),
        (
            "computer_action",
            {"type": "type_text_at", "x": 25, "y": 10, "text": "hi", "press_enter": False},
            [PLACE, ALL, Type(content="hi")],
        ),
        ("computer_action", {"type": "type", "x": 25, "y": 10, "text": "hi"}, [Type(content="hi")]),
    ],
)
def test_a_text_that_is_typed_at_a_place_is_its_click_and_what_empties_the_field_too(
    tmp_path: Path, name: str, arguments: dict[str, Any], wanted: list[Action]
) -> None:
    """harbor 0.26.0, `computer_1/runtime.py`: `type_text_at` clears and presses Enter unless told not to, `type` knows
    no place."""
    record = read(tmp_path, agent(call(name, **arguments), shown=1, message="So."), name="computer-1")
    (step,) = record.steps
    assert [*step.actions] == wanted and step.frames == ()
    assert (step.screen, step.thought, targets(record)) == (picture(0), "So.", [True])


def test_a_text_at_a_place_of_geminis_grid_is_typed_there(tmp_path: Path) -> None:
    record = read(tmp_path, agent(call("type_text_at", x=999, y=0, text="hi"), shown=1), name="computer-1")
    assert [step.actions for step in record.steps] == [(Click(x=0.98, y=0.0), ALL, Type(content="hi\n"))]


def test_a_text_that_is_none_leaves_no_click_behind(tmp_path: Path) -> None:
    (step,) = read(tmp_path, agent(call("computer", type="type", text=7, x=25, y=10), shown=1)).steps
    assert step.action is None and step.error


def test_a_point_outside_of_the_screen_is_refused_with_its_call(tmp_path: Path) -> None:
    file = saved(tmp_path, document(agent(call("computer", type="click", x=51, y=10))))
    assert "steps.1.tool_calls.0.arguments: (51, 10) is not a point of a screen of 50 x 40 pixels" in refused(
        FORM, file
    )


def test_a_step_that_was_copied_or_that_no_model_made_is_no_target(tmp_path: Path) -> None:
    """ATIF v1.5 `is_copied_context`, v1.7 `llm_call_count`: harbor 0.26.0, `harbor/models/trajectories/step.py`."""
    click = call("computer", type="click", x=25, y=10)
    flags: list[dict[str, Any]] = [
        {"is_copied_context": True},
        {"llm_call_count": 0},
        {"is_copied_context": False, "llm_call_count": 1},
        {"is_copied_context": None, "llm_call_count": 3},
        {},
    ]
    record = read(tmp_path / "in", *(agent(click, shown=at + 1, **flag) for at, flag in enumerate(flags)))
    assert targets(record) == [False, False, True, True, True]
    (again,) = taken(FORM, written(FORM, [record], tmp_path / "out"))
    assert targets(again) == targets(record) and actions(again) == actions(record)


def test_replayed_steps_are_written_as_copied_context(tmp_path: Path) -> None:
    step = ExchangedStep(picture(0), actions=(Wait(),))
    about = About(lake="l", trajectory_id="t", continues="f", replayed=1)
    folder = written(FORM, [Exchanged("t", "Wait.", (step, step), about=about)], tmp_path)
    (file,) = (folder / "trajectories").iterdir()
    copied = [step.get("is_copied_context") for step in json.loads(file.read_text())["steps"]]
    assert copied == [None, True, None]


def test_cua_bench_shows_a_screen_before_and_after_each_call_and_ends_with_a_message(tmp_path: Path) -> None:
    """`CuaAgent.perform_task` records a reply before its calls are performed, and each result as a step of its own."""
    steps = [
        agent(call("computer", type="click", x=25, y=10), shown=1),
        agent(shown=2),
        agent(call("computer", type="screenshot"), shown=2),
        agent(call("computer", type="type", text="a"), shown=3),
        agent(shown=4),
        agent(shown=5, message="DONE"),
        {"source": "system", "message": "evaluate() returned 1.0"},
    ]
    record = read(tmp_path / "in", *steps, final_metrics={"extra": {"reward": 1.0, "evaluation": 1.0}})
    assert actions(record) == [Click(x=0.5, y=0.25), Type(content="a"), Finished(content="DONE")]
    assert [step.screen for step in record.steps] == [picture(0), picture(2), picture(4)]
    assert (targets(record), record.success, record.about.reward) == ([True] * 3, True, 1.0)
    folder = written(FORM, [record], tmp_path / "out")
    assert taken(FORM, folder)[0].steps == record.steps


@pytest.mark.parametrize(
    ("reward", "number"), [(1, 1.0), (0.0, 0.0), (0.5, 0.5), (None, None), (True, 1.0), ("1", 1.0), ("0.5", 0.5)]
)
def test_a_reward_says_how_a_trial_ended(tmp_path: Path, reward: object, number: float | None) -> None:
    success = None if number is None else number >= 1.0
    click = agent(call("computer", type="click", x=1, y=1))
    beside, above = tmp_path / "cua", tmp_path / "harbor" / "agent"
    assert read(beside / "a", click, final_metrics={"extra": {"reward": reward}}).success is success
    result = {"verifier_result": {"rewards": {"reward": reward, "other": 0}}}
    for folder, file in ((beside / "b", beside / "b"), (above, above.parent)):
        folder.mkdir(parents=True)
        (file / "result.json").write_text(json.dumps(result))
        record = read(folder, click)
        assert (record.success, record.about.reward) == (success, number)


@pytest.mark.parametrize("reward", ["", "pass", math.nan, "nan", "1e999", 10**400, {}, [1]])
def test_a_reward_that_is_no_number_is_none(tmp_path: Path, reward: object) -> None:
    click = agent(call("computer", type="click", x=1, y=1))
    said = [{"final_metrics": {"extra": {"reward": reward}}}, {}]
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "result.json").write_text(json.dumps({"verifier_result": {"rewards": {"score": reward}}}))
    for number, more in enumerate(said):
        record = read(tmp_path / f"{number}", click, **more)
        assert (record.success, record.about.reward) == (None, None)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("computer_call", {"action": {"type": "click", "x": 25, "y": 10}}),  # OpenAI, item `computer_call`
        ("computer_20250124", {"action": "left_click", "coordinate": [25, 10]}),  # Anthropic, tool version
    ],
)
def test_versions_of_the_computer_tools_need_no_unit(tmp_path: Path, function: str, arguments: dict[str, Any]) -> None:
    assert actions(read(tmp_path, agent(call(function, **arguments)))) == [Click(x=0.5, y=0.25)]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [("computer_use", {"action": "left_click", "coordinate": [25, 25]}), ("browser_click", {"ref": "e3"})],
)
def test_a_function_that_is_no_action_is_named_without_a_unit(
    tmp_path: Path, function: str, arguments: dict[str, Any], sentence: Sentences
) -> None:
    (step,) = read(tmp_path, agent(call(function, **arguments), shown=1)).steps
    assert step.action is None
    sentence(step.error, function)


def test_a_document_without_screens_is_refused_by_that_and_not_by_a_unit(tmp_path: Path) -> None:
    """Harbor's terminus-2 records texts alone (`bash_command`)."""
    shell = agent(call("bash_command", keystrokes="ls"))
    shell["observation"] = {"results": [{"content": "a b"}]}
    asked = {"source": "user", "message": "List the files."}
    texts = {**document(), "steps": [asked, shell]}
    assert "steps: a trajectory without screenshots" in refused(FORM, saved(tmp_path / "a", texts))
    nothing = {**document(), "steps": []}
    assert refused(FORM, saved(tmp_path / "b", nothing)).endswith("steps: no instruction: write the task in words")


def test_calls_named_as_actions_ask_for_the_units_of_others(tmp_path: Path) -> None:
    said = refused(FORM, saved(tmp_path, document(agent(call("click", x=25, y=10)))))
    assert said.endswith("name it: --unit pixels or fraction or thousandths")


def test_a_document_may_hold_a_picture_and_one_without_a_place_is_refused_by_its_field(
    tmp_path: Path, sentence: Sentences
) -> None:
    told = document(agent(call("computer", type="click", x=25, y=10)))
    told["steps"][0]["message"][1]["source"] = {"data": base64.b64encode(picture(3).png).decode()}
    (record,) = taken(FORM, saved(tmp_path / "in", told))
    assert record.steps[0].screen == picture(3)
    assert taken(FORM, written(FORM, [record], tmp_path / "out"))[0].steps == record.steps
    told["steps"][0]["message"][1]["source"] = {"media_type": "image/png"}
    sentence(refused(FORM, saved(tmp_path / "bad", told)), "steps.0.message.1.source.path")


def test_a_folder_of_trials_is_read_with_the_pictures_and_the_reward_of_each(tmp_path: Path) -> None:
    for number, reward in enumerate((1.0, 0.0)):
        folder = tmp_path / f"trial-{number}"
        value = document(agent(call("computer", type="click", x=number, y=1)), trajectory_id=f"t{number}")
        saved(folder / "agent", value)
        (folder / "result.json").write_text(json.dumps({"verifier_result": {"rewards": {"reward": reward}}}))
    found = taken(FORM, tmp_path)
    assert [(one.name, one.success) for one in found] == [("t0", True), ("t1", False)]
    (tmp_path / "trial-0" / "result.json").write_text("{")
    assert "result.json: not JSON" in refused(FORM, tmp_path)


PROMPT = (
    "You are computer-1, an autonomous agent.\n\nTask instructions:\nBuy it.\n\nNow.\n\n"
    "You interact with the computer through a private runtime.\n"
)


def test_the_first_screen_of_computer_1_is_the_file_that_its_document_does_not_name(tmp_path: Path) -> None:
    value = document(
        agent(call("computer_action", "call_start_url_navigation", type="navigate", url="http://shop")),
        agent(call("computer_action", "a", type="click", x=25, y=10), shown=1, message="Analysis: Here."),
        agent(
            call("computer_action", "b", type="done", result="bought"),
            call("mark_task_complete", "c", result="bought"),
            observation={"results": [{"source_call_id": "b", "content": [image(2)]}]},
        ),
        name="computer-1",
    )
    value["steps"][0]["message"] = PROMPT
    file = saved(tmp_path / "trial", value)
    assert "before any screen" in refused(FORM, file)
    (tmp_path / "trial" / "screenshot_init.webp").write_bytes(picture(5).png)
    (record,) = taken(FORM, file)
    assert (record.instruction, record.steps[0].thought) == ("Buy it.\n\nNow.", "Analysis: Here.")
    assert actions(record) == [Click(x=0.5, y=0.25), Finished(content="bought")]
    assert [step.screen for step in record.steps] == [picture(5), picture(1)] and record.after == picture(2)
    folder = written(FORM, [record], tmp_path / "out")
    assert len(list((folder / "images").iterdir())) == 3
    assert taken(FORM, folder)[0].steps == record.steps


RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[3] / "golden" / "computer-1.json").read_text())
"""Documents of harbor 0.26.0's `Computer1Recorder`: its generic loop asks to confirm an end, and records it again."""
ENDED, ACTED = Finished(content="42"), Click(x=0.5, y=0.25)


@pytest.mark.parametrize(
    ("name", "wanted", "screens"),
    [
        ("confirmed", [ACTED, None, ENDED], [0, 1, 2]),
        ("answer", [ACTED, None, ENDED], [0, 1, 2]),
        ("terminate", [ACTED, None, ENDED], [0, 1, 2]),
        ("after a garbled reply", [ACTED, None, None, ENDED], [0, 1, 2, 2]),
        ("declined", [ACTED, None, Click(x=0.1, y=0.25), None, ENDED], [0, 1, 2, 3, 4]),
    ],
)
def test_a_run_of_computer_1_ends_once_however_often_it_is_asked(
    tmp_path: Path, name: str, wanted: list[Action | None], screens: list[int]
) -> None:
    file = saved(tmp_path / "trial", RECORDED[name])
    (tmp_path / "trial" / "screenshot_init.webp").write_bytes(picture(0).png)
    (record,) = taken(FORM, file)
    assert actions(record) == wanted and targets(record) == [one is not None for one in wanted]
    assert [step.screen for step in record.steps] == [picture(number) for number in screens]
    assert record.after == picture(screens[-1] + 1)
    assert (record.steps[1].text, record.steps[1].thought) == ("42", "Analysis: Turn 1.\nPlan: Go on.")
    (again,) = taken(FORM, written(FORM, [record], tmp_path / "out"))
    assert again.steps == record.steps and targets(again) == targets(record)


DONE, MARKED = call("computer_action", "a", type="done", result="42"), call("mark_task_complete", "b", result="42")
LOOKED = call("computer", "c", type="screenshot")
STOPPED, CLICK = (
    call("computer", "d", type="terminate", status="failure"),
    call("computer", "e", type="click", x=25, y=10),
)


def shown(calls: list[dict[str, Any]], pictures: dict[str, int], **more: Any) -> dict[str, Any]:
    """A step whose pictures belong to its calls."""
    results = [{"source_call_id": at, "content": [image(number)]} for at, number in pictures.items()]
    return agent(*calls, **({"observation": {"results": results}} if results else {}), **more)


@pytest.mark.parametrize(
    ("calls", "pictures", "wanted"),
    [
        ([DONE], {}, ["42"]),
        ([DONE, MARKED], {}, ["42"]),
        ([DONE, MARKED], {"a": 1}, ["42"]),
        ([DONE, MARKED], {"b": 1}, ["42"]),
        ([DONE, MARKED], {"a": 1, "b": 2}, ["42"]),
        ([DONE, LOOKED, MARKED], {"a": 1, "c": 2, "b": 3}, ["42"]),
        ([call("mark_task_complete", "b"), DONE], {"b": 1}, ["42"]),
        ([STOPPED, call("mark_task_complete", "b")], {"d": 1}, [CallUser()]),
        ([STOPPED, DONE, MARKED], {"d": 1, "a": 2}, [CallUser()]),
        ([CLICK, DONE, MARKED], {"e": 1, "a": 2}, [None, "42"]),
    ],
)
def test_calls_of_one_step_that_end_are_one_end_on_the_screen_before_them(
    tmp_path: Path, calls: list[dict[str, Any]], pictures: dict[str, int], wanted: list[str | None]
) -> None:
    record = read(tmp_path, shown(calls, pictures, message="So."), name="computer-1")
    found = actions(record)
    assert [
        one.content if isinstance(one, Finished) else one if isinstance(one, CallUser) else None for one in found
    ] == wanted
    assert [step.screen for step in record.steps] == [picture(number) for number in range(len(wanted))]
    assert [step.thought for step in record.steps] == ["So.", ""][: len(wanted)] and all(targets(record))
    assert record.after == (picture(max(pictures.values())) if pictures else None)


@pytest.mark.parametrize(
    ("result", "wanted"), [(0, "0"), (False, "false"), (7, "7"), ([1], "[1]"), (None, ""), ([], "")]
)
def test_an_answer_of_any_json_type_is_the_end_s(tmp_path: Path, result: object, wanted: str) -> None:
    record = read(tmp_path, agent(call("mark_task_complete", "b", result=result), message="So."), name="computer-1")
    assert actions(record) == [Finished(content=wanted)]


@pytest.mark.parametrize("pictures", [{}, {"a": 1}])
def test_an_end_performs_nothing_so_the_next_action_on_its_screen_is_a_target(
    tmp_path: Path, pictures: dict[str, int]
) -> None:
    again = {**CLICK, "tool_call_id": "f"}
    record = read(tmp_path, shown([CLICK], {"e": 2}), shown([DONE], pictures), shown([again], {"f": 3}))
    assert actions(record) == [ACTED, None, ACTED] and targets(record) == [True, False, True]
    record = read(tmp_path, shown([CLICK], {"e": 2}), shown([DONE], pictures), shown([DONE, LOOKED], {}))
    assert actions(record) == [ACTED, None, ENDED] and targets(record) == [True, False, True]


def test_an_end_without_an_answer_that_is_none_keeps_its_thought_as_text(tmp_path: Path) -> None:
    marked = agent(call("mark_task_complete", "b"), message="Done.")
    record = read(tmp_path, marked, marked, name="computer-1")
    assert [(step.action, step.thought, step.text) for step in record.steps] == [
        (None, "", "Done."), (Finished(), "Done.", "")
    ]  # fmt: skip


def native(*results: tuple[str, int | None, str], calls: list[dict[str, Any]]) -> dict[str, Any]:
    """A step of several calls with a result for each, as `record_native_step` writes them."""
    seen = [
        {
            "source_call_id": at,
            "content": [{"type": "text", "text": status}, *([] if shown is None else [image(shown)])],
            "extra": {"execution_status": status},
        }
        for at, shown, status in results
    ]
    return {"source": "agent", "message": "Both.", "tool_calls": calls, "observation": {"results": seen}}


def test_calls_of_one_step_are_steps_each_for_the_screen_that_was_shown_before_it(tmp_path: Path) -> None:
    calls = [call("computer", at, type="click", x=x, y=10) for at, x in (("a", 5), ("b", 10), ("c", 15), ("d", 20))]
    shown = (("a", 1, "success"), ("b", None, "success"), ("c", 2, "error"), ("d", None, "not_executed"))
    record = read(tmp_path, native(*shown, calls=calls))
    one, two, three = (Click(x=x, y=0.25) for x in (0.1, 0.2, 0.3))
    assert [step.actions for step in record.steps] == [(one,), (two, three)]
    assert [step.screen for step in record.steps] == [picture(0), picture(1)]
    assert [step.thought for step in record.steps] == ["Both.", ""]
    assert targets(record) == [True, True] and record.after == picture(2)
    assert [step.error for step in record.steps] == [None, "error"]


def test_calls_that_are_one_action_together_are_one_step(tmp_path: Path) -> None:
    calls = [call("computer", "a", type="type", text="red"), call("computer", "b", type="keypress", keys=["enter"])]
    record = read(tmp_path, agent(*calls, shown=1))
    assert actions(record) == [Type(content="red\n")]


def test_a_zoomed_picture_is_no_screen(tmp_path: Path) -> None:
    """computer-1 crops the picture after `zoom`, and counts points on the desktop all the same."""
    zoom = agent(call("computer_action", "a", type="zoom", zoom_region=[0, 0, 9, 9]))
    zoom["observation"] = {"results": [{"source_call_id": "a", "content": [image(1)]}]}
    record = read(tmp_path, zoom, agent(call("computer_action", type="click", x=25, y=10)), name="computer-1")
    assert [(step.screen, step.action) for step in record.steps] == [(picture(0), Click(x=0.5, y=0.25))]


def test_points_of_computer_1_s_native_tools_are_on_their_own_grids(tmp_path: Path) -> None:
    gemini = agent(call("click", x=999, y=0, intent="The end."), shown=1)
    record = read(tmp_path / "gemini", gemini, name="computer-1")
    assert actions(record) == [Click(x=0.98, y=0.0)]
    assert shrunk(1280, 720) == 1.0 and round(1 / shrunk(2560, 1440), 4) == 1.7904
    wide = picture(0, 2560, 1440)
    folder = tmp_path / "anthropic"
    value = document(agent(call("computer", action="left_click", coordinate=[715, 402])), name="computer-1")
    file = saved(folder, value)
    (folder / "0.png").write_bytes(wide.png)
    (record,) = taken(FORM, file)
    (click,) = actions(record)
    assert isinstance(click, Click) and abs(click.x - 0.5) < 0.001 and abs(click.y - 0.5) < 0.001


def test_pictures_and_sounds_that_are_no_part_of_the_trajectory_are_no_part_of_its_export(tmp_path: Path) -> None:
    """`audio`: ATIF v1.8, harbor 0.26.0 `content.py`; `subagent_trajectories`: v1.7, `trajectory.py`."""
    sound = {"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav"}}
    called = document(agent(call("computer", type="wait"), shown=4), trajectory_id="sub")
    lost = {"source": "system", "message": [image(3), sound]}
    click = agent(call("computer", type="click", x=25, y=10, source={"type": "image", "path": "x"}), shown=1)
    record = read(
        tmp_path / "in", lost, {"source": "user", "message": [image(2)]}, click, subagent_trajectories=[called]
    )
    folder = written(FORM, [record], tmp_path / "out")
    (file,) = (folder / "trajectories").iterdir()
    back = json.loads(file.read_text())
    left = {"type": "text", "text": "[image left out]"}
    assert back["steps"][1]["message"] == [left, {"type": "text", "text": "[audio left out]"}]
    assert back["subagent_trajectories"][0]["steps"][0]["message"][1] == left
    assert back["steps"][3]["tool_calls"] == click["tool_calls"]
    listed = [
        part["source"]["path"]
        for step in back["steps"]
        for part in [*(step["message"] if isinstance(step["message"], list) else []), *parts(step)]
        if part["type"] == "image"
    ]
    assert len(listed) == 2 and all((file.parent / name).is_file() for name in listed)
    assert [len(one.steps) for one in taken(FORM, folder)] == [1]


def parts(step: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for one in step.get("observation", {}).get("results", []) for part in one["content"]]


def test_a_picture_that_is_painted_over_is_listed_as_it_is_exported(tmp_path: Path) -> None:
    click = agent(call("computer", type="click", x=25, y=10))
    record = read(tmp_path / "in", click)
    box = (0.0, 0.0, 1.0, 1.0)
    shown = {picture(0).sha256: [Element("mail", "text", box, True, "ann@example.com")]}
    redacted = Redactor().record(record, shown)
    assert redacted.steps[0].screen != picture(0)
    folder = written(FORM, [redacted], tmp_path / "out")
    (file,) = (folder / "trajectories").iterdir()
    path = json.loads(file.read_text())["steps"][0]["message"][1]["source"]["path"]
    assert (file.parent / path).read_bytes() == redacted.steps[0].screen.png


def test_an_image_without_a_source_is_refused(tmp_path: Path, sentence: Sentences) -> None:
    file = saved(tmp_path, document({"source": "system", "message": [{"type": "image"}]}, name="computer-1"))
    sentence(refused(FORM, file), "steps.1.message.0.source")


def test_what_a_policy_sampled_is_written_as_metrics_unless_it_is_redacted(tmp_path: Path) -> None:
    """`completion_token_ids`, `logprobs`: harbor 0.26.0, `harbor/models/trajectories/metrics.py`."""
    sampled = Sampled("Action: wait()", (5, 7, 9), (-0.5, -0.25, 0.0))
    step = ExchangedStep(picture(0), actions=(Wait(),), sampled=sampled)
    bare = replace(step, sampled=replace(sampled, logprobs=None))
    secret = replace(step, sampled=replace(sampled, text="Write ann@example.com. Action: wait()"))
    record = Redactor().record(Exchanged("t", "Wait.", (step, bare, secret)), {picture(0).sha256: []})
    (file,) = (written(FORM, [record], tmp_path) / "trajectories").iterdir()
    found = [one.get("metrics") for one in json.loads(file.read_text())["steps"][1:]]
    ids = {"completion_tokens": 3, "completion_token_ids": [5, 7, 9]}
    assert found == [{**ids, "logprobs": [-0.5, -0.25, 0.0]}, ids, None]


@pytest.mark.parametrize("known", [True, False])
def test_no_tokens_are_written_of_a_password_that_its_reply_shows_in_no_known_form(tmp_path: Path, known: bool) -> None:
    """`prompt_token_ids`: harbor 0.26.0, `harbor/models/trajectories/metrics.py`."""
    field = Element("password", "password field", (0.0, 0.0, 1.0, 1.0), True, "")
    sampled = Sampled("Click.", (5, 7), None, (1, 2, 3))
    aimed = ExchangedStep(picture(0), actions=(Click(x=0.5, y=0.5),), sampled=sampled)
    typed = replace(
        aimed, actions=(Type(content="open"),), sampled=replace(sampled, text="open it is") if known else None
    )
    record = Redactor().record(Exchanged("t", "Log in.", (aimed, typed, aimed)), {picture(0).sha256: [field]})
    (file,) = (written(FORM, [record], tmp_path) / "trajectories").iterdir()
    found = [one.get("metrics") for one in json.loads(file.read_text())["steps"][1:]]
    reply = {"completion_tokens": 2, "completion_token_ids": [5, 7]}
    assert found == [{"prompt_tokens": 3, "prompt_token_ids": [1, 2, 3], **reply}, None, reply]


def test_a_picture_of_a_document_is_found_beside_it_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(picture(1).png)
    value = document(agent(call("computer", type="click", x=1, y=1)))
    value["steps"][0]["message"][1]["source"]["path"] = "../../secret.png"
    file = saved(tmp_path / "in" / "agent", value)
    assert "leads out" in refused(FORM, file.parent.parent)
    assert isinstance(picture(1), Picture)


def test_keys_that_are_held_during_a_mere_move_are_no_plain_click(tmp_path: Path, sentence: Sentences) -> None:
    moved = call("computer", type="mouse_move", x=25, y=10, keys=["ctrl"])
    record = read(tmp_path, agent(moved, call("computer", "d", type="click", x=25, y=10), shown=1))
    assert actions(record)[0] is None
    sentence(record.steps[0].error)


@pytest.mark.parametrize("function", ["hotkey", "press", "release"])
@pytest.mark.parametrize("key", ["banana", "ctrl banana", ""])
def test_an_action_of_ours_with_a_key_that_no_keyboard_has_is_kept_as_text(
    tmp_path: Path, function: str, key: str
) -> None:
    steps = [agent(call(function, key=one), shown=shown) for shown, one in enumerate((key, "a"), 1)]
    (record,) = taken(FORM, saved(tmp_path, document(*steps)), unit="fraction")
    step, read_too = record.steps
    assert step.action is None and step.error and function in step.text
    assert read_too.action is not None and read_too.action.type == function


@pytest.mark.parametrize(
    "given", [{"type": "keypress", "keys": "none"}, {"type": "key"}, {"type": "key_down", "keys": []}]
)
def test_a_key_without_a_name_is_kept_as_text_next_to_other_calls(tmp_path: Path, given: dict[str, Any]) -> None:
    record = read(
        tmp_path, agent(call("computer", **given), call("computer", at="d", type="click", x=25, y=10), shown=1)
    )
    assert "a key without a name" in str(record.steps[0].error) and record.steps[0].action is None


def test_words_before_a_call_on_the_same_screen_are_context(tmp_path: Path) -> None:
    plan = {"source": "agent", "message": "I look for it.", "tool_calls": None}
    click, wait = call("computer", type="click", x=25, y=10), call("computer", type="wait")
    record = read(tmp_path / "a", plan, plan, agent(click, shown=1), plan, agent(wait, shown=2))
    assert targets(record) == [False, False, True, False, True]
    assert [one is not None for one in actions(record)] == [False, False, True, False, True]
    record = read(tmp_path / "b", agent(click, shown=1), plan)
    assert targets(record) == [True, True] and actions(record)[1] == Finished(content="I look for it.")


def test_of_messages_at_the_end_the_last_is_the_end_and_the_others_are_context(tmp_path: Path) -> None:
    found, price = agent(message="I found it."), agent(message="The price is 5.")
    note = {"source": "system", "message": "Saved."}
    click = call("computer", type="click", x=25, y=10)
    for number, steps in enumerate(([found, price], [found, note, price], [found, found, price])):
        record = read(tmp_path / str(number), agent(click, shown=1), *steps)
        assert targets(record) == [True, *[False] * (len(record.steps) - 2), True]
        assert [one for one in actions(record) if one] == [ACTED, Finished(content="The price is 5.")]


@pytest.mark.parametrize(
    ("ending", "wanted"),
    [
        (call("mark_task_complete"), [(None, False), ("It is 5.", True)]),
        (call("mark_task_complete", result="5"), [("5", True), (None, False)]),
        (call("computer", type="terminate", status="failure"), [(CallUser(), True), (None, False)]),
    ],
)
def test_a_message_behind_a_call_that_ends_is_the_answer_where_the_call_has_none(
    tmp_path: Path, ending: dict[str, Any], wanted: list[tuple[str | None, bool]]
) -> None:
    record = read(tmp_path, agent(ending), agent(message="It is 5."))
    found = [one.content if isinstance(one, Finished) else one for one in actions(record)]
    assert list(zip(found, targets(record), strict=True)) == wanted


@pytest.mark.parametrize("text", ["", "skipped"])
def test_a_message_whose_calls_were_not_performed_is_context_and_no_end(tmp_path: Path, text: str) -> None:
    click = call("computer", "a", type="click", x=5, y=10)
    skipped = agent(click, message="I open it.")
    skipped["observation"] = {
        "results": [{"source_call_id": "a", "content": text, "extra": {"execution_status": "not_executed"}}]
    }
    record = read(tmp_path / "before", skipped, agent(CLICK, shown=1))
    assert actions(record) == [None, ACTED] and targets(record) == [False, True]
    record = read(tmp_path / "last", agent(CLICK, shown=1), skipped)
    assert actions(record) == [ACTED, None] and record.steps[1].text == "I open it."


def test_texts_of_calls_do_not_depend_on_the_order_of_their_arguments(tmp_path: Path) -> None:
    given = {"type": "fly", "b": None, "a": {"d": True, "c": ["é", 1.5]}}
    turned = {"a": {"c": ["é", 1.5], "d": True}, "b": None, "type": "fly"}
    answers: list[dict[str, Any]] = [{"b": 1, "a": 2}, {"a": 2, "b": 1}]
    texts = list[str]()
    for number, (fields, answer) in enumerate(zip((given, turned), answers, strict=True)):
        fly, done = call("computer", **fields), call("computer", type="done", result=answer)
        record = read(tmp_path / str(number), agent(fly, shown=1), agent(done))
        texts.append(record.steps[0].text)
        assert actions(record) == [None, Finished(content='{"a": 2, "b": 1}')]
    assert texts == ['computer({"a": {"c": ["é", 1.5], "d": true}, "b": null, "type": "fly"})'] * 2


@pytest.mark.parametrize("described", [1, 2])
def test_a_document_that_was_exported_with_a_step_for_each_call_keeps_these_steps(
    tmp_path: Path, described: int
) -> None:
    calls = (call("computer", at, type="click", x=x, y=10) for at, x in (("a", 5), ("b", 10)))
    own = {"unit": "pixels", "steps": [{"actor": "import"}] * described}
    record = read(tmp_path, agent(*calls, shown=1), extra={"flywheel": own})
    one, two = (Click(x=x, y=0.25) for x in (0.1, 0.2))
    assert [step.actions for step in record.steps] == ([(one, two)] if described == 1 else [(one,), (two,)])
