#!/usr/bin/env bash
# PyAutoGUI 0.9.54 (PyPI), 2026-11-27.
# Guess: `pyautogui.move(-30, None)` moves the pointer 30 pixels to the left and not up or down. The manual's own example
#   of a relative move has this form, and `drag(30, None)` works that way.
# What happens: the missing offset is filled with the pointer's own coordinate. From (500, 250) the pointer moves to
#   (470, 500); only an explicit 0 keeps the row. `button=1`, which the docstrings list, raises AttributeError.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q PyAutoGUI==0.9.54
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import types

at = [500, 250]
platform = types.ModuleType("pyautogui._pyautogui_x11")
platform._position = lambda: tuple(at)
platform._size = lambda: (1000, 500)
platform._moveTo = lambda x, y: at.__setitem__(slice(None), (x, y))
platform._mouse_is_swapped = lambda: False
platform._mouseDown = platform._mouseUp = platform._click = lambda x, y, button: None
platform.keyboardMapping = {}
sys.modules["pyautogui._pyautogui_x11"] = platform
sys.modules["mouseinfo"] = types.ModuleType("mouseinfo")
import pyautogui

pyautogui.PAUSE, pyautogui.FAILSAFE = 0, False


def after(call):
    at[:] = (500, 250)
    call()
    return tuple(at)


moved = after(lambda: pyautogui.move(-30, None))
zero = after(lambda: pyautogui.move(-30, 0))
dragged = after(lambda: pyautogui.drag(-30, None))
print("move(-30, None):", moved, " move(-30, 0):", zero, " drag(-30, None):", dragged)
try:
    pyautogui.click(5, 5, button=1)
    number = "works"
except AttributeError as error:
    number = f"AttributeError: {error}"
print("click(button=1):", number)
sys.exit((moved, zero, dragged) != ((470, 500), (470, 250), (470, 250)) or not number.startswith("AttributeError"))
PYTHON
