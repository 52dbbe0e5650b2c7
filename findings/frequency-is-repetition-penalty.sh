#!/bin/bash
# Package: transformers 5.23.0 with its server (`transformers serve`), 2026-11-27.
# An expert would guess: the server applies the chat protocol's frequency_penalty (-2 to 2, subtracted per repetition) or
# ignores it, and 0, its default, changes nothing.
# What happens: the server sets repetition_penalty = 1 + frequency_penalty, a factor on the logits of both prompt and
# answer. So 0 switches off the checkpoint's own repetition penalty, and -1, which is in range, sets the factor to 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 'transformers[serving]==5.23.0'
cd "$folder"
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - <<'PYTHON'
import sys
from types import SimpleNamespace

from transformers import GenerationConfig
from transformers.cli.serving.chat_completion import ChatCompletionHandler

handler = object.__new__(ChatCompletionHandler)
handler.generation_state = SimpleNamespace(_compile=False)
checkpoint = GenerationConfig(repetition_penalty=1.05)  # as Qwen2.5-VL ships it
found = {}
for penalty in (None, 0.0, 0.5, -1.0):
    body = {} if penalty is None else {"frequency_penalty": penalty}
    found[penalty] = handler._build_generation_config(body, checkpoint).repetition_penalty
    print(f"frequency_penalty {penalty}: repetition_penalty {found[penalty]}")
sys.exit(0 if found == {None: 1.05, 0.0: 1.0, 0.5: 1.5, -1.0: 0.0} else 1)
PYTHON
