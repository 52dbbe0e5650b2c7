#!/usr/bin/env bash
# transformers 5.23.0 (PyPI), 2026-11-27
#
# The preprocessor_config.json of Qwen2.5-VL's first weeks names the class `Qwen2_5_VLImageProcessor`, and many models
# trained from it keep it. The architecture's own class is `Qwen2VLImageProcessor`.
# Guess: the name is unknown, so the folder cannot be loaded, whatever else is passed.
# What happens: `AutoImageProcessor` refuses the folder, but loads it if the configuration from the same folder is passed
# explicitly. Only then does it fall back to the architecture's class.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "transformers==5.23.0" pillow numpy
mkdir "$folder/model"
echo '{"model_type": "qwen2_5_vl"}' > "$folder/model/config.json"
cat > "$folder/model/preprocessor_config.json" <<'JSON'
{"image_processor_type": "Qwen2_5_VLImageProcessor", "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14,
 "temporal_patch_size": 2, "merge_size": 2}
JSON
"$folder/venv/bin/python" -W ignore - "$folder/model" <<'PYTHON'
import sys

from transformers import AutoConfig, AutoImageProcessor

model = sys.argv[1]
try:
    alone = type(AutoImageProcessor.from_pretrained(model)).__name__
except ValueError as error:
    alone = f"ValueError: {str(error)[:60]}"
config = AutoConfig.from_pretrained(model)
passed = type(AutoImageProcessor.from_pretrained(model, config=config)).__name__
print(f"the folder alone:             {alone}")
print(f"with the folder's own config: {passed}")
raise SystemExit(0 if alone.startswith("ValueError") and passed.startswith("Qwen2VLImageProcessor") else 1)
PYTHON
