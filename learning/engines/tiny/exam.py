"""Measures a base on held-out pages: letters, pointing and reading, by size of the text and of the screen."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from learning.data.pages import PageElement, PageSample, TextLine
from learning.engines.tiny.pages import PageBatcher, View, visible_in
from models.tiny.network import Cache, Grid, PackedRows, TinyNet, pack, visible

TEXTS = (11, 14, 24)
"""Upper limits of the size of a text in pixels; the last class has no limit."""
SCREENS = {"160x210": 160 * 210, "640x480": 640 * 480, "1280x800": 1280 * 800}
"""Upper limits of the area of a screen; the last class has no limit."""
ASKED = 4
"""Maximum names to point at, and maximum texts to read, on one screen."""
LETTERS, POINTING, READING = range(3)
SHAPE = (3, len(TEXTS), len(SCREENS), 2)
"""Counts of letters, pointing and reading, by text and screen: right ones (for reading, wrong characters), and all."""
TOGETHER = 1024
"""Maximum screen tokens that are encoded at once; a larger screen is encoded alone."""


@torch.no_grad()
def examine(
    net: TinyNet, batcher: PageBatcher, letters: Callable[[Tensor], Tensor] | None, samples: Sequence[PageSample]
) -> Tensor:
    """Measures whole screens; the answers are greedy.

    Args:
        net, batcher: the network, and its questions.
        letters: maps screen tokens (n, hidden) to logits (n, cells, classes); None to count no letters.
        samples: screens, each with its picture.

    Returns:
        Counts of shape `SHAPE`, float64.
    """
    counts = torch.zeros(SHAPE, dtype=torch.float64)
    sizes: dict[tuple[int, int], list[PageSample]] = {}
    for sample in samples:
        sizes.setdefault((sample.height, sample.width), []).append(sample)
    for (height, width), alike in sizes.items():
        most = max(1, TOGETHER // (-(-height // batcher.block) * -(-width // batcher.block)))
        screen = class_of(width * height, tuple(SCREENS.values()))
        for at in range(0, len(alike), most):
            _together(net, batcher, letters, alike[at : at + most], counts[:, :, screen])
    return counts


def measures_of(counts: Tensor) -> dict[str, float]:
    """Computes the measures of these counts; a measure without any count is left out.

    Returns:
        `letters_right` and `pointing` as shares, `character_errors` as edits per character, each also by size of the
        text (`_11px`: at most 11 pixels, `_14px`: 12 to 14, `_24px`: larger) and of the screen (`_640x480`: at most so
        many pixels).
    """
    counts, found = counts.view(SHAPE), dict[str, float]()
    for kind, name in enumerate(("letters_right", "pointing", "character_errors")):
        parts = {name: counts[kind].sum((0, 1))}
        parts |= {f"{name}_{px}px": part for px, part in zip(TEXTS, counts[kind].sum(1), strict=True)}
        parts |= {f"{name}_{size}": part for size, part in zip(SCREENS, counts[kind].sum(0), strict=True)}
        found |= {key: round(float(part[0] / part[1]), 4) for key, part in parts.items() if part[1]}
    return found


def edits(written: str, wanted: str) -> int:
    """Counts the insertions, deletions and substitutions between two texts (Levenshtein, 1966)."""
    row = list(range(len(wanted) + 1))
    for number, one in enumerate(written, 1):
        corner, row[0] = row[0], number
        for at, other in enumerate(wanted, 1):
            corner, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, corner + (one != other))
    return row[-1]


def class_of(value: float, limits: Sequence[int]) -> int:
    """Finds the first of these upper limits that holds a value; the last one holds all."""
    return next((number for number, limit in enumerate(limits[:-1]) if value <= limit), len(limits) - 1)


def _together(
    net: TinyNet,
    batcher: PageBatcher,
    letters: Callable[[Tensor], Tensor] | None,
    samples: Sequence[PageSample],
    counts: Tensor,
) -> None:
    seen, grid = batcher.see(net, samples)
    points: list[tuple[int, list[int], PageElement, TextLine, View]] = []
    texts: list[tuple[int, list[int], str, TextLine]] = []
    for row, sample in enumerate(samples):
        view = batcher.whole_view(sample)
        shown = visible_in(view, sample)
        if letters is not None:
            _count_letters(batcher, letters, seen[row], view, shown.lines, counts[LETTERS])
        for number in spread(shown.unique, ASKED):
            element = shown.elements[number]
            prompt, reply, given = batcher.where(view, element)
            points.append((row, [*prompt, *(token for token, _ in reply[:given])], element, shown.read[number], view))
            if len(texts) < ASKED * (row + 1):
                line = shown.read[number]
                middle = ((line.box[0] + line.box[2]) / 2, line.middle)
                texts.append((row, batcher.what(view, *middle), element.name, line))
    lead = net.lead(seen, len(samples))
    found = answers(net, batcher, lead, grid, [(row, prompt) for row, prompt, *_ in points], 2)
    for (_, _, element, line, view), answer in zip(points, found, strict=True):
        place = batcher.pixel(answer, view)
        left, top, right, bottom = element.box
        right_place = place is not None and left <= place[0] <= right and top <= place[1] <= bottom
        counts[POINTING, class_of(line.font_px, TEXTS)] += torch.tensor([right_place, 1])
    longest = max((len(text) for _, _, text, _ in texts), default=0) + 6
    found = answers(net, batcher, lead, grid, [(row, prompt) for row, prompt, *_ in texts], longest)
    for (_, _, text, line), answer in zip(texts, found, strict=True):
        wrong = edits(batcher.quoted(answer), text)
        counts[READING, class_of(line.font_px, TEXTS)] += torch.tensor([wrong, len(text)])


def _count_letters(
    batcher: PageBatcher,
    letters: Callable[[Tensor], Tensor],
    seen: Tensor,
    view: View,
    lines: Sequence[TextLine],
    counts: Tensor,
) -> None:
    found = [*batcher.cells(lines, view)]
    if found:
        token, cell, letter, px = zip(*found, strict=True)
        right = letters(seen)[list(token), list(cell)].argmax(-1) == torch.tensor(letter)
        for size, one in zip(px, right.tolist(), strict=True):
            counts[class_of(size, TEXTS)] += torch.tensor([one, 1])


def spread(found: Sequence[int], most: int) -> list[int]:
    """Takes at most `most` items, evenly."""
    count = min(most, len(found))
    return [found[number * len(found) // count] for number in range(count)]


ROWS = 65536
"""Maximum screen tokens of all rows that are decoded at once; their keys and values take 3 kB each."""


def answers(
    net: TinyNet, batcher: PageBatcher, seen: Tensor, grid: Grid, asked: Sequence[tuple[int, list[int]]], limit: int
) -> list[list[int]]:
    """Generates at most `limit` tokens after each prompt, a screen's row and ids, greedily; returns the tokens."""
    found: list[list[int]] = []
    most = max(1, ROWS // seen.shape[1])
    for at in range(0, len(asked), most):
        found += _decoded(net, batcher, seen, grid, asked[at : at + most], limit)
    return found


def _decoded(
    net: TinyNet, batcher: PageBatcher, seen: Tensor, grid: Grid, asked: Sequence[tuple[int, list[int]]], limit: int
) -> list[list[int]]:
    merge = net.vision["spatial_merge_size"]
    packed = pack([[ids] for _, ids in asked], (grid.rows // merge, grid.columns // merge), 1, batcher.pad, net.starts)
    rows, last = torch.arange(len(asked)), torch.tensor(packed.lengths) - 1
    cache = _read_screens(net, seen, packed, [row for row, _ in asked], packed.segments.shape[1] + limit)
    start = cache.filled
    mask, positions = visible(packed.segments, net.dtype, start), packed.positions[:, :, start:]
    hidden = net.read(net.embed(packed.tokens), positions, mask, cache)[rows, last]
    place = positions[0, rows, last]
    past = torch.where(packed.segments < 0, -1e9, 0.0).to(net.dtype)[:, None, None]
    tokens: list[list[int]] = [[] for _ in asked]
    for step in range(limit):
        chosen = net.logits(hidden).argmax(-1)
        for written, token in zip(tokens, chosen.tolist(), strict=True):
            written.append(token)
        if step + 1 == limit:
            break
        place, past = place + 1, torch.cat([past, past.new_zeros(len(asked), 1, 1, 1)], dim=-1)
        hidden = net.read(net.embed(chosen)[:, None], place.expand(3, 1, -1).transpose(1, 2), past, cache)[:, 0]
    return tokens


def _read_screens(net: TinyNet, seen: Tensor, packed: PackedRows, asked: Sequence[int], length: int) -> Cache:
    """Reads each screen once, and returns a cache with room for `length` tokens whose rows begin with these screens."""
    chosen = sorted({*asked})
    count = seen.shape[1]
    screens, cache = net.new_cache(len(chosen), count), net.new_cache(len(asked), length)
    mask = visible(torch.zeros(1, count, dtype=torch.long), net.dtype)
    net.read(seen[chosen], packed.positions[:, :1, :count].expand(3, len(chosen), count), mask, screens)
    rows = [chosen.index(row) for row in asked]
    cache.keys[:, :, :, :count], cache.values[:, :, :, :count] = screens.keys[:, rows], screens.values[:, rows]
    cache.filled = count
    return cache
