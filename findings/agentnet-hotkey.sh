#!/usr/bin/env bash
# PyAutoGUI 0.9.54 (PyPI), and the code of AgentNet's records (xlang-ai/OpenCUA 1d70f20), 2026-11-27.
# Guess: AgentNet's records are pyautogui code, so `pyautogui.hotkey(keys=['ctrl', 'v'])` pastes. Their reducer writes
#   every shortcut in this form, and the published samples contain it.
# What happens: `hotkey` takes its keys by position and ignores other keywords, so it presses nothing and raises nothing.
#   `press(keys=[...])` of the same records works. A replayed data set loses every shortcut without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q PyAutoGUI==0.9.54
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import types

pressed = []
platform = types.ModuleType("pyautogui._pyautogui_x11")
platform._position, platform._size = lambda: (5, 5), lambda: (1000, 500)
platform._keyDown = pressed.append
platform._keyUp = lambda key: None
platform.keyboardMapping = {}
sys.modules["pyautogui._pyautogui_x11"] = platform
sys.modules["mouseinfo"] = types.ModuleType("mouseinfo")
import pyautogui

pyautogui.PAUSE, pyautogui.FAILSAFE = 0, False


def keys(call):
    pressed.clear()
    call()
    return list(pressed)


named = keys(lambda: pyautogui.hotkey(keys=["ctrl", "v"]))
listed = keys(lambda: pyautogui.hotkey(["ctrl", "v"]))
enter = keys(lambda: pyautogui.press(keys=["enter"]))
print("hotkey(keys=['ctrl', 'v']):", named, " hotkey(['ctrl', 'v']):", listed, " press(keys=['enter']):", enter)
sys.exit((named, listed, enter) != ([], ["ctrl", "v"], ["enter"]))
PYTHON
