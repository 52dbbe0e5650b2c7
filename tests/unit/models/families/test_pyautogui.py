"""Programs as the installed pyautogui (0.9.54) performs them, next to the actions that are read in them."""

import ast
import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from models.families.code.calls import SIGNATURES
from models.families.code.program import play
from schemas import action as act
from schemas.action import Action
from schemas.keyboard import chord, key_named
from tests.pyautogui_stub import SIZE, START, recorded
from tests.tiers import NIGHTLY

PROGRAMS = 100_000 if NIGHTLY else 1_500
BUTTONS = ["'left'", "'right'", "'middle'", "'primary'", "'SECONDARY'", "pyautogui.RIGHT", "pyautogui.LEFT"]
KEYS = ("'enter'", "'a'", "'Tab'", "'pgdn'", "' '", "'\\n'", "'shift'", "'?'", "'B'", "'f5'", "'num0'", "'left'")
HELD = ("'ctrl'", "'shift'", "'Alt'", "'win'")
TEXTS = ("'lamp'", "'Two words'", "'it\\'s'", "''", "'a\\nb'", "['a', 'b', 'enter']", "['A', 'tab', '!']")
MODIFIERS = ("shift", "ctrl", "alt", "meta")


def signatures() -> dict[str, str]:
    """The arguments of pyautogui's functions, in order."""
    found = find_spec("pyautogui")
    assert found is not None and found.origin is not None
    listed: dict[str, str] = {}
    for node in ast.parse(Path(found.origin).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            listed[node.name] = " ".join(one.arg for one in node.args.args)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in listed:
            listed[ast.unparse(node.targets[0])] = listed[node.value.id]
    return listed


def test_every_function_that_acts_is_read_with_the_arguments_that_it_has() -> None:
    theirs = signatures()
    for name, arguments in SIGNATURES.items():
        assert arguments.startswith("*") or theirs[name] == arguments, name
    acting = {name for name, arguments in theirs.items() if "_pause" in arguments and not name.startswith("_")}
    assert acting <= SIGNATURES.keys(), acting - SIGNATURES.keys()


def test_what_pyautogui_performs_is_what_is_read_or_it_is_refused() -> None:
    chance, read, refused = random.Random(35), 0, 0
    with recorded() as (module, recorder):
        for _ in range(PROGRAMS):
            code = program(chance)
            played = play(code, lambda x, y: (x / SIZE[0], y / SIZE[1]), (START[0] / SIZE[0], START[1] / SIZE[1]))
            if played.problem:
                refused += 1
                continue
            recorder.at, recorder.events = START, []
            exec(code, {"pyautogui": module, "time": module.time})
            assert strokes(recorder.events) == performed(played.actions), code
            at = played.pointer
            assert at is not None and (round(at[0] * SIZE[0]), round(at[1] * SIZE[1])) == recorder.at, code
            read += 1
    assert read > refused / 2, f"{refused} of {PROGRAMS} programs are refused"


def program(chance: random.Random) -> str:
    """One to four calls, written in some way."""
    calls = [_call(chance) for _ in range(chance.choice((1, 1, 2, 2, 3, 4)))]
    if chance.random() < 0.1:
        body = "\n".join(f"    {call}" for call in calls)
        return f"with pyautogui.hold({chance.choice((chance.choice(HELD), f'[{chance.choice(HELD)}]'))}):\n{body}"
    return chance.choice(("\n", "; ", "  # then\n")).join(calls) + chance.choice(("", ";", "  # the OK button", "\n"))


def _call(chance: random.Random) -> str:
    x, y = chance.randrange(SIZE[0]), chance.randrange(SIZE[1])
    point = chance.choice(((f"x={x}", f"y={y}"), (f"{x}", f"{y}"), (f"({x}, {y})",), (f"[{x}, {y}]",), (f"x={x}",), ()))
    offset = (str(chance.randrange(-90, 90)), str(chance.randrange(-90, 90)))
    named = [f"button={chance.choice(BUTTONS)}"] if chance.random() < 0.4 else []
    slow = chance.choice(([], ["duration=0.05"], ["tween=pyautogui.easeInQuad"], ["_pause=False"]))
    kinds: list[tuple[str, list[str]]] = [
        ("click", [*point, *([f"clicks={chance.randrange(4)}"] if chance.random() < 0.3 else []), *named, *slow]),
        (chance.choice(("doubleClick", "tripleClick", "mouseDown", "mouseUp")), [*point, *named]),
        (chance.choice(("rightClick", "leftClick", "middleClick")), [*point, *slow]),
        (chance.choice(("moveTo", "moveTo", "dragTo")), [*point, *slow]),
        (chance.choice(("drag", "dragRel")), [*offset, *named, *slow]),
        (chance.choice(("move", "moveRel")), [*offset, *slow]),
        ("click", [f"{x}", f"{y}", str(chance.randrange(1, 4)), "0.0", chance.choice(BUTTONS)]),
        (chance.choice(("scroll", "hscroll")), [str(chance.randrange(-3, 4)), *chance.choice(([], [f"{x}", f"{y}"]))]),
        ("vscroll", [f"clicks={chance.randrange(-3, 4)}", *chance.choice(([], [f"x={x}", f"y={y}"]))]),
        ("press", [chance.choice(KEYS), *chance.choice(([], ["presses=3"], ["2"], ["interval=0.1"]))]),
        ("press", [f"[{chance.choice(KEYS)}, {chance.choice(KEYS)}]"]),
        (chance.choice(("keyDown", "keyUp")), [chance.choice(HELD)]),
        (chance.choice(("hotkey", "shortcut")), [chance.choice(HELD), chance.choice(("'a'", "'Tab'", "'del'", "'-'"))]),
        ("hotkey", [f"[{chance.choice(HELD)}, 'c']", *chance.choice(([], ["interval=0.1"]))]),
        (chance.choice(("write", "typewrite")), [chance.choice(("", "message=")) + chance.choice(TEXTS)]),
        ("sleep", ["1"]),
    ]  # fmt: skip
    name, arguments = chance.choice(kinds)
    return f"pyautogui.{name}({', '.join(arguments)})"


def strokes(events: list[tuple[Any, ...]]) -> list[Any]:
    """Buttons and the wheel with their places, and keys with the modifiers that are held, of a recording."""
    found: list[Any] = []
    held: set[str] = set()
    for kind, *given in events:
        if kind in ("_mouseDown", "_mouseUp", "wheel"):
            found.append((kind, *given))
        elif kind in ("down", "up"):
            shift = given[0].isupper() or given[0] in '~!@#$%^&*()_+{}|:"<>?'
            _stroke(found, held, given[0], kind == "down", shift)
    return [*found, sorted(held)]


def _stroke(found: list[Any], held: set[str], name: str, down: bool, shift: bool) -> None:
    key = key_named(name)
    if key.name in MODIFIERS:
        (held.add if down else held.discard)(key.name)
        found += [(key.name, down)]
    elif down:
        stroke = (key.name.lower(), sorted(held | ({"shift"} if shift else set())))
        found += [("shift", True), stroke, ("shift", False)] if shift else [stroke]
        held -= {"shift"} if shift else set()  # pyautogui lets go of shift, also where it was held before


def performed(actions: tuple[Action, ...]) -> list[Any]:
    """The same of actions, as environments perform them."""
    found: list[Any] = []
    held: set[str] = set()
    pointer = START

    def at(x: float, y: float) -> tuple[int, int]:
        return round(x * SIZE[0]), round(y * SIZE[1])

    for one in actions:
        point = act.point_of(one)
        pointer = at(one.to_x, one.to_y) if isinstance(one, act.Drag) else at(*point) if point else pointer
        if isinstance(one, act.Click | act.LeftDouble | act.RightSingle | act.TripleClick | act.MiddleSingle):
            button = {"right_single": "right", "middle_single": "middle"}.get(one.type, "left")
            times = {"left_double": 2, "triple_click": 3}.get(one.type, 1)
            found += [(kind, *at(one.x, one.y), button) for kind in ("_mouseDown", "_mouseUp")] * times
        elif isinstance(one, act.MouseDown | act.MouseUp):
            found.append((f"_{'mouseDown' if isinstance(one, act.MouseDown) else 'mouseUp'}", *pointer, one.button))
        elif isinstance(one, act.LongPress):
            found += [(kind, *at(one.x, one.y), "left") for kind in ("_mouseDown", "_mouseUp")]
        elif isinstance(one, act.Drag):
            found += [("_mouseDown", *at(one.x, one.y), "left"), ("_mouseUp", *at(one.to_x, one.to_y), "left")]
        elif isinstance(one, act.Scroll):
            found.append(("wheel", *at(one.x, one.y), one.direction))
        elif isinstance(one, act.Type):
            for character in one.content:
                _stroke(found, held, character, True, character.isupper() or character in '~!@#$%^&*()_+{}|:"<>?')
        elif isinstance(one, act.Press | act.Release):
            _stroke(found, held, one.key, isinstance(one, act.Press), False)
        elif isinstance(one, act.Hotkey):
            _pressed(found, held, one.key)
        else:
            assert isinstance(one, act.Wait | act.Move), one
    return [*found, sorted(held)]


def _pressed(found: list[Any], held: set[str], expression: str) -> None:
    keys = chord(expression)
    for down in (True, False):
        for key in keys if down else reversed(keys):
            _stroke(found, held, key.name, down, key.name in '~!@#$%^&*()_+{}|:"<>?')
