"""Compare how we and the agents in public repositories read replies.

`python -m tests.compared.clients --fara DIR --gui-owl DIR --qwen3-vl DIR --opencua DIR --scalecua DIR --glm DIR
--evocua DIR --mai-ui DIR --step-gui DIR`

Each DIR is a checkout. The functions that read a reply are taken out of its source by name and run; nothing else of it
runs. Rows: per client how many garbled replies it and we read alike, and why they differ where they do.
"""

import argparse
import ast
import contextlib
import io
import json
import logging
import math
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError

from benchmarks.harness import Bar, add_options, finish
from models.completion import Completion
from models.families.code.program import SUCCESS, play
from models.families.registry import FAMILIES
from models.families.screen import ImageLimits
from models.families.thinking import split_thinking
from schemas.action import OPPOSITE, Action, action_of
from schemas.config.policy import PolicyConfig
from schemas.failure import FlywheelError
from schemas.keyboard import names_of, together, together_in
from tests.fixtures.planted.replies import mutated

REPLIES, SHORT = 100_000, 3_000
MOST_UNEXPLAINED = 1e-4
"""Share of replies in which two reasons meet, so that neither explains the difference."""
SIDE = 1008
"""Pixels of a square screen that processors of patches of 28 leave as it is."""

AGREE = "read alike"
NEITHER = "read by neither"
ONLY_HERE = "read here only"
NO_ACTION = "no action of ours"
THINKING = "a draft in thinking"
LATER = "another call"
"""They take a call behind a broken one, or the last of several; calls are performed in their order here."""
PIECES = "pieces of what is no code"
"""Their regular expressions find a call within a sentence, or arguments within what is not Python."""
DROPPED = "a place dropped"
"""They scroll or type without the place that the call has."""
UNEXPLAINED = "unexplained"
_SILENT = logging.getLogger("clients")
_SILENT.disabled = True
_BEGINS = re.compile(r'<tool_call>|\{"name|<action>|<\|begin_of_box\|>|\b(?:pyautogui|computer)\.|```', re.MULTILINE)

KINDS = (AGREE, NEITHER, ONLY_HERE, NO_ACTION, THINKING, LATER, PIECES, DROPPED, UNEXPLAINED)

Read = Callable[[str], Sequence[Action | None]]
"""The actions of a reply, each None that is none of ours; raises for a reply that the client cannot read."""


def functions(path: Path, *names: str) -> SimpleNamespace:
    """Functions, methods and constants of a source file, without the rest of it.

    Raises:
        FlywheelError: the file has no such name.
    """
    kept = list[ast.stmt]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            node.decorator_list = []
            kept.append(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names:
            kept.append(node)
    found: dict[str, Any] = {
        "ast": ast, "json": json, "re": re, "math": math, "Any": Any, "Dict": dict, "List": list, "Tuple": tuple,
        "Optional": None.__class__ | object, "logger": _SILENT, "Union": SimpleNamespace,
    }  # fmt: skip
    code = "from typing import *\n" + ast.unparse(ast.Module(kept, []))
    exec(compile(code, str(path), "exec"), found)
    if missing := set(names) - found.keys():
        raise FlywheelError(f"{path} has no {', '.join(sorted(missing))}.", "Check out the commit of docs/compared.md.")
    return SimpleNamespace(**{name: found[name] for name in names})


def action(**fields: object) -> Action | None:
    """The action with these fields; None for none of ours."""
    try:
        return action_of(fields)
    except (ValidationError, ValueError):
        return None


_CLICKS = {
    "click": "click", "left_click": "click", "double_click": "left_double", "triple_click": "left_double",
    "right_click": "right_single", "long_press": "long_press",
}  # fmt: skip


def performed(given: Any, side: float = 1000) -> list[Action | None]:
    """What a call of `computer_use` or `mobile_use` does; raises as a client that looks its arguments up."""
    name, at = given["action"], {}
    if given.get("coordinate") is not None:
        x, y = given["coordinate"][0], given["coordinate"][1]
        if len(given["coordinate"]) != 2:
            return [None]
        at = {"x": x / side, "y": y / side}
    if name in _CLICKS:
        return [action(type=_CLICKS[name], **at)]
    if name == "mouse_move":
        return []
    if name in ("swipe", "drag", "left_click_drag") or (name == "scroll" and "coordinate2" in given):
        x, y = given["coordinate2"][0], given["coordinate2"][1]
        return [action(type="drag", **at, to_x=x / side, to_y=y / side)]
    if name == "type":
        return [*([action(type="click", **at)] if at else []), action(type="type", content=given["text"])]
    if name == "key":
        keys = given["keys"] if "keys" in given else given["text"]
        return [action(type="hotkey", key=together_in(map(str, keys if isinstance(keys, list) else [keys])))]
    if name in ("scroll", "hscroll"):
        ways = ("down", "up") if name == "scroll" else ("left", "right")
        return [action(type="scroll", direction=ways[given["pixels"] > 0], **(at or {}))]
    if name == "system_button":
        return [action(type=f"press_{str(given['button']).lower()}")]
    if name == "terminate":
        status = given.get("status", "success")
        return [action(type="finished" if status in SUCCESS else "call_user")]
    if name == "answer":
        return [action(type="finished", content=given["text"])]
    if name == "open":
        return [action(type="open_app", app_name=given["text"])]
    if name in ("interact", "call_user"):
        return [action(type="call_user")]
    return [action(type="wait") if name == "wait" else None]


def fara(root: Path) -> Read:
    """`FaraAgent._parse_thoughts_and_action`."""
    taken = functions(root / "src/fara/fara_agent.py", "_parse_thoughts_and_action")
    agent = SimpleNamespace(logger=_SILENT)
    return lambda text: performed(taken._parse_thoughts_and_action(agent, text)[1]["arguments"])


def gui_owl_desktop(root: Path) -> Read:
    """GUI-Owl 1.5's `extract_tool_calls`."""
    taken = functions(root / "Mobile-Agent-v3.5/computer_use/utils.py", "extract_tool_calls")
    return lambda text: [one for call in taken.extract_tool_calls(text) for one in performed(call["arguments"])]


def gui_owl_phone(root: Path) -> Read:
    """GUI-Owl 1.5's `parse_action`."""
    taken = functions(root / "Mobile-Agent-v3.5/mobile_use/run_gui_owl_1_5_for_mobile.py", "parse_action")
    return lambda text: performed(taken.parse_action(text)["arguments"])


def gui_owl_osworld(root: Path) -> Read:
    """GUI-Owl's `parse_action_fncall` for OSWorld."""
    path = root / "Mobile-Agent-v3/os_world_v3/mm_agents/owl_agent.py"
    taken = functions(path, "parse_action_fncall", "convert_point_format")

    def read(text: str) -> list[Action | None]:
        (one,) = taken.parse_action_fncall(text, "", SIDE, SIDE)
        kind, given, fields = one["action_type"], one["action_inputs"], dict[str, Any]()
        for box, prefix in (("start_box", ""), ("end_box", "to_")):
            if box in given:
                x, y = given[box]
                fields |= {f"{prefix}x": x / 1920 * 1.932, f"{prefix}y": y / 1080 * 1.092}
        if kind == "scroll":
            fields |= {"x": 0.5, "y": 0.5, "direction": "up" if given["pixels"] > 0 else "down"}
        if kind == "hotkey":
            fields["key"] = together(names_of(given["hotkey"].strip()))
        if kind == "type":
            fields["content"] = given["content"]
        return [action(type={"fail": "call_user"}.get(kind, kind), **fields)]

    return read


def qwen3_vl(root: Path) -> Read:
    """The expression of the cookbook `mobile_agent.ipynb`."""
    cells = json.loads((root / "cookbooks/mobile_agent.ipynb").read_text())["cells"]
    (found, *_) = re.findall(r"action = (json\.loads\(output_text.*)", "\n".join("".join(c["source"]) for c in cells))
    code = compile(found, "mobile_agent.ipynb", "eval")
    return lambda text: performed(eval(code, {"json": json, "output_text": text})["arguments"])


def evocua(root: Path) -> Read:
    """`EvoCUAAgent._parse_response_s2`, whose code is read as the code that it is."""
    taken = functions(root / "mm_agents/evocua/evocua_agent.py", "_parse_response_s2")
    side = 999_000  # so that its whole pixels lose nothing of a coordinate
    agent = SimpleNamespace(screen_size=(side, side), coordinate_type="relative")
    pressed = re.compile(r"pyautogui\.press\((?:'(enter|\\\\|.)'|\"(.)\")\)\n", re.DOTALL)

    def written(code: str) -> str:
        if not code.endswith("\n"):
            return code  # also of a text that is empty or missing, which it does not type
        signs = (one or other for one, other in pressed.findall(code))
        return f"pyautogui.write({''.join(chr(10) if one == 'enter' else one[-1] for one in signs)!r})"

    def read(text: str) -> list[Action | None]:
        codes = taken._parse_response_s2(agent, text, None, None, side, side)[1]
        if not codes:
            return []
        played = play("\n".join(map(written, codes)), lambda x, y: (x / side, y / side))
        return list(played.actions) if not played.problem else [*played.actions, None]

    return read


def mai_ui(root: Path) -> Read:
    """`parse_action_to_structure_output` of its agent for phones."""
    path = root / "src/mai_naivigation_agent.py"
    taken = functions(path, "SCALE_FACTOR", "parse_tagged_text", "parse_action_to_structure_output")

    def read(text: str) -> list[Action | None]:
        given = taken.parse_action_to_structure_output(text)["action_json"]
        if given["action"] == "swipe":
            x, y = given.get("coordinate", (0.5, 0.5))
            return [action(type="scroll", x=x, y=y, direction=OPPOSITE.get(given["direction"]))]
        if given["action"] == "drag":
            (x, y), (to_x, to_y) = given["start_coordinate"], given["end_coordinate"]
            return [action(type="drag", x=x, y=y, to_x=to_x, to_y=to_y)]
        return performed({**given, "action": {"ask_user": "interact"}.get(given["action"], given["action"])}, 1)

    return read


def opencua(root: Path) -> Read:
    """`OpenCUA.parse_response` and `extract_actions` of AgentNetBench."""
    path = root / "evaluation/agentnetbench/agent/opencua.py"
    taken = functions(path, "parse_response", "extract_actions", "_maybe_normalize_coordinates")
    agent = SimpleNamespace(coord_type="absolute")
    agent._maybe_normalize_coordinates = partial(taken._maybe_normalize_coordinates, agent)
    kinds = {"click": "click", "doubleClick": "left_double", "rightClick": "right_single", "triple_click": "none"}

    def read(text: str) -> list[Action | None]:
        done, cursor = list[Action | None](), dict[str, float]()
        for kind, value in taken.extract_actions(agent, taken.parse_response(agent, text)):
            at = {"x": value[0] / SIDE, "y": value[1] / SIDE} if isinstance(value, tuple) else {}
            if kind == "moveTo":
                cursor = at
            elif kind in kinds:
                done.append(action(type=kinds[kind], **at))
            elif kind == "dragTo":
                done.append(action(type="drag", **cursor, to_x=at["x"], to_y=at["y"]))
            elif kind == "write":
                done.append(action(type="type", content=value))
            elif kind in ("hotkey", "press"):
                one = [together(value)] if kind == "hotkey" else [together([key]) for key in value]
                done += [action(type="hotkey", key=key) for key in one]
            elif kind == "scroll":
                way = "up" if int(str(value)) > 0 else "down"
                done.append(action(type="scroll", direction=way, **(cursor or {})))
            elif kind == "terminate":
                done.append(action(type="finished" if value == "success" else "call_user"))
        return done

    return read


def scalecua(root: Path) -> Read:
    """`ScaleCUAAgent.parse_response` and `parse_action` for OSWorld, whose code is read as the code that it is."""
    path = root / "evaluation/OSWorld/mm_agents/scalecua_agent.py"
    names = ("round_by_factor", "ceil_by_factor", "floor_by_factor", "linear_resize", "smart_resize")
    limits = ("IMAGE_FACTOR", "MIN_PIXELS", "MAX_PIXELS", "MAX_RATIO")
    methods = ("parse_response", "parse_action", "transform_action", "_parse_kwargs")
    taken = functions(path, *limits, *names, *methods)
    agent = SimpleNamespace(screen_height=SIDE, screen_width=SIDE, min_pixels=3136, max_pixels=2109744)
    agent.transform_action = partial(taken.transform_action, agent)
    agent._parse_kwargs = partial(taken._parse_kwargs, agent)

    def read(text: str) -> list[Action | None]:
        calls = taken.parse_response(agent, text)[2]
        code = "\n".join(str(one) for one in taken.parse_action(agent, calls) or ())
        if not code:
            return []
        played = play(code, lambda x, y: (x / SIDE, y / SIDE))
        return list(played.actions) if not played.problem else [*played.actions, None]

    return read


def glm(root: Path) -> Read:
    """`extract_answer` of the rewards of GLM-V."""
    path = root / "glmv_reward/scripts/gui_agent/OSWorld.py"
    taken = functions(path, "extract_answer", "parse_action", "is_properly_closed", "_extract_coordinates")
    kinds = {"left_click": "click", "left_double_click": "left_double", "right_click": "right_single",
             "left_drag": "drag", "key": "hotkey", "WAIT": "wait", "DONE": "finished", "FAIL": "call_user"}  # fmt: skip

    def read(text: str) -> list[Action | None]:
        found = taken.extract_answer(text)
        if not found:
            return []
        fields = {name: found[name] for name in ("direction", "content") if name in found}
        for box, prefix in (("coordinates", ""), ("start_coordinates", ""), ("end_coordinates", "to_")):
            if box in found:
                fields |= {f"{prefix}{axis}": place / 1000 for axis, place in zip("xy", found[box], strict=True)}
        if "keys" in found:
            fields["key"] = together(names_of(found["keys"]))
        return [action(type=kinds.get(found["action_type"], found["action_type"]), **fields)]

    return read


def step_gui(root: Path) -> Read:
    """Step-GUI's `str2action`; a text is typed without a click at its place, as `act_on_device` types it."""
    taken = functions(root / "copilot_tools/parser_0920_summary.py", "str2action")

    def read(text: str) -> list[Action | None]:
        given = taken.str2action(None, text)
        name, fields = given["action"], dict[str, Any]()
        places = {"SLIDE": {"point1": "", "point2": "to_"}, "CLICK": {"point": ""}, "LONGPRESS": {"point": ""}}
        for point, prefix in places.get(name, {}).items():
            if point in given:
                fields |= {f"{prefix}{axis}": place / 1000 for axis, place in zip("xy", given[point], strict=True)}
        if name in ("TYPE", "COMPLETE", "AWAKE"):
            key = {"TYPE": "content", "COMPLETE": "content", "AWAKE": "app_name"}[name]
            fields[key] = given["return" if name == "COMPLETE" else "value"]
        return [action(type=_STEPS.get(name, name), **fields)]

    return read


_STEPS = {
    "CLICK": "click", "LONGPRESS": "long_press", "SLIDE": "drag", "TYPE": "type", "AWAKE": "open_app", "WAIT": "wait",
    "COMPLETE": "finished", "INFO": "call_user", "ABORT": "call_user",
}  # fmt: skip


def _called(tool: str = "computer_use", **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


def _thought(replies: Sequence[str], draft: str) -> tuple[str, ...]:
    """Replies, also behind thinking with a draft, with its opening tag and without."""
    some = [f"<think>\nFirst {draft} perhaps.\n</think>\n\n{one}" for one in replies[::2]]
    return (*replies, *some, *(f"Maybe {draft}\n</think>\n{one}" for one in replies[1::2]))


CALLS = _thought(
    (
        *(f"Action: I do it.\n{_called(**one)}" for one in (
            {"action": "left_click", "coordinate": [500, 300]}, {"action": "right_click", "coordinate": [5, 999]},
            {"action": "double_click", "coordinate": [1, 2]}, {"action": "type", "text": 'it\'s "so"\n</b>'},
            {"action": "key", "keys": ["ctrl", "c"]}, {"action": "scroll", "pixels": -5},
            {"action": "terminate", "status": "success"}, {"action": "wait", "time": 2},
            {"action": "click", "coordinate": [900, 10]}, {"action": "long_press", "coordinate": [3, 4], "time": 2},
            {"action": "swipe", "coordinate": [1, 2], "coordinate2": [3, 4]}, {"action": "open", "text": "Maps"},
            {"action": "system_button", "button": "Back"}, {"action": "answer", "text": "42"},
            {"action": "type", "text": "a", "coordinate": [7, 8], "press_enter": False},
            {"action": "drag", "coordinate": [1, 2], "coordinate2": [3, 4]},
            {"action": "left_click_drag", "coordinate": [1, 2], "coordinate2": [3, 4]},
            {"action": "interact", "text": "Log in"},
        )),
        f"<thinking>\nso\n</thinking>\n{_called(action='left_click', coordinate=[5, 6])}\n<conclusion>b</conclusion>",
        *(f"a\n<tool_call>\n{{'name': 'computer_use', 'arguments': {one}}}\n</tool_call>" for one in (
            "{'action': 'left_click', 'coordinate': [5, 3]}", "{'action': 'type', 'text': 'it\\'s', 'clear': False}",
        )),
        "\n".join((_called(action="mouse_move", coordinate=[1, 2]), _called(action="left_click", coordinate=[3, 4]))),
    ),
    _called(action="left_click", coordinate=[11, 12]),
)  # fmt: skip
HELD = _thought(
    tuple(f"Action: I do it.\n{_called(**one)}" for one in (
        {"action": "left_click", "coordinate": [500, 300]}, {"action": "right_click", "coordinate": [5, 999]},
        {"action": "double_click", "coordinate": [1, 2]}, {"action": "type", "text": 'it\'s "so"\n</b>'},
        {"action": "key", "keys": ["ctrl", "c"]}, {"action": "key_down", "keys": ["ctrl"]},
        {"action": "key_up", "keys": ["ctrl"]}, {"action": "scroll", "pixels": -5}, {"action": "wait", "time": 2},
        {"action": "terminate", "status": "success"}, {"action": "terminate", "status": "failure"},
        {"action": "click", "coordinate": [900, 10]}, {"action": "triple_click", "coordinate": [3, 4]},
        {"action": "key", "keys": ["keys=[\"ctrl\"", "c]"]}, {"action": "left_click"},
    )),
    _called(action="left_click", coordinate=[11, 12]),
)  # fmt: skip
PHONE = _thought(
    tuple(f"<thinking>\nI do it.\n</thinking>\n{_called('mobile_use', **one)}" for one in (
        {"action": "click", "coordinate": [500, 300]}, {"action": "click", "coordinate": [1, 2, 3, 4]},
        {"action": "long_press", "coordinate": [5, 999]}, {"action": "type", "text": 'it\'s "so"\n</b>'},
        {"action": "swipe", "direction": "up", "coordinate": [5, 6]}, {"action": "swipe", "direction": "left"},
        {"action": "drag", "start_coordinate": [1, 2], "end_coordinate": [3, 4]}, {"action": "open", "text": "Maps"},
        {"action": "system_button", "button": "back"}, {"action": "wait"}, {"action": "answer", "text": "42"},
        {"action": "terminate", "status": "success"}, {"action": "terminate", "status": "fail"},
        {"action": "ask_user", "text": "Which?"}, {"action": "double_click", "coordinate": [7, 8]},
    )),
    _called("mobile_use", action="click", coordinate=[11, 12]),
)  # fmt: skip
CODE = _thought(
    tuple(f"## Thought:\nhm\n\n## Action:\nI do it.\n\n## Code:\n```python\n{one}\n```" for one in (
        "pyautogui.click(x=443, y=343)", "pyautogui.doubleClick(x=4, y=3)", "pyautogui.rightClick(x=4.5, y=3)",
        "pyautogui.moveTo(x=1, y=2)\npyautogui.dragTo(x=3, y=4, button='left')", "pyautogui.write(message='it is')",
        "pyautogui.hotkey(keys=['ctrl', 'c'])", "pyautogui.hotkey('ctrl', 'c')", "pyautogui.press('enter')",
        "pyautogui.press(keys=['enter'])", "pyautogui.moveTo(x=1, y=2)\npyautogui.scroll(-5)",
        "computer.terminate(status='success')", "computer.terminate(status='failure')",
        "computer.triple_click(x=5, y=6)",
    )),
    "pyautogui.click(x=11, y=12)",
)  # fmt: skip
TAGGED = _thought(
    tuple(f"<operation>\nI do it.\n</operation>\n<action>\n{one}\n</action>" for one in (
        "click(x=443, y=343)", "doubleClick(x=4, y=3)", "rightClick(x=4, y=3)", "write(message='it is')",
        "moveTo(x=1, y=2)\ndragTo(x=3, y=4)", "hotkey('ctrl', 'c')", "press(keys='enter')", "press('tab', presses=3)",
        "scroll(clicks=-5, x=7, y=8)", "press(keys=['down', 'enter'])", "terminate(status='success')",
    )),
    "<action>click(x=11, y=12)</action>",
)  # fmt: skip
BOXED = _thought(
    tuple(f"I do it.\n<|begin_of_box|>{one}<|end_of_box|>\nMemory:\n[]" for one in (
        "left_click(start_box='[586,446]', element_info='OK')", "right_click(start_box='[5, 6]')",
        "left_double_click(start_box='[5,6]')", "left_drag(start_box='[1,2]', end_box='[3,4]')",
        "key(keys='ctrl+c')", "type(content='it is')", "WAIT()", "DONE()", "FAIL()",
        "scroll(start_box='[1,2]', direction='down', step=5)",
    )),
    "<|begin_of_box|>left_click(start_box='[11,12]')<|end_of_box|>",
)  # fmt: skip
RECORDS = _thought(
    tuple(f"<THINK> hm </THINK>\nexplain:I do it.\taction:{one}\tsummary:I did it." for one in (
        "CLICK\tpoint:447,81", "CLICK\tpoint:5 6", "LONGPRESS\tpoint:500,500", "TYPE\tvalue:it's: so",
        "TYPE\tvalue:a\tpoint:7,8", "SLIDE\tpoint1:500,800\tpoint2:500,200", "WAIT\tvalue:2", "AWAKE\tvalue:微信",
        "INFO\tvalue:?", "ABORT\tvalue:no", "COMPLETE\treturn:42",
    )),
    "action:CLICK\tpoint:11,12",
)  # fmt: skip


QUOTES = str.maketrans("'\"", "\"'")
RESTYLED = (
    ('"', "'"),
    ("\n", "\r\n"),
    ("\n", " "),
    ("\n", ""),
    ("false", "False"),
    (": ", ":"),
    (", ", " ,\t"),
    ("[", "("),
)


@dataclass(frozen=True, slots=True)
class Client:
    """A reader of replies in a public repository."""

    option: str
    """Of the command line, with the checkout."""
    of: Callable[[Path], Read]
    family: str
    template: str
    replies: Sequence[str]
    grammar: Mapping[str, str] = field(default_factory=dict)
    """Functions of its prompt and their arguments, where replies hold code."""


PYAUTOGUI = {
    **dict.fromkeys(("click", "doubleClick", "rightClick", "moveTo", "triple_click"), "x y"), "press": "keys presses",
    "dragTo": "x y button", "write": "message", "hotkey": "keys", "scroll": "clicks x y", "terminate": "status",
}  # fmt: skip
BOXES = {
    **dict.fromkeys(("left_click", "right_click", "left_double_click"), "start_box element_info"),
    "left_drag": "start_box end_box element_info", "key": "keys", "type": "content", "WAIT": "", "DONE": "", "FAIL": "",
    "scroll": "start_box direction step element_info",
}  # fmt: skip
VALUES = {
    "status": ("success", "failure"),
    "button": ("left", "right", "middle"),
    "direction": ("up", "down", "left", "right"),
}
_JOINED = re.compile(r"(['\"])\s*\1")
"""Two texts side by side, which are one to Python."""
CLIENTS = {
    "Fara": Client("fara", fara, "qwen3-vl", "computer", CALLS),
    "GUI-Owl 1.5, desktop": Client("gui-owl", gui_owl_desktop, "gui-owl-1.5", "computer", CALLS),
    "GUI-Owl 1.5, phone": Client("gui-owl", gui_owl_phone, "gui-owl-1.5", "mobile", CALLS),
    "GUI-Owl, OSWorld": Client("gui-owl", gui_owl_osworld, "qwen3-vl", "computer", CALLS),
    "Qwen3-VL cookbook": Client("qwen3-vl", qwen3_vl, "qwen3-vl", "mobile", CALLS),
    "EvoCUA": Client("evocua", evocua, "evocua", "computer", HELD),
    "MAI-UI, phone": Client("mai-ui", mai_ui, "mai-ui", "mobile", PHONE),
    "OpenCUA, AgentNetBench": Client("opencua", opencua, "opencua", "computer", CODE, PYAUTOGUI),
    "ScaleCUA, OSWorld": Client("scalecua", scalecua, "scalecua", "computer", TAGGED, PYAUTOGUI),
    "Step-GUI": Client("step-gui", step_gui, "step-gui", "mobile", RECORDS),
    "GLM-V, OSWorld": Client("glm", glm, "glm", "computer", BOXED, BOXES),
}


class Pair:
    """A client and our family, which read the same replies."""

    def __init__(self, client: Client, root: Path) -> None:
        self._client, self._theirs = client, client.of(root)
        self._family = FAMILIES.class_of(client.family)(
            PolicyConfig.model_validate({"family": client.family, "template": client.template})
        )
        self._family.fit(ImageLimits(28, 3136, 2109744))

    def theirs(self, text: str) -> list[Action | None] | str:
        """What the client reads, or the class of what it raises."""
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return list(self._theirs(text))
            except Exception as error:  # whatever it raises, that is what it says
                return type(error).__name__

    def ours(self, text: str) -> Completion:
        """What the family reads."""
        return self._family.read(Completion(text), (SIDE, SIDE))

    def compare(self, text: str) -> str:
        """`AGREE` or why the two differ."""
        read, theirs = self.ours(text), self.theirs(text)
        ours = self._actions(read)
        first = theirs[0] if not isinstance(theirs, str) and theirs else None
        if not ours and first is None:
            return NEITHER
        if first is None:
            return ONLY_HERE if isinstance(theirs, str) or not theirs else NO_ACTION
        if ours and same(ours[0], first):
            return AGREE
        if " thinking: " in (read.error or ""):
            return THINKING
        answer = split_thinking(text)[1]
        if answer != text:
            again = self.compare(answer)
            return THINKING if again in (AGREE, NEITHER, ONLY_HERE, NO_ACTION) else again
        if ours and (placeless(ours[0], first) or (len(ours) > 1 and same(ours[1], first) and first.type == "type")):
            return DROPPED
        if any(
            one in (read.error or "") for one in (" is no coordinate", "there is no tool ", "an end with the status ")
        ):
            return NO_ACTION
        if "' twice" in (read.error or "") or (self._client.grammar and not self._written(text, read.action_text)):
            return PIECES
        begins = [*[found.start() for found in _BEGINS.finditer(text)][-8:], len(text)]
        cuts = [text[begin:end] for begin, end in combinations(begins, 2)]
        cuts += [text[begin:].partition("\n")[0] for begin in begins]
        if any(same(one, first) or placeless(one, first) for cut in cuts for one in self._actions(self.ours(cut))):
            return LATER
        if ours and any(isinstance(one := self.theirs(cut), list) and one and same(ours[0], one[0]) for cut in cuts):
            return LATER
        if any(same(one, first) for one in ours):
            return LATER
        return PIECES if not self._client.grammar and not ours and not called(text[begins[0] :]) else UNEXPLAINED

    def _written(self, text: str, code: str) -> bool:
        """Whether the code that was read is calls that its prompt has, with nothing behind them on their line."""
        behind = text[text.rfind(code) + len(code) :].lstrip(" \t;,") if code else ""
        return written(code, self._client.grammar) and (not behind or behind[0] in "\r\n<`")

    @staticmethod
    def _actions(read: Completion) -> list[Action]:
        return [*read.actions, *read.dropped]


def placeless(one: Action, other: Action) -> bool:
    """Whether two scrolls differ in their places alone."""
    return one.type == "scroll" and other.type == "scroll" and one.direction == other.direction


def called(text: str) -> bool:
    """Whether a text holds JSON that is an object."""
    try:
        json.JSONDecoder(strict=False).raw_decode(text[text.index("{") :])
    except (ValueError, RecursionError):
        return False
    return True


def written(code: str, grammar: Mapping[str, str]) -> bool:
    """Whether a text is calls of these functions with arguments that they have, all of them literals."""
    try:
        calls = [one.value for one in ast.parse(code.strip()).body if isinstance(one, ast.Expr)]
        for call in calls:
            assert isinstance(call, ast.Call) and not _JOINED.search(code)
            named = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
            _ = [ast.literal_eval(one) for one in call.args]
            name = ast.unparse(call.func).removeprefix("pyautogui.").removeprefix("computer.")
            assert len(call.args) <= len(grammar[name].split()) or name == "hotkey"
            assert len(named) == len(call.keywords) and named.keys() <= {*grammar[name].split()}
            assert all(named[one] in known for one, known in VALUES.items() if one in named)
    except (AssertionError, KeyError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False
    return bool(calls)


def same(one: Action, other: Action | None) -> bool:
    """Whether two actions are alike, places to a thousandth of a thousandth."""
    if other is None or one.type != other.type:
        return False
    mine, theirs = one.model_dump(), other.model_dump()
    return all(
        math.isclose(mine[key], value, abs_tol=1e-6) if isinstance(value, float) else mine[key] == value
        for key, value in theirs.items()
    )


def garbled(replies: Sequence[str], count: int, seed: int = 11) -> Iterator[str]:
    """So many garbled replies: in other quotes, lines and spellings, then cut, doubled, mixed and strewn with noise."""
    chance = random.Random(seed)
    for _ in range(count):
        text = mutated(chance, replies)
        for old, new in chance.sample(RESTYLED, chance.randrange(3)) if chance.random() < 0.5 else ():
            text = text.translate(QUOTES) if old == '"' else text.replace(old, new)
        yield text


def main() -> int:
    """Read, compare, print; exit code 1 if too many differences have no reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in sorted({client.option for client in CLIENTS.values()}):
        parser.add_argument(f"--{option}", type=Path, metavar="DIR", help="a checkout")
    given = add_options(parser).parse_args()
    rows = list[dict[str, Any]]()
    for name, client in CLIENTS.items():
        root = getattr(given, client.option.replace("-", "_"))
        if root is not None:
            pair = Pair(client, root)
            counts = Counter(map(pair.compare, garbled(client.replies, SHORT if given.short else REPLIES)))
            rows.append({"client": name, **{kind: counts[kind] for kind in KINDS}})
    share = max((row[UNEXPLAINED] / sum(row[kind] for kind in KINDS) for row in rows), default=0.0)
    bars = [Bar(f"{UNEXPLAINED}, share", share, MOST_UNEXPLAINED, "lower")]
    return finish("clients", rows, bars, given)


if __name__ == "__main__":
    raise SystemExit(main())
