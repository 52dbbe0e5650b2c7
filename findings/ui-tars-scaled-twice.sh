#!/usr/bin/env bash
# ui-tars 0.5.1 (PyPI), 2026-11-29
#
# Its quick start reads `click(point='<point>200 300</point>')` for a screen of 1920x1080 and writes PyAutoGUI code.
# Guess: the code clicks at the pixel (384, 324).
# What happens: the reader divides by 1000, and the writer does it again by its default `scale_factor`, so the code clicks
# at (0.384, 0.324), the corner of the screen. With `scale_factor=1` clicks are right, but a scroll still has the
# fractions (0.2, 0.3) as pixels: the writer never scales them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ui-tars==0.5.1
"$folder/venv/bin/python" -W ignore - <<'PY'
from ui_tars.action_parser import parse_action_to_structure_output, parsing_response_to_pyautogui_code

WIDTH, HEIGHT = 1920, 1080


def code(action: str, **scale: int) -> str:
    """The last line of the code for an action."""
    reply = f"Thought: Click the button\nAction: {action}"
    read = parse_action_to_structure_output(
        reply, factor=1000, origin_resized_height=HEIGHT, origin_resized_width=WIDTH, model_type="doubao"
    )
    return parsing_response_to_pyautogui_code(read, HEIGHT, WIDTH, **scale).strip().splitlines()[-1]


POINT = "point='<point>200 300</point>'"
found = {
    "click, as in the quick start": code(f"click({POINT})"),
    "click, scale_factor=1": code(f"click({POINT})", scale_factor=1),
    "scroll, scale_factor=1": code(f"scroll({POINT}, direction='down')", scale_factor=1),
}
for name, line in found.items():
    print(f"{name}: {line}")
expected = ["click(0.384, 0.324,", "click(384.0, 324.0,", "scroll(-5, x=0.2, y=0.3)"]
raise SystemExit(0 if all(text in line for text, line in zip(expected, found.values(), strict=True)) else 1)
PY
