#!/usr/bin/env bash
# ui-tars 0.5.1 (PyPI), 2026-11-29
#
# Guess: the code that it writes for `type(content='it\'s')` pastes the text it's, and `type(content=' ')` types a space.
# What happens: the reader removes the backslash and the writer adds one inside of a quoted literal, so the clipboard gets
# a visible backslash in front of each apostrophe. Spaces at the beginning of a text are dropped: a text that continues a
# sentence loses its space, and for a lone space no code is written at all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ui-tars==0.5.1
"$folder/venv/bin/python" -W ignore - <<'PY'
import sys
from types import SimpleNamespace

from ui_tars.action_parser import parse_action_to_structure_output, parsing_response_to_pyautogui_code

pasted: list[str] = []
sys.modules["pyperclip"] = SimpleNamespace(copy=pasted.append)
sys.modules["pyautogui"] = SimpleNamespace(hotkey=lambda *_: None, press=lambda *_: None)


def typed(action: str) -> list[str]:
    """The texts that the generated code puts into the clipboard."""
    pasted.clear()
    read = parse_action_to_structure_output(f"Thought: I type.\nAction: {action}", 1000, 1080, 1920, model_type="doubao")
    exec(parsing_response_to_pyautogui_code(read, 1080, 1920), {})
    return list(pasted)


apostrophe, continued, space = typed(r"type(content='it\'s')"), typed("type(content=' and more')"), typed("type(content=' ')")
print(f"it's: {apostrophe}\n' and more': {continued}\n' ': {space}")
raise SystemExit(0 if (apostrophe, continued, space) == (["it\\'s"], ["and more"], []) else 1)
PY
