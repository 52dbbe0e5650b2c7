#!/usr/bin/env bash
# transformers 5.24.0 (PyPI), 2026-11-27.
# Guess: an OpenAI-compatible server splits a reply into `content` and `tool_calls` if the request has `tools`. Without
#   tools, as in requests of GUI agents that list their tools in the system turn, `content` is the model's full text.
# What happens: `transformers serve` parses the replies of every Qwen, with or without tools. The call of a computer-use
#   policy is missing from `content`. A call whose JSON holds a line break, as models write a text of two lines, raises
#   (a bare 500).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.24.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from types import SimpleNamespace

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.cli.serving.utils import parse_assistant_message

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
backend = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, []))
backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
model = SimpleNamespace(config=SimpleNamespace(model_type="qwen2_5_vl"))
prompt = tokenizer("<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n")["input_ids"]


def parsed(reply):
    ids = tokenizer(f"{reply}<|im_end|>")["input_ids"]
    try:
        return parse_assistant_message(tokenizer, model, ids, prompt, cleaned_content=reply, tools=None)
    except ValueError as error:
        return type(error).__name__


call = '<tool_call>\n{"name": "computer_use", "arguments": {"action": "type", "text": "a%sb"}}\n</tool_call>'
content, _, calls = parsed(f"I type it.\n{call % ' '}")
raised = parsed(f"I type it.\n{call % chr(10)}")
print("content:", repr(content), " tool_calls:", len(calls or ()), " with a line break:", raised)
sys.exit((content, len(calls or ()), raised) != ("I type it.", 1, "ValueError"))
PYTHON
