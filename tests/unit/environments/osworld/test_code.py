"""What an action becomes as a line of Python with pyautogui."""

import ast
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.osworld.code import code_of
from schemas import action as act
from schemas.failure import ActionFailure

SIZE = (1000, 500)
ALLOWED = {"pyautogui", "time", "subprocess", "any", "range", "_"}


def calls(code: str) -> list[str]:
    """The calls of a line, but for those of the clipboard, as they are written."""
    found = [ast.unparse(one.value) for one in ast.parse(code).body if isinstance(one, ast.Expr)]
    return [one.removeprefix("pyautogui.") for one in found if one.startswith("pyautogui.")]


def typed(code: str) -> str:
    """What a line types, played on a keyboard that writes all that pyautogui can."""
    text, clipboard = [], [""]

    def hotkey(*keys: str) -> None:
        assert keys == ("ctrl", "v")
        text.append(clipboard[0])

    def run(command: list[str], input: bytes = b"", **_: Any) -> SimpleNamespace:
        assert command[:3] == ["xclip", "-selection", "clipboard"]
        if command[3:] != ["-o"]:
            clipboard[0] = input.decode()
        return SimpleNamespace(stdout=clipboard[0].encode())

    board = SimpleNamespace(
        write=lambda written, interval: text.append(written),
        press=lambda key: text.append({"enter": "\n", "tab": "\t"}[key]),
        hotkey=hotkey,
    )
    body = [one for one in ast.parse(code).body if not isinstance(one, ast.Import)]
    names = {"pyautogui": board, "time": SimpleNamespace(sleep=lambda _: None),
             "subprocess": SimpleNamespace(run=run, DEVNULL=None)}  # fmt: skip
    exec(compile(ast.Module(body, []), "line", "exec"), names)
    return "".join(text)


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        (act.Click(x=1.0, y=0.5), ["click(999, 250, button='left')"]),
        (act.LeftDouble(x=0.5, y=0.5), ["doubleClick(500, 250, interval=0.05)"]),
        (act.LeftDouble(), ["doubleClick(interval=0.05)"]),
        (act.TripleClick(), ["tripleClick(interval=0.05)"]),
        (act.RightSingle(x=0.5, y=0.5), ["click(500, 250, button='right')"]),
        (act.LongPress(x=0.5, y=0.5), ["moveTo(500, 250)", "mouseDown()", "mouseUp()"]),
        (act.Scroll(x=0.5, y=0.5, direction="down"), ["moveTo(500, 250)", "scroll(-5)"]),
        (act.Scroll(direction="up"), ["scroll(5)"]),
        (act.Scroll(x=0.5, y=0.5, direction="right"), ["moveTo(500, 250)", "hscroll(5)"]),
        (
            act.Drag(x=0.1, y=0.2, to_x=0.3, to_y=0.4),
            ["moveTo(100, 100)", "dragTo(300, 200, duration=1.0, button='left')"],
        ),
        (act.Hotkey(key="ctrl pageup"), ["hotkey('ctrl', 'pageup')"]),
        (act.Hotkey(key="super esc"), ["hotkey('win', 'esc')"]),
        (act.Hotkey(key="ctrl+pgdn"), ["hotkey('ctrl', 'pagedown')"]),
        (act.Hotkey(key="printscreen"), ["hotkey('printscreen')"]),
        (act.Hotkey(key="winleft num0"), ["hotkey('win', 'num0')"]),
        (act.Hotkey(key="ctrl F"), ["hotkey('ctrl', 'f')"]),
        (act.Hotkey(key="A"), ["hotkey('shift', 'a')"]),
        (act.Hotkey(key="<"), ["hotkey('shift', ',')"]),  # asweigart/pyautogui#580: press('<') types '>'
        (act.Press(key="A"), ["keyDown('A')"]),
        (act.Press(key="shift"), ["keyDown('shift')"]),
        (act.Release(key="shift"), ["keyUp('shift')"]),
        (act.Type(content="a 'b'\n"), ["write(\"a 'b'\", interval=0.01)", "press('enter')"]),
        (act.Type(content="é"), ["hotkey('ctrl', 'v')"]),
    ],
)
def test_each_action_is_the_call_that_osworld_s_agents_make(action: act.Action, wanted: list[str]) -> None:
    assert calls(code_of(action, *SIZE)) == wanted


@pytest.mark.parametrize("name", ["hyperdrive", "é", "ctrl hyperdrive"])
def test_a_key_that_pyautogui_lacks_is_refused_and_not_left_out(name: str) -> None:
    with pytest.raises(ActionFailure, match="no key"):
        code_of(act.Hotkey(key=name), *SIZE)


@given(st.text(max_size=60))
def test_whatever_is_typed_arrives_and_is_nothing_but_text(content: str) -> None:
    content = content.encode(errors="ignore").decode().replace("\x00", "")
    code = code_of(act.Type(content=content), *SIZE)
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    assert names <= ALLOWED
    assert typed(code) == content.replace("\r", "\n")
