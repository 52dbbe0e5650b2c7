"""Send keyboard and pointer input to an X display by the server's test extension (XTEST).

Text is typed key by key. A character without a key is mapped to an unused key, so that the focused program gets an
ordinary key press. This needs no clipboard and works in terminals, too.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from Xlib import XK, X
from Xlib.ext import xtest

FIRST, LAST = 8, 255
"""Range of a display's keycodes."""
UNICODE = 0x0100_0000
"""Offset from a code point to the keysym, for characters beyond Latin-1."""
APART_S = 0.3
"""Minimum seconds between clicks of two actions at one place, so that they are no double click."""
NEAR = 8
"""Distance in pixels within which two clicks are at one place."""
TAKEN_S = 0.25
"""Seconds that programs get to read typed text before a key is remapped to another character."""
RIGHT = 3
"""Number of the last button that is no scroll wheel."""
SHIFT = XK.XK_Shift_L


def keysym_of(character: str) -> int:
    """The keysym that writes a character."""
    if character in "\n\r":
        return XK.XK_Return
    if character == "\t":
        return XK.XK_Tab
    code = ord(character)
    return code if 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xFF else UNICODE | code


class Input:
    """Input for one display.

    Args:
        display: an `Xlib.display.Display`.
    """

    def __init__(self, display: Any) -> None:
        self._display = display
        self._places: dict[int, tuple[int, bool]] = {}
        self._spare: list[int] = []
        self._lent: dict[int, int] = {}
        self._clicked: tuple[float, int, int] = (0.0, -NEAR, -NEAR)
        self._at = (0, 0)
        self._learn()

    def _learn(self) -> None:
        """Maps each character to its key, alone or with shift."""
        rows = self._display.get_keyboard_mapping(FIRST, LAST - FIRST + 1)
        for keycode, keysyms in enumerate(rows, FIRST):
            if not any(keysyms):
                self._spare.append(keycode)
            for shifted, keysym in enumerate(list(keysyms)[:2]):
                if keysym:
                    self._places.setdefault(keysym, (keycode, bool(shifted)))
        for letter in range(ord("a"), ord("z") + 1):  # a key with a single letter writes the capital with shift
            if letter in self._places:
                self._places.setdefault(letter - 32, (self._places[letter][0], True))

    def play(self, events: Iterable[Sequence[Any]]) -> None:
        """Performs events in order.

        Args:
            events: `move X Y`, `button NUMBER DOWN`, `key KEYSYM DOWN`, `text CHARACTERS` or `pause SECONDS` each.
        """
        first = True
        for kind, *given in events:
            if kind == "move":
                self._at = int(given[0]), int(given[1])
                xtest.fake_input(self._display, X.MotionNotify, x=self._at[0], y=self._at[1])
            elif kind == "button":
                if given[1] and first and int(given[0]) <= RIGHT:
                    self._keep_apart()
                    first = False
                xtest.fake_input(self._display, X.ButtonPress if given[1] else X.ButtonRelease, int(given[0]))
            elif kind == "key":
                self._key(int(given[0]), bool(given[1]))
            elif kind == "text":
                self._type(str(given[0]))
            elif kind == "pause":
                self._display.sync()
                time.sleep(float(given[0]))
            else:
                raise ValueError(f"there is no event {kind!r}")
        self._display.sync()

    def _keep_apart(self) -> None:
        """Waits until a click cannot form a double click with the previous action's click."""
        when, x, y = self._clicked
        near = abs(self._at[0] - x) <= NEAR and abs(self._at[1] - y) <= NEAR
        if near and (left := when + APART_S - time.monotonic()) > 0:
            self._display.sync()
            time.sleep(left)
        self._clicked = time.monotonic(), self._at[0], self._at[1]

    def _key(self, keysym: int, down: bool) -> None:
        keycode, shifted = self._place(keysym)
        if down and shifted:  # for example `ctrl +`, though plus needs shift
            self._press(SHIFT, keycode)
        else:
            xtest.fake_input(self._display, X.KeyPress if down else X.KeyRelease, keycode)

    def _press(self, modifier: int, keycode: int) -> None:
        held, _ = self._place(modifier)
        for code, kind in ((held, X.KeyPress), (keycode, X.KeyPress), (held, X.KeyRelease)):
            xtest.fake_input(self._display, kind, code)

    def _type(self, text: str) -> None:
        for character in text:
            keycode, shifted = self._place(keysym_of(character))
            if shifted:
                self._press(SHIFT, keycode)
            else:
                xtest.fake_input(self._display, X.KeyPress, keycode)
            xtest.fake_input(self._display, X.KeyRelease, keycode)

    def _place(self, keysym: int) -> tuple[int, bool]:
        """Returns the key that writes a keysym, and whether it needs shift; maps an unused key if there is none."""
        if keysym in self._places:
            return self._places[keysym]
        if not self._spare:
            self._display.sync()
            time.sleep(TAKEN_S)
            for lent, keycode in self._lent.items():
                del self._places[lent]
                self._spare.append(keycode)
            self._lent.clear()
        keycode = self._spare.pop(0)
        self._display.change_keyboard_mapping(keycode, [(keysym, keysym)])
        self._display.sync()
        self._lent[keysym] = keycode
        self._places[keysym] = (keycode, False)
        return keycode, False
