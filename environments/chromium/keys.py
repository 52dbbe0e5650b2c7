"""Keyboard keys by the lower-case names that policies use, as Chromium takes them."""

from dataclasses import dataclass
from typing import Any

from environments.keys import usual
from schemas.failure import ActionFailure

MODIFIERS = {"alt": 1, "ctrl": 2, "meta": 4, "shift": 8}


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its DOM `key` and `code`, its Windows code, and the text it writes."""

    key: str
    code: str
    number: int
    text: str = ""

    def event(self, kind: str, modifiers: int) -> dict[str, Any]:
        """The parameters of `Input.dispatchKeyEvent` for `keyDown` or `keyUp`."""
        fields: dict[str, Any] = {"type": kind, "key": self.key, "code": self.code, "modifiers": modifiers}
        fields["windowsVirtualKeyCode"] = self.number
        if kind == "keyDown" and self.text and not modifiers & ~MODIFIERS["shift"]:
            fields["text"] = self.text
        elif kind == "keyDown":
            fields["type"] = "rawKeyDown"
        return fields


def key_named(name: str) -> Key:
    """The key a policy calls `name`; raises ActionFailure for a name no keyboard has."""
    if len(name) == 1:
        return key_writing(name)
    known = _NAMED.get(usual(name))
    if known is None:
        raise ActionFailure(f"there is no key {name!r}")
    return known


def key_writing(character: str) -> Key:
    """The key that writes this character."""
    if character in "\n\r":
        return _NAMED["enter"]
    if character == "\t":
        return _NAMED["tab"]
    upper = character.upper()
    if character.isascii() and character.isalpha():
        return Key(character, f"Key{upper}", ord(upper), character)
    if character.isascii() and character.isdigit():
        return Key(character, f"Digit{character}", ord(character), character)
    return Key(character, _CODES.get(character, ""), _NUMBERS.get(character, 0), character)


def modifier_of(name: str) -> int:
    """The modifier bit of a key, 0 for keys that modify nothing."""
    return MODIFIERS.get(usual(name), 0)


_CODES = {" ": "Space", "-": "Minus", "=": "Equal", ",": "Comma", ".": "Period", "/": "Slash", ";": "Semicolon"}
_NUMBERS = {" ": 32, "-": 189, "=": 187, ",": 188, ".": 190, "/": 191, ";": 186}
_NAMED = {
    "enter": Key("Enter", "Enter", 13, "\r"),
    "tab": Key("Tab", "Tab", 9),
    "space": Key(" ", "Space", 32, " "),
    "escape": Key("Escape", "Escape", 27),
    "backspace": Key("Backspace", "Backspace", 8),
    "delete": Key("Delete", "Delete", 46),
    "insert": Key("Insert", "Insert", 45),
    "home": Key("Home", "Home", 36),
    "end": Key("End", "End", 35),
    "pageup": Key("PageUp", "PageUp", 33),
    "pagedown": Key("PageDown", "PageDown", 34),
    "arrowleft": Key("ArrowLeft", "ArrowLeft", 37),
    "arrowup": Key("ArrowUp", "ArrowUp", 38),
    "arrowright": Key("ArrowRight", "ArrowRight", 39),
    "arrowdown": Key("ArrowDown", "ArrowDown", 40),
    "shift": Key("Shift", "ShiftLeft", 16),
    "ctrl": Key("Control", "ControlLeft", 17),
    "alt": Key("Alt", "AltLeft", 18),
    "meta": Key("Meta", "MetaLeft", 91),
} | {f"f{n}": Key(f"F{n}", f"F{n}", 111 + n) for n in range(1, 13)}
