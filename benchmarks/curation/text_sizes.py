"""How much drawn text a recogniser reads: recall by the size of the text, the size of the screen and how full it is.

Labels and buttons of two words at random places, in Pillow's own typeface. A text counts as read where a line of
exactly its words has its centre within the text's box. Recall is the share of texts that are read.
"""

import io
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from benchmarks.shared.report import Bar, finish, options
from models.readers.rapid import RapidReader

SCREENS = ((390, 844), (1280, 720), (1920, 1080), (2560, 1440), (3840, 2160))
LETTERS = (11, 12, 16, 20)
"""Pixels of the typeface."""
FULL = 60
"""Labels of a full screen."""
BAR = 0.9
"""Recall of all texts of 12 pixels and more."""
WORDS = ("Save", "Cancel", "Submit", "Profile", "Download", "Search", "Delete", "Archive", "Refresh", "Continue")
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A screen and its texts with their boxes in pixels."""

    png: bytes
    width: int
    height: int
    texts: tuple[tuple[str, Box], ...]


def drawn(width: int, height: int, letters: int, count: int, button: bool, seed: int) -> Drawn:
    """A screen with up to so many texts that do not touch; `button`: white on a blue box."""
    chance, font = random.Random(f"{width} {height} {letters} {count} {button} {seed}"), ImageFont.load_default(letters)
    image = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(image)
    texts: list[tuple[str, Box]] = []
    for _ in range(50 * count):
        if len(texts) == count:
            break
        text = f"{chance.choice(WORDS)} {chance.randint(10, 99)}"
        left, top = chance.uniform(10, width - 10 - pen.textlength(text, font)), chance.uniform(10, height - 40)
        box = pen.textbbox((left, top), text, font)
        away = (box[0] - 24, box[1] - 12, box[2] + 24, box[3] + 12)
        if any(away[0] < o[2] and o[0] < away[2] and away[1] < o[3] and o[1] < away[3] for _, o in texts):
            continue
        if button:
            pen.rectangle((box[0] - 8, box[1] - 5, box[2] + 8, box[3] + 5), fill=(40, 90, 200))
        pen.text((left, top), text, "white" if button else "black", font)
        texts.append((text, box))
    out = io.BytesIO()
    image.save(out, "png")
    return Drawn(out.getvalue(), width, height, tuple(texts))


def read_of(reader: RapidReader, screen: Drawn) -> int:
    """How many of a screen's texts are read at their places."""
    found = [(one.name, one.centre[0] * screen.width, one.centre[1] * screen.height) for one in reader.read(screen.png)]
    return sum(
        any(name == text and left <= x <= right and top <= y <= bottom for name, x, y in found)
        for text, (left, top, right, bottom) in screen.texts
    )


def cases(short: bool) -> Iterator[tuple[int, int, int, str, int]]:
    """Screens, letters, what is drawn, and how many screens of it."""
    for width, height in SCREENS[: 2 if short else None]:
        for letters in LETTERS:
            yield width, height, letters, "label", 3
            yield width, height, letters, "button", 3
            yield width, height, letters, "full", 1


def main() -> int:
    """Draws, reads, prints; exit code 1 if the bar is missed."""
    given = options(__doc__ or "")
    reader, rows = RapidReader(), list[dict[str, Any]]()
    all_there = all_read = 0
    for width, height, letters, kind, count in cases(given.short):
        started, there, read = time.process_time(), 0, 0
        for seed in range(count):
            screen = drawn(width, height, letters, FULL if kind == "full" else 1, kind == "button", seed)
            there, read = there + len(screen.texts), read + read_of(reader, screen)
        seconds = (time.process_time() - started) / count
        row = {"screen": f"{width}x{height}", "letters px": letters, "drawn": kind, "texts": there, "read": read}
        rows.append({**row, "recall": read / there, "cpu s": round(seconds, 1)})
        if letters >= 12:
            all_there, all_read = all_there + there, all_read + read
    return finish("text_sizes", rows, [Bar("recall", all_read / all_there, BAR, "higher")], given.json)


if __name__ == "__main__":
    raise SystemExit(main())
