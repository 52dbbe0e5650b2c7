"""Translate keys to Chromium's key events."""

from typing import Any

from schemas.keyboard import BLANKS, KEYS, Key

MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
"""Bits of `Input.dispatchKeyEvent`, by the DOM's names."""
_TEXTS = {"Enter": "\r"}


def event_of(key: Key, kind: str, modifiers: int) -> dict[str, Any]:
    """The parameters of `Input.dispatchKeyEvent` for a key that goes down or up.

    Args:
        key: the key.
        kind: `keyDown` or `keyUp`.
        modifiers: the bits of the held modifiers. With shift a key writes its other character; with any other modifier
            it writes nothing.
    """
    shown = key.shifted if key.shifted and modifiers & MODIFIERS["Shift"] else key.key
    fields: dict[str, Any] = {"type": kind, "key": shown, "code": key.code, "modifiers": modifiers}
    fields |= {"windowsVirtualKeyCode": key.number, "location": key.location, "isKeypad": key.location == 3}
    text = _TEXTS.get(shown, shown if len(shown) == 1 else "")
    if kind == "keyDown" and text and not modifiers & ~MODIFIERS["Shift"]:
        fields["text"] = text
    elif kind == "keyDown":
        fields["type"] = "rawKeyDown"
    return fields


def key_writing(character: str) -> Key:
    """The key that writes this character."""
    return KEYS.get(BLANKS.get(character, character)) or Key(character, "", character, "", 0, 0)


def modifier_of(key: Key) -> int:
    """The modifier bit of a key; 0 for a key that is no modifier."""
    return MODIFIERS.get(key.key, 0)
