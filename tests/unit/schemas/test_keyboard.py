"""Keys by all their names, and key expressions."""

import ast
import json
import random
from importlib.util import find_spec
from pathlib import Path

import pytest
from pydantic import ValidationError
from Xlib import XK

from schemas.action import Hotkey, Press, Release
from schemas.keyboard import (
    KEYS,
    PYAUTOGUI,
    chord,
    dom_names,
    is_key,
    key_named,
    names_of,
    pyautogui_name,
    single,
    together,
    together_in,
    usual,
)
from schemas.problem import named_problem
from tests.fixtures.sentences import Sentences

LAYOUT = json.loads((Path(__file__).parents[2] / "golden" / "keyboard.json").read_text())["codes"]
NUMLOCK_OFF = {f"Numpad{n}" for n in range(10)} | {"NumpadDecimal"}


def pyautoguis_names() -> list[str]:
    """`KEY_NAMES` of the installed pyautogui, which itself needs a display."""
    found = find_spec("pyautogui")
    assert found is not None and found.origin is not None
    for node in ast.parse(Path(found.origin).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "KEY_NAMES":
            return ast.literal_eval(node.value)
    raise AssertionError("no KEY_NAMES")


def test_every_name_of_pyautogui_is_a_key_and_ours_are_written_with_its_names() -> None:
    names = pyautoguis_names()
    assert len(names) == 194 and all(map(is_key, names))
    capitals = {key.name for key in KEYS.values() if key.name.isupper()}
    assert {key.pyautogui for key in KEYS.values()} - {*names, *capitals} == set()
    assert {name for name in names if len(name) > 1} <= PYAUTOGUI
    assert all(pyautogui_name(name) in {*names, "space"} for name in names)


def test_keys_have_the_codes_and_numbers_of_puppeteers_layout() -> None:
    """Its number pad is that of a keyboard without NumLock; its Help has the number 6, and Windows' VK_HELP is 47."""
    ours = {key.code: key for key in KEYS.values() if (key.code in LAYOUT and len(key.name) != 1) or key.shifted}
    compared = 0
    for code, (dom, number, shifted, shifted_number, location) in LAYOUT.items():
        if (key := ours.get(code)) is None or key.name == "help":
            continue
        compared += 1
        wanted = (shifted, shifted_number) if code in NUMLOCK_OFF else (dom, number)
        assert (key.key, key.number, key.location) == (*wanted, location), code
        assert key.shifted == ("" if code in NUMLOCK_OFF else shifted)
    assert compared > 100


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("enter", "Return"), ("pageup", "Page_Up"), ("apps", "Menu"), ("metaright", "Super_R"), ("f24", "F24"),
        ("num0", "KP_0"), ("add", "KP_Add"), ("numpadenter", "KP_Enter"), ("printscreen", "Print"), ("pause", "Pause"),
        ("capslock", "Caps_Lock"), ("altgraph", "ISO_Level3_Shift"), ("convert", "Henkan_Mode"),
        ("hanja", "Hangul_Hanja"),
        ("volumeup", "XF86_AudioRaiseVolume"), ("playpause", "XF86_AudioPlay"), ("browserback", "XF86_Back"),
        ("launchmail", "XF86_Mail"), ("sleep", "XF86_Sleep"),
    ],
)  # fmt: skip
def test_keys_have_the_keysyms_of_x(name: str, theirs: str) -> None:
    for group in ("xf86", "korean", "xkb"):
        XK.load_keysym_group(group)
    assert KEYS[name].keysym == XK.string_to_keysym(theirs) != 0


@pytest.mark.parametrize(
    ("expression", "keys"),
    [
        ("ctrl c", "ctrl c"), ("Ctrl+C", "ctrl c"), ("ctrl-shift-t", "ctrl shift t"),
        ("ctrl+page_down", "ctrl page_down"),
        ("page down", "pagedown"), ("ctrl Page Up", "ctrl pageup"), ("caps lock", "capslock"), ("ctrl +", "ctrl +"),
        ("ctrl++", "ctrl +"), ("ctrl--", "ctrl -"), ("ctrl -", "ctrl -"), ("+", "+"), ("-", "-"), (" ", "space"),
        ("\t", "tab"), ("\n", "enter"), ("A", "shift a"), ("ctrl F", "ctrl f"), ("shift A", "shift a"), ("F5", "f5"),
        ("Control+ArrowLeft", "control arrowleft"), ("é", "é"),
        ("ctrl + c", "ctrl c"), ("ctrl+ c", "ctrl c"), ("ctrl +c", "ctrl c"), ("ctrl +\tc", "ctrl c"),
        ("alt + F4", "alt f4"), ("cmd + space", "cmd space"), ("Ctrl + Shift + T", "ctrl shift t"),
        ("ctrl + +", "ctrl +"), ("ctrl+ +", "ctrl +"), ("ctrl + shift + +", "ctrl shift +"), ("ctrl + -", "ctrl -"),
        ("ctrl+page down", "ctrl pagedown"), ("alt + left arrow", "alt leftarrow"), ("ctrl+shift-t", "ctrl shift t"),
        ("space bar", "spacebar"), ("shift + space bar", "shift spacebar"), ("right shift", "rightshift"),
        ("left ctrl c", "leftctrl c"), ("Right Command + q", "rightcommand q"), ("shift right", "shift right"),
        ("shift-right", "shift right"), ("shift+right", "shift right"), ("right+shift", "arrowright shift"),
        ("ctrl l", "ctrl l"), ("ctrl-l", "ctrl l"), ("ctrl-left", "ctrl left"), ("right-shift", "right-shift"),
        ("Ctrl - C", "ctrl c"), ("ctrl - shift - t", "ctrl shift t"), ("cmd - space", "cmd space"),
        ("ctrl- c", "ctrl c"), ("ctrl -c", "ctrl c"), ("ctrl - -", "ctrl -"),
        ("ctrl - +", "ctrl +"), ("ctrl + -", "ctrl -"), ("- -", "- -"),
        ("left ctrl-c", "leftctrl c"), ("left ctrl++", "leftctrl +"), ("right alt - f4", "rightalt f4"),
        ("left-ctrl-c", "leftctrl c"), ("ctrl-page-down", "ctrl pagedown"),
        ("Ctrl+←", "ctrl ←"), ("shift - ⌫", "shift ⌫"), ("ctrl minus a", "ctrl minus a"),
    ],
)  # fmt: skip
def test_an_expression_is_the_keys_that_it_names(expression: str, keys: str) -> None:
    assert together(names_of(expression)) == keys


def test_what_is_pressed_together_is_read_as_the_same_keys_again() -> None:
    chance = random.Random(3)
    for _ in range(3_000):
        names = chance.choices([*KEYS, "right", "left", "bar", "plus", "minus", "-", "+"], k=chance.choice((1, 2, 3)))
        written = together(names)
        keys = [key_named(name.lower() if len(names) > 1 else name).name for name in names]
        keys = ["shift", keys[0].lower()] if keys[0].isupper() else keys
        assert [key.name for key in chord(written)] == keys, names
        assert together(names_of(written)) == written


def test_a_key_that_is_held_is_read_as_any_expression_of_one_key() -> None:
    assert [single(name) for name in ("right shift", "page down", "Space Bar", " ctrl ")] == [
        *("rightshift", "pagedown", "spacebar", "ctrl")
    ]
    for several in ("ctrl c", "ctrl+c", "ctrl + c", ""):
        with pytest.raises(ValueError, match="is not a key"):
            single(several)


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "a hotkey without a key"),
        ([""], "'' is not a key"),
        (["ctrl c"], "'ctrl c' is not a key"),
        (["hyperdrive"], "there is no key 'hyperdrive'"),
        (["ctrl", "down,down"], "there is no key 'down,down'"),
        (["ctrl", "alt", "shift", "t"], "4 keys at once, and a hotkey has at most 3"),
    ],
)
def test_what_is_no_hotkey_says_why(names: list[str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        together(names)


@pytest.mark.parametrize(
    ("expressions", "keys"),
    [
        (["ctrl", "a", "delete"], "ctrl a delete"), (["ctrl a delete"], "ctrl a delete"), (["ctrl+a"], "ctrl a"),
        (["ctrl", "shift+t"], "ctrl shift t"), (["ctrl+shift", "t"], "ctrl shift t"),
        (["right shift", "a"], "rightshift a"),
        (["page down"], "pagedown"), (["ctrl", "page down"], "ctrl pagedown"),
        (["ctrl+a", "delete"], None), (["ctrl+c", "ctrl+v"], None), (["delete", "ctrl+a"], None), (["a", "b c"], None),
    ],
)  # fmt: skip
def test_a_list_of_keys_is_one_chord_or_is_refused(expressions: list[str], keys: str | None) -> None:
    if keys:
        assert together_in(expressions) == keys
        return
    with pytest.raises(ValueError, match="several chords"):
        together_in(expressions)


def test_several_names_are_one_key(sentence: Sentences) -> None:
    for name, others in {
        "enter": ("Return", "\n", "\r", "⏎", "↵", "↩"),
        "arrowleft": ("←",),
        "arrowright": ("→",),
        "arrowdown": ("↓",),
        "backspace": ("⌫",),
        "delete": ("⌦",),
        "pagedown": ("pgdn", "Page_Down", "page-down", "Next", "PageDown"),
        "printscreen": ("prtsc", "prntscrn", "print", "PrintScreen"),
        "meta": ("win", "winleft", "cmd", "command", "Command", "⌘", "Super_L", "MetaLeft"),
        "num0": ("Numpad0", "KP_0"),
        "numpadenter": ("KP_Enter",),
        "alt": ("option", "⌥"),
        "arrowup": ("up", "ArrowUp", "↑"),
        "+": ("plus",),
        "a": ("KeyA", "keya"),
        "1": ("Digit1",),
        "[": ("BracketLeft",),
        "'": ("Quote", "apostrophe"),
        "space": ("spacebar", "Spacebar"),
        "ctrl": (
            "Control",
            "ctrlleft",
            "ControlOrMeta",
            "⌃",
            "lctrl",
            "leftctrl",
            "Control_L",
            "ControlLeft",
            "left-control",
        ),
        "ctrlright": ("rctrl", "RightControl", "Control_R", "ControlRight"),
        "shiftright": ("rshift", "rightshift", "Shift_R"),
        "altright": ("ralt", "right_alt", "optionright", "AltRight"),
        "metaright": ("rwin", "winright", "Super_R", "rightcommand", "MetaRight"),
    }.items():
        assert [key_named(other).name for other in others] == [name] * len(others)
    with sentence.raises(ValueError, "'hyperdrive'"):
        chord("ctrl hyperdrive")


def test_a_key_is_written_with_pyautoguis_name_unless_it_has_one_already() -> None:
    written = {
        "arrowleft": "left",
        "meta": "win",
        "esc": "esc",
        "return": "return",
        "page_up": "pageup",
        "x": "x",
        "é": "é",
    }
    assert {name: pyautogui_name(name) for name in written} == written
    assert usual("Return ctrl+ArrowLeft fire") == "enter ctrl arrowleft fire"
    assert single(" Shift ") == "shift" and single("A") == "A"


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("ctrl+c", "ctrl c"),
        ("Ctrl + Shift + T", "ctrl shift t"),
        ("ctrl-shift-t", "ctrl shift t"),
        ("Enter", "enter"),
        ("A", "shift a"),
        ("ctrl F", "ctrl f"),
        ("ctrl +", "ctrl +"),
        (" ctrl c ", "ctrl c"),
        ("no+key", "no+key"),
    ],
)
def test_a_hotkey_is_stored_in_one_form_however_it_is_written(written: str, stored: str) -> None:
    assert Hotkey(key=written).key == stored
    assert Hotkey(key=stored).key == stored


@pytest.mark.parametrize("key", ["", "\u3000", "a b c d", "ctrl + alt + shift + t"])
def test_a_hotkey_of_no_key_or_too_many_is_refused_with_an_example(key: str, sentence: Sentences) -> None:
    with pytest.raises(ValidationError) as refused:
        Hotkey(key=key)
    sentence(named_problem(refused.value), "key: ", "`ctrl c`")


@pytest.mark.parametrize("kind", [Press, Release])
def test_a_held_key_is_stored_in_one_form_too(kind: type[Press | Release]) -> None:
    assert [kind(key=key).key for key in ("Ctrl", "page down", "A", "no key")] == ["ctrl", "pagedown", "A", "no key"]


def test_the_doms_names_of_keys_are_those_that_browsers_tools_take() -> None:
    assert dom_names("ctrl shift s") == ["Control", "Shift", "s"]
    assert dom_names("space") == ["Space"] and dom_names("down") == ["ArrowDown"]
    assert dom_names("fnord") == ["fnord"]
