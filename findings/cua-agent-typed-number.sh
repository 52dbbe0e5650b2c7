#!/usr/bin/env bash
# cua-agent 0.9.1, 2026-11-29
#
# It reads the XML calls of Qwen3.5, whose parameters hold plain text: `<parameter=text>12.50</parameter>`.
# Guess: the text is typed as it is written, and each argument that the tool's description offers is performed.
# What happens: every parameter goes through JSON. `12.50` is typed as the number 12.5, `1e3` as 1000.0 and `true` as
# True. The `text` of a click, which the description offers for held keys, is dropped: a click with ctrl becomes a plain
# click, and `wait` loses its seconds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet cua-agent==0.9.1
CUA_TELEMETRY_ENABLED=false "$folder/venv/bin/python" - 2>"$folder/log" <<'PY' || { cat "$folder/log"; exit 1; }
from cua_agent.loops.qwen35 import (
    QWEN3_5_COMPUTER_TOOL,
    _parse_tool_call_from_text,
    convert_qwen_tool_args_to_computer_action,
)


def performed(action: str, **arguments: str) -> dict:
    """What `predict_step` does with a reply, but for the scale of coordinates."""
    values = {"action": action, **arguments}
    inner = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items())
    reply = f"<tool_call>\n<function=computer>\n{inner}</function>\n</tool_call>"
    args = _parse_tool_call_from_text(reply)["arguments"]
    return convert_qwen_tool_args_to_computer_action(args) or args


typed = {text: performed("type", text=text)["text"] for text in ("12.50 EUR", "12.50", "1e3", "true")}
click = performed("left_click", coordinate="[500, 500]", text="ctrl")
wait = performed("wait", time="10")
offered = "modifier keys" in QWEN3_5_COMPUTER_TOOL["function"]["description"]
for text, value in typed.items():
    print(f"typed {text!r}: {value!r}")
print(f"a click with ctrl, which the description offers ({offered}): {click}")
print(f"a wait of 10 s: {wait}")
kept = typed == {"12.50 EUR": "12.50 EUR", "12.50": 12.5, "1e3": 1000.0, "true": True}
raise SystemExit(0 if kept and offered and "text" not in click and wait == {"action": "wait"} else 1)
PY
