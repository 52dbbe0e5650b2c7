#!/usr/bin/env bash
# cua-agent 0.9.1 with qwen-vl-utils 0.0.14, 2026-11-29
#
# Qwen3.5 answers in thousandths of the screen. Two methods of one class turn the answer into pixels: `predict_step` for
# a step of a task, and `predict_click` for one element.
# Guess: both give the same point for the same reply.
# What happens: `predict_click` takes the height for the width. The middle of a screen of 1920x1088 becomes the pixel
# (544, 960), and only square screens are right. `predict_step` gives (960, 544).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet cua-agent==0.9.1 qwen-vl-utils==0.0.14 qwen-agent==0.0.34 \
    soundfile==0.14.0 python-dateutil==2.9.0.post0
CUA_TELEMETRY_ENABLED=false "$folder/venv/bin/python" - 2>"$folder/log" <<'PY' || { cat "$folder/log"; exit 1; }
import asyncio
import base64
import contextlib
import io
import sys
from unittest.mock import MagicMock

for name in ("torch", "torchvision"):  # only imported here: they read videos
    sys.modules[name] = MagicMock()
sys.modules["torchvision.transforms"] = MagicMock()

import litellm
from cua_agent.loops.qwen35 import Qwen35Config
from PIL import Image

REPLY = (
    "<tool_call>\n<function=computer>\n<parameter=action>\nleft_click\n</parameter>\n"
    "<parameter=coordinate>\n[500, 500]\n</parameter>\n</function>\n</tool_call>"
)


async def answered(**_):
    """The model's server."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return litellm.ModelResponse(choices=[{"message": {"role": "assistant", "content": REPLY}}], usage=usage)


def screen(width: int, height: int) -> str:
    with io.BytesIO() as file:
        Image.new("RGB", (width, height), "white").save(file, "PNG")
        return base64.b64encode(file.getvalue()).decode()


async def both(width: int, height: int) -> tuple:
    agent, picture = Qwen35Config(), screen(width, height)
    click = await agent.predict_click("qwen35", picture, "the middle")
    shown = [{"type": "input_image", "image_url": f"data:image/png;base64,{picture}"}]
    with contextlib.redirect_stdout(io.StringIO()):
        step = await agent.predict_step([{"role": "user", "content": shown}], "qwen35")
    action = step["output"][-1]["action"]
    return click, (action["x"], action["y"])


litellm.acompletion = answered
wide, square = asyncio.run(both(1920, 1088)), asyncio.run(both(1024, 1024))
for name, (click, step) in {"1920x1088": wide, "1024x1024": square}.items():
    print(f"{name}: predict_click {click}, predict_step {step}")
raise SystemExit(0 if wide == ((544, 960), (960, 544)) and square[0] == square[1] == (512, 512) else 1)
PY
