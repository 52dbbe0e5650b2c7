#!/usr/bin/env bash
# ui-tars 0.5.1 and PyAutoGUI 0.9.54 (PyPI), 2026-11-27.
# Guess: UI-TARS's own package turns `hotkey(key='ctrl arrowleft')`, in the key names that its models write, into code that
#   pyautogui performs, as it does for `hotkey(key='arrowleft')`.
# What happens: arrows are renamed only if they are the whole hotkey. `arrowleft` with another key, `ctrl+c` and
#   `page down` are passed on unchanged. pyautogui has no such names and presses nothing for them, without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ui-tars==0.5.1 PyAutoGUI==0.9.54
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import types

pressed = []
platform = types.ModuleType("pyautogui._pyautogui_x11")
platform._position, platform._size = lambda: (5, 5), lambda: (1000, 500)
platform._keyUp = lambda key: None
platform.keyboardMapping = {}
sys.modules["pyautogui._pyautogui_x11"] = platform
sys.modules["mouseinfo"] = types.ModuleType("mouseinfo")
import pyautogui
from ui_tars.action_parser import parse_action_to_structure_output, parsing_response_to_pyautogui_code

pyautogui.PAUSE, pyautogui.FAILSAFE = 0, False
platform._keyDown = lambda key: pressed.append(key) if key in pyautogui.KEY_NAMES else None


def keys(written):
    reply = f"Thought: Go.\nAction: hotkey(key='{written}')"
    action = parse_action_to_structure_output(reply, 1000, 1000, 1000, model_type="qwen25vl")
    code = parsing_response_to_pyautogui_code(action, 1000, 1000).splitlines()[-1]
    pressed.clear()
    exec(code, {"pyautogui": pyautogui})
    print(f"{written!r}: {code} presses {pressed}")
    return list(pressed)


seen = [keys(one) for one in ("arrowleft", "ctrl arrowleft", "ctrl+c", "page down")]
sys.exit(seen != [["left"], ["ctrl"], [], ["down"]])
PYTHON
