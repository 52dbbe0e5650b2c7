#!/usr/bin/env bash
# transformers 5.24.0 (torch 2.13.0), 2026-11-30, with the sizes of Qwen/Qwen2.5-VL-7B-Instruct's config.json.
# Guess: `mrope_section` [16, 24, 24] gives rows and columns of an image the same number of frequencies, so attention of
#   the language model tells neighbouring columns apart as well as neighbouring rows, as it does in Qwen3-VL.
# What happens: the sections are cut from one falling list of frequencies. Neighbouring rows differ by up to 0.032
#   radians, and neighbouring columns by at most 0.00018: all 46 columns of a screen of 1288 pixels have the same cosines
#   in bf16. A list with more than three entries takes the axes in turn, which the documentation does not mention;
#   columns then differ by up to 0.65.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q transformers==5.24.0 torch==2.13.0
cat > columns.py <<'PYTHON'
import sys

import torch
from transformers import Qwen2_5_VLTextConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLRotaryEmbedding

SIZES = {"hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 128000}
COLUMNS = 46


def rotary(section):
    rope = {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": section}
    return Qwen2_5_VLRotaryEmbedding(Qwen2_5_VLTextConfig(**SIZES, rope_parameters=rope))


def fastest(module, axis):
    """Largest rotation, in radians, between two places that are neighbours on one axis."""
    places = torch.zeros(3, 1, 2, dtype=torch.long)
    places[axis, 0, 1] = 1
    cosine, sine = module(torch.zeros(1), places)
    return float(torch.atan2(sine[0, 1].abs(), cosine[0, 1]).max())


found = {}
for name, section in (("[16, 24, 24]", [16, 24, 24]), ("axes in turn", [1] * 63 + [1, 0, 0])):
    module = rotary(section)
    found[name] = [fastest(module, axis) for axis in range(3)]
    print(f"{name}: time {found[name][0]:.5f}, rows {found[name][1]:.5f}, columns {found[name][2]:.5f} radians")
places = torch.zeros(3, 1, COLUMNS, dtype=torch.long)
places[2, 0] = torch.arange(COLUMNS)
cosine, _ = rotary([16, 24, 24])(torch.zeros(1, dtype=torch.bfloat16), places)
same = bool((cosine[0] == cosine[0, :1]).all())
print(f"cosines of all {COLUMNS} columns are equal in bf16: {same}")
blocks, turns = found["[16, 24, 24]"], found["axes in turn"]
sys.exit(not (blocks[2] < 0.0002 and 0.03 < blocks[1] < 0.033 and same and 0.6 < turns[2] < 0.7))
PYTHON
venv/bin/python columns.py
