#!/usr/bin/env bash
# ui-tars 0.5.1 (PyPI), 2026-11-27
#
# Its `parse_action_to_structure_output` reads the replies of UI-TARS, such as `type(content='...')`.
# Guess: a quoted text may hold any words, because the content is escaped and in quotes.
# What happens: the reply is cut at its last `Action: `, wherever that is. A reply that types the words "Action: stop" is
# cut inside its own text and raises ValueError; with "Action - stop" it is read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "ui-tars==0.5.1"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io

from ui_tars.action_parser import parse_action_to_structure_output


def read(text):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            (one,) = parse_action_to_structure_output(text, 1000, 1000, 1000, model_type="qwen2vl")
        except ValueError as error:
            return f"ValueError: {error}"
    return f"{one['action_type']} {one['action_inputs']}"


plain = read("Thought: I fill in the note.\nAction: type(content='Action - stop')")
label = read("Thought: I fill in the note.\nAction: type(content='Action: stop')")
print(f"typed 'Action - stop': {plain}")
print(f"typed 'Action: stop':  {label}")
raise SystemExit(0 if plain == "type {'content': 'Action - stop'}" and label.startswith("ValueError") else 1)
PYTHON
