#!/usr/bin/env bash
# Package: rapidocr 3.10.0 with onnxruntime 1.32.0, Pillow 13.0.0; date: 2026-11-27.
# An expert would guess: a clearly printed label of 16 pixels on an empty white screen of 1280x720 is the easiest text to
# find, and more empty space around it changes nothing.
# What happens: the detector finds nothing on the whole screen, without a warning. It finds the label in a crop of 320x320
# of the same pixels around it.
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

screen = Image.new("RGB", (1280, 720), "white")
ImageDraw.Draw(screen).text((600, 340), "Settings", fill="black", font=ImageFont.load_default(16))
reader = RapidOCR(params={"Global.log_level": "critical"})
crop = screen.crop((470, 190, 790, 510))
whole, part = (reader(np.asarray(one)[:, :, ::-1]).txts for one in (screen, crop))
print(f"whole screen of 1280x720: {whole}")
print(f"crop of 320x320:          {part}")
sys.exit(0 if not whole and part == ("Settings",) else 1)
PY
"$folder/venv/bin/python" "$folder/show.py"
