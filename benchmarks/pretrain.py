"""Measure what a base reads and points at, next to RapidOCR on the same screens.

`python -m benchmarks.pretrain --base DIR [--lake URI] [--html FOLDER]... [--short] --json PATH`

The screens are the lake's pages of the split `test`, with layouts, widgets, fonts and words that no training has, and
HTML files of the given folders (such as a package's demos) in four sizes. A base answers greedily where a name is, and
what is written at a place. RapidOCR reads the whole screen. It points at the part of a line that is most like the name,
and reads the letters whose places are in the given line or half its height from it; a letter's place is its share of
the box of its line.
"""

import argparse
import asyncio
import hashlib
import json
import random
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import Bar, add_options, finish
from environments.chromium.browser import Browser, find_browser
from environments.chromium.document import DocumentSandbox
from environments.chromium.page import PageKind
from environments.pages.environment import SCAN, PagesConfig, PagesEnvironment
from learning.data.pages import Box, PageSample
from learning.engines.tiny.exam import (
    ASKED,
    POINTING,
    READING,
    SCREENS,
    SHAPE,
    TEXTS,
    class_of,
    edits,
    examine,
    spread,
)
from learning.engines.tiny.pages import PageBatcher, View, visible_in
from models.readers import RapidReader
from models.tiny.generator import read_tokenizer
from models.tiny.network import TinyNet
from schemas.config import Config, load_config
from schemas.failure import SandboxFailure, TrajectoryFailure, UsageError
from schemas.observation import Element, elements_json
from schemas.tables.task import GuiTask
from storage.lake import Lake

Row = dict[str, Any]
Letter = tuple[str, tuple[float, float]]
SHORT = 40
"""Screens of each source in a short run."""
SIZES = ((160, 210), (320, 400), (640, 480), (1280, 800))
"""Sizes in pixels in which an HTML file is shown."""
REMOTE = re.compile(
    r"""<(script|link|img|iframe)\b[^>]*(?<![\w-])(src|href)\s*=\s*["']?(https?:)?//[^>]*>""", re.IGNORECASE
)
"""Tags that load something from elsewhere, which a page here cannot."""
CHARACTER_ERRORS = {"160x210": 0.05, "640x480": 0.08}
POINTED = {"160x210": 0.95, "640x480": 0.90, "1280x800": 0.85}
"""Targets by the area of the screen; errors are those of texts of up to 11 pixels."""


class OpenPage(DocumentSandbox):
    """Shows an HTML file, which is no task."""

    def __init__(self, browser: Browser, file: Path, size: tuple[int, int]) -> None:
        super().__init__(browser, PagesConfig(kind="pages"))
        self.kind = PageKind(*size, f"{file.parent.as_uri()}/", f"{SCAN}\nwindow.__page.verdict = () => [false, 0];")
        self._shown = file

    async def _start(self, task: GuiTask, seed: int) -> None:
        await self._opened_at(self._shown, seed, "world.document.fonts.ready.then(() => null)")

    async def scan(self) -> tuple[str, list[Any]]:
        """Return the elements of the screen as JSON, and its lines."""
        found = await self._page.evaluate("[world.__page.listed().map(([item]) => item), world.__page.lines()]")
        elements = [Element(name, kind, tuple(box), live, value) for name, kind, *box, live, value in found[0]]
        return elements_json(elements), found[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and return 1 if a bar is missed."""
    options = _options(arguments)
    RapidReader.require()
    config = load_config("laptop", [f"lake.uri={options.lake}"] if options.lake else [])
    torch.set_num_threads(1)
    net, tokenizer = TinyNet.load(options.base), read_tokenizer(options.base)
    rows: list[Row] = []
    bars: list[Bar] = []
    for name, samples, pngs in _sources(config, options):
        began = time.perf_counter()
        ours = examine(net, PageBatcher(tokenizer, net, pngs, config.policy, config.train, 1), None, samples)
        seconds = time.perf_counter() - began
        made = list(_rows(name, ours, *_peer(samples, pngs)))
        if not made:
            raise UsageError(f"{name}: no name is written once on a screen.", "Measure on other pages.")
        print(f"{name}: {len(samples)} screens, {seconds / len(samples):.2f} s each", file=sys.stderr)
        rows += made
        bars += _bars(name, made)
    return finish("pretrain", rows, bars, options)


def _sources(config: Config, options: argparse.Namespace) -> Iterator[tuple[str, list[PageSample], dict[str, bytes]]]:
    """Yield name, screens and pictures of each source."""
    if options.lake:
        yield "test pages", *_of_lake(config, SHORT if options.short else None)
    for folder in options.html:
        with TemporaryDirectory() as copy:
            copied = Path(shutil.copytree(folder, f"{copy}/pages", ignore_dangling_symlinks=True))
            files = sorted(one for one in copied.rglob("*.html") if one.is_file())
            for file in files:
                file.write_text(REMOTE.sub("", file.read_text(errors="replace")))
            samples, pngs = asyncio.run(_of_files(files[: SHORT // len(SIZES)] if options.short else files))
        if not samples:
            raise UsageError(f"--html {folder}: there is no HTML file that opens.", "Name a folder of demos.")
        yield folder.name, samples, pngs


def _screen(digest: str, width: int, height: int, elements: str, lines: str) -> PageSample:
    more = {"instruction": "", "history": (), "action": "", "change": "", "perceived": "[]"}
    return PageSample(digest[:16], 0, "test", (digest,), width, height, elements, "{}", lines, **more)


def _of_lake(config: Config, most: int | None) -> tuple[list[PageSample], dict[str, bytes]]:
    lake = Lake.open(config.lake, create=False)
    found = lake.read("pages", ["sha256", "width", "height", "elements", "lines"], {"split": "test"}).to_pylist()
    if not found:
        raise UsageError(f"The lake {lake.uri} has no pages of the split `test`.", "Run `flywheel pretrain render`.")
    screens = sorted({row["sha256"]: row for row in found}.items())
    chosen = dict(random.Random(0).sample(screens, min(most or len(screens), len(screens))))
    pictures = lake.read("screenshots", ["sha256", "png"], {"sha256": list(chosen)})
    pngs = dict(zip(pictures["sha256"].to_pylist(), pictures["png"].to_pylist(), strict=True))
    return [_screen(*row.values()) for row in chosen.values()], pngs


async def _of_files(files: Sequence[Path]) -> tuple[list[PageSample], dict[str, bytes]]:
    samples: list[PageSample] = []
    pngs: dict[str, bytes] = {}
    task = PagesEnvironment("pages", PagesConfig(kind="pages")).task("form")
    browser = await Browser.launch(find_browser("", "environments.pages.browser"))
    try:
        for file, size in product(files, SIZES):
            page = OpenPage(browser, file.resolve(), size)
            try:
                await page.start(task, 0)
                shown = await page.observe()
                elements, lines = await page.scan()
            except (SandboxFailure, TrajectoryFailure) as error:
                print(f"left out: {file.name} at {size[0]}x{size[1]}: {error}", file=sys.stderr)
                continue
            finally:
                await page.stop()
            digest = hashlib.sha256(shown.png).hexdigest()
            pngs[digest] = shown.png
            samples.append(_screen(digest, *size, elements, json.dumps(lines)))
    finally:
        await browser.end()
    return samples, pngs


def _peer(samples: Sequence[PageSample], pngs: dict[str, bytes]) -> tuple[Tensor, Tensor]:
    """Return RapidOCR's counts on the same names, and those of a random element."""
    counts, chance = torch.zeros(SHAPE, dtype=torch.float64), torch.zeros(SHAPE, dtype=torch.float64)
    reader = RapidReader()
    for sample in samples:
        size = sample.width, sample.height
        shown = visible_in(View(0, 0, *size, True), sample)
        read = [_letters(one, size) for one in reader.read(pngs[sample.screenshots[0]])]
        for number in spread(shown.unique, ASKED):
            element, line = shown.elements[number], shown.read[number]
            at = class_of(line.font_px, TEXTS), class_of(size[0] * size[1], tuple(SCREENS.values()))
            found = _most_alike(read, element.name)
            counts[POINTING, *at] += torch.tensor([found is not None and _holds(element.box, found), 1])
            around = _wider(line.box)
            inside = ("".join(letter for letter, place in one if _holds(around, place)).strip() for one in read)
            text = " ".join(one for one in inside if one)
            counts[READING, *at] += torch.tensor([edits(text, element.name), len(element.name)])
            others = [_holds(element.box, _middle(other.box)) for other in shown.elements]
            chance[POINTING, *at] += torch.tensor([sum(others) / len(others), 1], dtype=torch.float64)
    return counts, chance


def _letters(line: Element, size: tuple[int, int]) -> list[Letter]:
    """Return the letters of a line that was read, each with its place in pixels."""
    left, top, right, bottom = (edge * side for edge, side in zip(line.box, size * 2, strict=True))
    each = (right - left) / max(1, len(line.name))
    return [(one, (left + (number + 0.5) * each, (top + bottom) / 2)) for number, one in enumerate(line.name)]


def _most_alike(read: Sequence[Sequence[Letter]], name: str) -> tuple[float, float] | None:
    """Return the middle of the part of a line that is most like a name; None if nothing was read."""
    parts = [line[at : at + len(name)] for line in read for at in range(max(1, len(line) - len(name) + 1))]
    best = min(parts, key=lambda part: edits("".join(letter for letter, _ in part), name), default=None)
    if not best:
        return None
    x, y = (sum(place[axis] for _, place in best) / len(best) for axis in (0, 1))
    return x, y


def _wider(box: Box) -> Box:
    """Return a box with half its height more to the left and right, since letters differ in width."""
    left, top, right, bottom = box
    return left - (bottom - top) / 2, top, right + (bottom - top) / 2, bottom


def _middle(box: Box) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _holds(box: Box, place: tuple[float, float]) -> bool:
    return box[0] <= place[0] <= box[2] and box[1] <= place[1] <= box[3]


def _rows(name: str, ours: Tensor, peer: Tensor, chance: Tensor) -> Iterator[Row]:
    """Yield a row for each size of screen and text, and for each size of screen one over all texts."""

    def share(counts: Tensor, kind: int) -> float | None:
        return float(counts[kind, 0] / counts[kind, 1]) if counts[kind, 1] else None

    for screen, size in enumerate(SCREENS):
        for text in (*range(len(TEXTS)), None):
            mine, theirs, by_chance = (
                one[:, :, screen].sum(1) if text is None else one[:, text, screen] for one in (ours, peer, chance)
            )
            if mine[POINTING, 1]:
                yield {
                    "source": name,
                    "screen": size,
                    "text": "all" if text is None else f"{TEXTS[text]}px",
                    "names": int(mine[POINTING, 1]),
                    "pointing": share(mine, POINTING),
                    "RapidOCR points": share(theirs, POINTING),
                    "random element": share(by_chance, POINTING),
                    "character errors": share(mine, READING),
                    "RapidOCR errors": share(theirs, READING),
                }


def _bars(name: str, rows: Sequence[Row]) -> list[Bar]:
    pointing = [
        Bar(f"{name}: pointing, {row['screen']}", row["pointing"], POINTED[row["screen"]], "higher")
        for row in rows
        if row["text"] == "all"
    ]
    errors = [
        Bar(f"{name}: character errors, 11px, {row['screen']}", row["character errors"], bar, "lower")
        for row in rows
        if row["text"] == "11px" and (bar := CHARACTER_ERRORS.get(row["screen"])) is not None
    ]
    return [*pointing, *errors]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pretrain",
        description=__doc__,
        epilog=f"--short: {SHORT} screens of each source.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--base", type=Path, required=True, help="folder of the base")
    parser.add_argument("--lake", default="", help="lake with rendered pages")
    parser.add_argument("--html", type=Path, action="append", default=[], help="folder of HTML files; repeatable")
    options = add_options(parser).parse_args(arguments)
    options.html = [folder.resolve() for folder in options.html]
    for folder in options.html:
        if not folder.is_dir() or [one.name for one in options.html].count(folder.name) > 1:
            raise UsageError(f"--html {folder}: no folder, or two of this name.", "Name each folder once.")
    if not options.lake and not options.html:
        raise UsageError("There is nothing to measure on.", "Give --lake, --html or both.")
    return options


if __name__ == "__main__":
    sys.exit(main())
