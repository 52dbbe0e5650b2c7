"""Code of a model or a record, and the actions that are read in it."""

import ast
import random
import time
from collections.abc import Sequence

import pytest

from models.families.code.calls import FAMILY_SIGNATURES
from models.families.code.program import Played, play
from models.families.opencua import read_code
from models.families.reading import read_text
from models.families.template import template
from schemas.action import Action, action_of
from tests.fixtures.planted.replies import NOISE, mutated
from tests.tiers import NIGHTLY

SIDES = (1000.0, 1000.0)
GARBLED = 100_000 if NIGHTLY else 1_500
AT = {"x": 0.5, "y": 0.3}


def read(code: str) -> Played:
    return play(code, lambda x, y: (x / SIDES[0], y / SIDES[1]))


def actions(*fields: dict[str, object]) -> tuple[Action, ...]:
    return tuple(map(action_of, fields))


def click(kind: str = "click", x: float = 0.5, y: float = 0.3) -> dict[str, object]:
    return {"type": kind, "x": x, "y": y}


def keys(*names: str) -> list[dict[str, object]]:
    return [{"type": "hotkey", "key": name} for name in names]


def text(content: str) -> dict[str, object]:
    return {"type": "type", "content": content}


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("pyautogui.click(500, 300, button=pyautogui.RIGHT)", [click("right_single")]),
        ("pyautogui.click(x=500, y=300, button='secondary')", [click("right_single")]),
        ("pyautogui.click(500, 300, 2, 0.1, 'left')", [click("left_double")]),
        ("pyautogui.click(500, 300, clicks=2, interval=1)", [click(), click()]),
        ("pyautogui.click((500, 300))", [click()]),
        ("pyautogui.click(400, 200, button=3)", [click("right_single", 0.4, 0.2)]),
        ("pyautogui.press(['down', 'down', 'enter'])", keys("down", "down", "enter")),
        ("pyautogui.press('tab', presses=3)", keys("tab", "tab", "tab")),
        ("pyautogui.press('tab', 2, 0.1)", keys("tab", "tab")),
        ("pyautogui.press('A')", keys("shift a")),
        ("pyautogui.hotkey('ctrl', 'shift', 't', interval=0.1)", keys("ctrl shift t")),
        ("pyautogui.hotkey(['ctrl', 'F'])", keys("ctrl f")),
        ("pyautogui.scroll(5, 500, 300)", [{"type": "scroll", "direction": "up", **AT}]),
        ("pyautogui.scroll(-5, x=500, y=300)", [{"type": "scroll", "direction": "down", **AT}]),
        ("pyautogui.hscroll(clicks=-2)", [{"type": "scroll", "direction": "left"}]),
        (
            "pyautogui.moveTo(200, 200)\npyautogui.drag(100, 0)",
            [{"type": "drag", "x": 0.2, "y": 0.2, "to_x": 0.2 + 0.1, "to_y": 0.2}],
        ),
        ("pyautogui.moveTo(500, 300); pyautogui.click()", [click()]),
        ("pyautogui.moveTo(500, 300, duration=1, tween=pyautogui.easeInQuad)\npyautogui.click()", [click()]),
        ("pyautogui.typewrite(['a', 'b', 'enter'])", [text("ab"), *keys("enter")]),
        ("pyautogui.write('it\\'s', interval=0.05)", [text("it's")]),
        ("pyautogui.write('a ' 'b')", [text("a b")]),
        ("pyautogui.click(x=500, y=300)  # the OK button", [click()]),
        ("pyautogui.click(500, 300);", [click()]),
        ("## Code: pyautogui.click(500, 300)", [click()]),
        ("import pyautogui as gui\nimport time\ngui.PAUSE = 1\ngui.click(500, 300)\ntime.sleep(2)",
         [click(), {"type": "wait", "seconds": 2}]),
        ("pyautogui.mouseDown(500, 300)\npyautogui.mouseUp()", [click()]),
        ("pyautogui.mouseDown(500, 300)\ntime.sleep(2)\npyautogui.mouseUp()", [{**click("long_press"), "seconds": 2}]),
        ("computer.triple_click(x=500, y=300)", [click("triple_click")]),
        ("pyautogui.click(500, 300, clicks=3)", [click("triple_click")]),
        ("pyautogui.middleClick(500, 300)", [click("middle_single")]),
        ("pyautogui.click(x=500, y=300, button='middle')", [click("middle_single")]),
        ("pyautogui.mouseDown(500, 300, 'middle'); pyautogui.mouseUp(button='middle')", [click("middle_single")]),
        ("pyautogui.moveTo(500, 300)", [click("move")]),
        ("pyautogui.moveTo(500, 300)\npyautogui.press('a')", [click("move"), *keys("a")]),
        ("pyautogui.moveTo(500, 300)\ntime.sleep(1)", [click("move"), {"type": "wait", "seconds": 1}]),
        ("pyautogui.moveTo(500, 300)\ntime.sleep(1)\npyautogui.click()", [click()]),
        ("pyautogui.mouseDown()", [{"type": "mouse_down"}]),
        ("pyautogui.mouseDown(500, 300)", [click("mouse_down")]),
        ("pyautogui.mouseUp(500, 300)", [click("mouse_up")]),
        ("pyautogui.moveTo(500, 300); pyautogui.mouseUp()", [click("mouse_up")]),
        ("pyautogui.mouseDown(500, 300)\npyautogui.press('a')\npyautogui.mouseUp()",
         [click("mouse_down"), *keys("a"), {"type": "mouse_up"}]),
        ("pyautogui.mouseDown(500, 300, button='right'); pyautogui.moveTo(200, 100); pyautogui.mouseUp(button='right')",
         [{**click("mouse_down"), "button": "right"}, click("move", 0.2, 0.1),
          {"type": "mouse_up", "button": "right"}]),
        ("pyautogui.mouseDown(500, 300); pyautogui.moveTo(200, 100); pyautogui.moveTo(300, 100); pyautogui.mouseUp()",
         [click("mouse_down"), click("move", 0.2, 0.1), click("move", 0.3, 0.1), {"type": "mouse_up"}]),
        (
            "pyautogui.mouseDown(500, 300)\npyautogui.moveTo(200, 100)\npyautogui.mouseUp()",
            [{"type": "drag", **AT, "to_x": 0.2, "to_y": 0.1}],
        ),
        (
            "with pyautogui.hold('shift'):\n    pyautogui.click(500, 300)",
            [{"type": "press", "key": "shift"}, click(), {"type": "release", "key": "shift"}],
        ),
        ("pyautogui.click()", [{"type": "mouse_down"}, {"type": "mouse_up"}]),
        ("pyautogui.rightClick()", [{"type": one, "button": "right"} for one in ("mouse_down", "mouse_up")]),
        ("pyautogui.doubleClick()", [{"type": "left_double"}]),
        ("pyautogui.click(clicks=3)", [{"type": "triple_click"}]),
        ("pyautogui.click(500, 300)\npyautogui.doubleClick()", [click(), click("left_double")]),
        ("computer.terminate(status='failure')", [{"type": "call_user"}]),
        ("computer.terminate(status='failure', info='no shop')", [{"type": "call_user", "content": "no shop"}]),
        ("DONE", [{"type": "finished"}]),
        (r"pyautogui.write(message='a\x00b')", [{"type": "type", "content": r"a\x00b"}]),
        (r"pyautogui.write(['a', '\x00', 'b'])", [{"type": "type", "content": r"a\x00b"}]),
        ("swipe(from_coord=[500, 300], to_coord=[500, 100])", [{"type": "drag", **AT, "to_x": 0.5, "to_y": 0.1}]),
        ("open_app('Maps')", [{"type": "open_app", "app_name": "Maps"}]),
    ],
)  # fmt: skip
def test_a_call_is_read_with_every_argument_that_it_documents(code: str, wanted: Sequence[dict[str, object]]) -> None:
    played = read(code)
    assert (played.actions, played.problem) == (actions(*wanted), "")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("pyautogui.doubleClick(x=500, y=300, button='middle')", "not supported: 2 clicks of the middle button"),
        ("pyautogui.click(x=500, y=300, clicks=4)", "not supported: 4 clicks of the left button"),
        ("pyautogui.click(500, 300, button=5)", "there is no button 5"),
        ("pyautogui.click('ok.png')", "'ok.png' is no x of click"),
        ("pyautogui.write(message=5)", "5 is no message of write"),
        ("pyautogui.click(True, 1)", "True is no x of click"),
        ("long_press()", "long_press at no known place"),
        ("pyautogui.doubleClick(button='right')", "not supported: 2 clicks of the right button"),
        ("pyautogui.click(500)", "y at no known place"),
        ("pyautogui.click(5, 5, where='top')", "click has no argument 'where'"),
        ("pyautogui.click(5, x=5, y=5)", "click has the argument 'x' twice"),
        ("click(x=500, y=300, x=100)", "click has the argument 'x' twice"),
        ("pyautogui.write(message='a', interval=0, message='b')", "write has the argument 'message' twice"),
        ("pyautogui.click(5000, 5)", "x: should be less than or equal to 1"),
        ("pyautogui.write(message=name)", "name is no literal"),
        ("pyautogui.write(f'{name}')", "is no literal"),
        ("pyautogui.write(message=open('a').read())", "is no literal"),
        ("pyautogui.click(*point)", "no literal"),
        ("pyautogui.press('a', presses=0)", "a key pressed 0 times"),
        ("pyautogui.press('a', presses=10**9)", "is no literal"),
        ("pyautogui.press('a', presses=1000000)", "more than 100 actions"),
        ("pyautogui.hotkey('ctrl', 'alt', 'shift', 't')", "4 keys at once"),
        ("pyautogui.hotkey()", "hotkey without a key"),
        ("pyautogui.scroll(0)", "a scroll by 0"),
        ("pyautogui.moveTo(5000, 300)", "move.x: should be less than or equal to 1"),
        ("pyautogui.moveTo(500, 300)\npyautogui.move(100, None)\npyautogui.click()", "move with one offset"),
        ("pyautogui.moveTo(500, 300)\npyautogui.dragTo(5, 5, button='right')", "a drag with the right button"),
        ("pyautogui.alert('x')", "not supported: pyautogui.alert"),
        ("os.system('rm x')", "not supported: os.system"),
        ("for _ in range(3): pyautogui.press('a')", "for _ in range(3): is no call"),
        ("computer.terminate(status='maybe')", "terminate: an end with the status 'maybe'"),
        ("", "no call in ''"),
        ("(" * 50_000, "nested"),
    ],
)
def test_what_our_actions_cannot_say_is_refused_by_name(code: str, problem: str) -> None:
    played = read(code)
    assert played.actions == () and problem in played.problem, played.problem


def test_the_calls_before_one_that_is_none_are_kept_with_why_it_is_none() -> None:
    four = "pyautogui.click(5, 5, clicks=4)"
    played = read(f"pyautogui.click(500, 300)\n{four}\npyautogui.press('a')")
    assert played.actions == actions(click()) and f"left button in {four!r}" in played.problem


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("pyautogui.moveTo(500, 300)\npyautogui.press('a')\npyautogui.press('b')", 2),
        ("pyautogui.mouseDown(500, 300)\npyautogui.press('a')\npyautogui.mouseUp()\npyautogui.press('b')", 3),
        ("pyautogui.mouseDown(500, 300)\npyautogui.moveTo(5, 5)", 2),
        ("pyautogui.press('b')\npyautogui.moveTo(500, 300)", 1),
    ],
)
def test_a_first_call_goes_on_until_nothing_is_held_and_the_pointer_has_acted(code: str, parts: int) -> None:
    assert read(code).parts == parts


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("click(x=500, y=300", [click()]),
        ("write(message='it's fine')", [text("it's fine")]),
        ('write(message="say "yes"")', [text('say "yes"')]),
        ("write(message='one\ntwo')", [text("one\ntwo")]),
        ("Then:\npyautogui.click(500, 300) and wait\npyautogui.press('enter')", [click(), *keys("enter")]),
        ("I press.\npyautogui.press('a'); pyautogui.press('b')", keys("a", "b")),
        ("It is done.\nDONE", [{"type": "finished"}]),
    ],
)
def test_calls_are_read_in_a_text_that_is_not_python(code: str, wanted: Sequence[dict[str, object]]) -> None:
    assert read(code).actions == actions(*wanted)


BROKEN = "pyautogui.click(500, 300"


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("# pyautogui.click(1, 1)", []),
        ("#pyautogui.click(1, 1)\n    # pyautogui.press('a')", []),
        (f"# pyautogui.click(1, 1)\n{BROKEN}", [click()]),
        (f"# first; pyautogui.click(1, 1)\n{BROKEN}", [click()]),
        (f"{BROKEN})  # then; pyautogui.click(1, 1)\nit works", [click()]),
        (f'"""\npyautogui.click(1, 1)\n"""\n{BROKEN}', [click()]),
        (f"'''Press.\npyautogui.press('a')\n'''\n{BROKEN}", [click()]),
        (f"note = '''\npyautogui.press('a')\n'''\n{BROKEN}", [click()]),
        (f"print('a; pyautogui.click(1, 1)')\n{BROKEN}", [click()]),
        (f"if seen: pyautogui.press('a'); pyautogui.press('b')\n{BROKEN}", []),
        (f"if False:\n    pyautogui.click(1, 1)\n{BROKEN}", []),
        (f"if False:\n\n    # never\n    pyautogui.click(1, 1)\n{BROKEN}", []),
        (f"def unused(\n    x):\n    pyautogui.click(1, 1)\n{BROKEN}", []),
        (f"async def unused():\n\tpyautogui.click(1, 1)\n{BROKEN}", []),
        (f"for _ in range(3):\n  pyautogui.click(1, 1)\n{BROKEN}", []),
        (f"while True:\n    pyautogui.click(1, 1)\n{BROKEN}", []),
        (f"with pyautogui.hold('ctrl'):\n    {BROKEN}", []),
        (f"{BROKEN})\nif False:\n    pyautogui.press('a", [click()]),
        ("if False:\n    pyautogui.click(1, 1)", []),
        ("def unused():\n    pyautogui.click(1, 1)", []),
        (f"## Code: {BROKEN})", [click()]),
        (f"## Code: {BROKEN}", [click()]),
        (f"import pyautogui; {BROKEN}", [click()]),
    ],
)
def test_comments_quotes_and_blocks_are_never_performed(code: str, wanted: Sequence[dict[str, object]]) -> None:
    played = read(code)
    assert played.actions == actions(*wanted)
    assert wanted or played.problem


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("pyautogui.press(['down', 'down', 'enter'])\npyautogui.press('a')", 3),
        ("pyautogui.write('a'); pyautogui.press('enter')", 1),
        ("pyautogui.moveTo(500, 300)\npyautogui.click()\npyautogui.press('a', presses=2)", 1),
        ("with pyautogui.hold('shift'):\n    pyautogui.click(500, 300)\npyautogui.press('a')", 3),
        ("pyautogui.alert('x')", 1),
        ("pyautogui.keyDown('ctrl'); pyautogui.click(500, 300); pyautogui.keyUp('ctrl'); pyautogui.press('a')", 3),
        ("keyDown('shift')\nclick(1, 1)\nclick(500, 300)\nkeyUp('shiftleft')\npress('a')", 4),
        ("keyDown('ctrl')\nkeyDown('shift')\npress('t')\nkeyUp('ctrl')\nkeyUp('shift')\npress('a')", 5),
        ("keyDown('ctrl')\nwith hold('shift'):\n    click(1, 1)\nkeyUp('ctrl')\npress('a')", 5),
        ("keyDown('ctrl')\nclick(500, 300)", 1),
        ("click(500, 300)\nkeyDown('ctrl')\nclick(500, 300)\nkeyUp('ctrl')", 1),
    ],
)
def test_a_statement_of_several_actions_counts_them(code: str, parts: int) -> None:
    assert read(code).parts == parts


@pytest.mark.parametrize(
    "block",
    [
        "with pyautogui.hold('ctrl'): pyautogui.click(9, 9)",
        "for i in range(3): press('tab')",
        "if False: pyautogui.click(9, 9",
        "if True: pass\nelse:   computer.wait()",
        "if a[1:2]: click(9, 9)",
        "while True: DONE",
        "try: sleep(1)\nfinally: click(9, 9)",
    ],
)
def test_a_block_on_one_line_is_refused_where_a_text_is_not_python(block: str) -> None:
    found = read(f"{block}\npyautogui.click(500, 300")
    assert not found.actions and "is no call" in found.problem
    assert read(f"pyautogui.click(500, 300)\n{block}\npyautogui.click(9, 9").actions == actions(click())


def test_a_line_of_words_that_begins_as_a_block_does_is_no_block() -> None:
    assert read("For the button: it's here.\nif so, then:\npyautogui.click(500, 300").actions == actions(click())


@pytest.mark.parametrize("number", ["9" * 400, "9" * 4200, "0x" + "f" * 4000, "1e999"])
@pytest.mark.parametrize(
    "call",
    [
        "click({}, 1)",
        "click((1, 1, {}, 1))",
        "moveTo(1, 1)\ndrag({}, 1)",
        "press('a', presses={})",
        "wait({})",
        "scroll({})",
    ],
)
def test_a_number_that_no_screen_holds_is_a_problem_and_no_exception(call: str, number: str) -> None:
    found = read(call.format(number))
    assert found.problem and not found.actions


HEAD = "## Thought:\nI could run\npyautogui.click(x=1, y=1)\nbut no.\n\n## Action:\nClick OK.\n\n"


@pytest.mark.parametrize(
    "reply",
    [
        f"{HEAD}## Code:\n```python\npyautogui.click(x=500, y=300)\n```",
        f"{HEAD}## Code:\npyautogui.click(x=500, y=300)  # OK",
        f"{HEAD}## Code: pyautogui.click(x=500, y=300)",
        f"{HEAD}# Code\n```\nimport pyautogui\n\npyautogui.click(x=500, y=300);\n```\n",
        f"{HEAD}```python\n# Action: the OK button\npyautogui.click(x=500, y=300)\n```",
        f"{HEAD}pyautogui.click(x=500, y=300)",
    ],
)
def test_the_code_of_an_opencua_reply_is_what_stands_under_its_last_heading(reply: str) -> None:
    found = read_code(reply, SIDES)
    assert found.actions == actions(click()) and found.error is None
    assert found.thought.startswith("I could run") and "pyautogui.click(x=500" in found.text


@pytest.mark.parametrize(
    "code",
    [
        "if False:\n    pyautogui.click(1, 1)",
        '"""\npyautogui.click(1, 1)\n"""',
        "def unused():\n    pyautogui.click(1, 1)",
    ],
)
@pytest.mark.parametrize("fence", ["```python\n{}\n```", "{}"])
def test_a_block_under_opencuas_heading_is_not_performed(code: str, fence: str) -> None:
    assert read_code(f"{HEAD}## Code:\n{fence.format(code)}", SIDES).actions == ()


def test_every_function_of_scalecuas_and_opencuas_prompts_is_read_with_its_arguments() -> None:
    for name in ("computer", "mobile", "grounding"):
        for node in ast.parse(template(f"scalecua-{name}-actions.txt")).body:
            assert isinstance(node, ast.FunctionDef)
            own = [one for one in FAMILY_SIGNATURES[node.name].split() if not one.startswith("*")]
            assert own[: len(node.args.args)] == [one.arg for one in node.args.args], node.name
    assert {"triple_click", "terminate"} <= FAMILY_SIGNATURES.keys()


@pytest.mark.parametrize("written", ["ctrl c", "ctrl+c", "Ctrl+C", "ctrl-c", "CTRL C"])
def test_keys_of_a_ui_tars_reply_are_read_as_any_key_expression(written: str) -> None:
    assert read_text(f"Action: hotkey(key='{written}')", SIDES).actions == actions(*keys("ctrl c"))


def test_garbled_programs_are_actions_or_a_problem_in_little_time() -> None:
    chance = random.Random(7)
    begun = time.monotonic()
    for _ in range(GARBLED):
        code = mutated(chance, PROGRAMS)
        assert read(code).actions or read(code).problem
        found = read_code(code, SIDES)
        assert bool(found.actions) == (found.error is None)
    for piece in (*NOISE, " ", "\\'", "click(", "write('", "#", "\t "):
        assert read(piece * 20_000).actions == ()
    assert time.monotonic() - begun < GARBLED * 0.01 + 60


PROGRAMS = (
    "## Action:\nClick.\n\n## Code:\n```python\npyautogui.click(x=1, y=2, button='left')  # OK\n```",
    "import pyautogui\nwith pyautogui.hold(['ctrl', 'shift']):\n    pyautogui.press('t', presses=2)",
    "pyautogui.moveTo(1, 2); pyautogui.dragTo(3, 4, duration=0.5, button=pyautogui.LEFT)\nDONE",
    "write(message='it's\nfine')\nhotkey('ctrl', 's')\nswipe(from_coord=[1, 2], direction='up')",
    "pyautogui.typewrite(['a', 'enter', \"b\"], 0.1)\npyautogui.scroll(-3, x=5, y=6)\ntime.sleep(1)",
)
