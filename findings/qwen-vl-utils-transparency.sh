#!/usr/bin/env bash
# Package: qwen-vl-utils 0.0.14 (with torch 2.13.0, torchvision, Pillow 13.0.0); date: 2026-11-27.
# An expert would guess: what the RGBA picture of a transparent page becomes, its grey twin (LA) and its palette twin (P)
# become too, since all three hold the same pixels.
# What happens: `to_rgb` lays RGBA on white and drops the alpha of every other mode, so black text on a transparent ground
# is black on white in one file and black on black (no text at all) in another.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 torchvision qwen-vl-utils==0.0.14 pillow==13.0.0
cat > "$folder/show.py" <<'PY'
import sys

from PIL import Image, ImageDraw
from qwen_vl_utils import fetch_image

page = Image.new("RGBA", (112, 112), (0, 0, 0, 0))
ImageDraw.Draw(page).rectangle((40, 40, 70, 70), fill=(0, 0, 0, 255))
grey = page.convert("LA")
palette = Image.new("P", page.size, 0)
palette.putpalette([0, 0, 0] * 256)
ImageDraw.Draw(palette).rectangle((40, 40, 70, 70), fill=1)
palette.info["transparency"] = 0
ground, mark = (5, 5), (55, 55)
seen = {}
for image in (page, grey, palette):
    same = image.convert("RGBA")
    assert same.getpixel(ground)[3] == 0 and same.getpixel(mark) == (0, 0, 0, 255)
    shown = fetch_image({"image": image})
    seen[image.mode] = (shown.getpixel(ground), shown.getpixel(mark))
    print(f"{image.mode:4} ground {seen[image.mode][0]}, mark {seen[image.mode][1]}")
white, black = (255, 255, 255), (0, 0, 0)
sys.exit(0 if seen == {"RGBA": (white, black), "LA": (black, black), "P": (black, black)} else 1)
PY
"$folder/venv/bin/python" "$folder/show.py"
