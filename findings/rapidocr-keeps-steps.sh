#!/usr/bin/env bash
# Package: rapidocr 3.10.0 with onnxruntime 1.32.0, Pillow 13.0.0; date: 2026-11-27.
# An expert would guess: `reader(line, use_det=False)` reads one line without the detector. The next plain call
# `reader(screen)` detects and reads as before, because the argument belongs to one call.
# What happens: the reader keeps the argument. The next plain call returns a TextRecOutput without boxes, which treats the
# whole screen as one line.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet rapidocr==3.10.0 onnxruntime==1.32.0 pillow==13.0.0
cat > "$folder/show.py" <<'PY'
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr import RapidOCR

screen = Image.new("RGB", (400, 400), "white")
for number, word in enumerate(("Settings", "Profile")):
    ImageDraw.Draw(screen).text((60, 80 + 200 * number), word, fill="black", font=ImageFont.load_default(24))
line = screen.crop((50, 70, 200, 120))
reader = RapidOCR(params={"Global.log_level": "critical"})
before = reader(np.asarray(screen)[:, :, ::-1])
reader(np.asarray(line)[:, :, ::-1], use_det=False)
after = reader(np.asarray(screen)[:, :, ::-1])
print(f"before: {type(before).__name__} {before.txts}")
print(f"after:  {type(after).__name__} {getattr(after, 'txts', None)}")
sys.exit(0 if before.txts == ("Settings", "Profile") and not hasattr(after, "boxes") else 1)
PY
"$folder/venv/bin/python" "$folder/show.py"
