"""Makes batches of questions about rendered pages, and computes their outputs.

All questions about a screen are packed behind its encoding, as in `learning.engines.tiny.batches`. A screen is shifted
by a few pixels or, if it is larger than the largest picture, cropped; questions then ask only about the crop. The last
steps show whole screens. Four additional targets speed up learning: the letter in each cell of the picture, the place
of each screen token, the screen token that a head of the last text layer should look at, and the letter that a reading
head writes after a look at a cell.
"""

import json
import random
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from tokenizers import Tokenizer
from torch import Tensor

from learning.algorithms.losses import entropies, place_logprobs, token_logprobs
from learning.data.pages import Box, PageElement, PageSample, TextLine, elements_of, lines_of
from learning.data.sample import PLACE
from learning.engines.engine import Outputs, SampleRef
from learning.engines.tiny.batches import SCREEN, BatchRow, ReplyTokens
from models.families.dialects import format_reply
from models.families.outside import SELECTOR, marked, marked_action
from models.families.prompt import WHAT_CHANGED, WHAT_WAS_DONE
from models.thoughts import templated_thought
from models.tiny.build import PixelCache, canvas_of, grid_of, patches_of
from models.tiny.network import Grid, PackedRows, TinyNet, pack, visible
from models.tiny.tokens import BINS, END, START
from schemas.action import Action, Click, Type, from_json
from schemas.config.policy import PolicyConfig
from schemas.config.training import PretrainConfig, TrainConfig

CELL = (4, 8)
"""Width and height in pixels of a cell with at most one letter."""
LETTERS = {chr(code): number for number, code in enumerate(range(33, 127), 1)}
"""Class of each letter; 0 is no letter."""
CLASSES = len(LETTERS) + 1
READS, POINTS, NAMES = 0, 1, 2
"""Where heads of the last text layer look: at the next letter to write, at the place to act on, and at a letter of a
name to point at. Reading heads do the first; head `POINTS` does the others."""
READERS = (0, 2, 3, 4)
"""Reading heads by the quarter of a screen token that holds the next letter, row by row; the other three look at the
start of the screen. A token has several letters, so a single head could not tell which one is next. A network with
fewer heads has one reading head, the first."""
READ_LINE = f"Read the line at {PLACE}."
STATE = "Is the element at {place} {state}?"
STATES = ("checked", "selected", "disabled", "focused", "hovered", "expanded")
YES, NO = "Yes.", "No."
PHRASES = (
    *READ_LINE.split(PLACE),
    "Is the element at ",
    *(f" {state}?" for state in STATES),
    *(WHAT_CHANGED, WHAT_WAS_DONE, YES, NO),
)
"""Fixed texts of questions and answers, each one token of the base's tokeniser."""
TYPED = (
    'Type "{}".',
    'Write "{}" here.',
    "Put {} down, then save.",
    'The field needs "{}".',
    '"{}" belongs here, so fill it in and send it.',
)
"""Wordings of an instruction to type a text."""
WORD = 12
"""Maximum characters of a word of the screen to type."""
LONGEST = 40
"""Maximum characters of a text to read or of a name to point at."""
MAX_TOKENS = 2560
"""Maximum screen tokens, or without windows patches, in one forward pass; a larger screen is alone in its pass."""


@dataclass(frozen=True, slots=True)
class View:
    """The part of a screen that a picture shows."""

    left: int
    """Pixel of the screen at the picture's left edge; negative if the screen is moved to the right."""
    top: int
    width: int
    height: int
    whole: bool
    """Whether nothing but a shift's margin is cut off."""

    def moved(self, action: Action, size: tuple[int, int]) -> Action | None:
        """Expresses an action on the whole screen of this size in [0, 1] of the picture; None if it is outside."""
        fields = action.model_dump()
        found: dict[str, float] = {}
        for axis in ("x", "y", "to_x", "to_y"):
            if axis in fields:
                down = axis.endswith("y")
                start, side = (self.top, self.height) if down else (self.left, self.width)
                found[axis] = (fields[axis] * size[down] - start) / side
        if any(not 0 <= place <= 1 for place in found.values()):
            return None
        return action.model_copy(update=found)

    def point(self, x: float, y: float) -> Click:
        """Clicks on a pixel of the screen that the picture shows."""
        return Click(x=(x - self.left) / self.width, y=(y - self.top) / self.height)

    def holds(self, box: Box) -> bool:
        """Checks whether a box of the screen in pixels is inside the picture."""
        left, top, right, bottom = box
        return (
            self.left <= left <= right <= self.left + self.width and self.top <= top <= bottom <= self.top + self.height
        )


@dataclass(frozen=True, slots=True)
class VisibleTexts:
    """The elements and lines that are inside a view."""

    elements: Sequence[PageElement]
    lines: Sequence[TextLine]
    read: Mapping[int, TextLine]
    """The line that writes an element's name, by the element's index; not for names that no line writes."""

    @property
    def unique(self) -> list[int]:
        """Lists the indices of elements whose name is written, and is no other element's."""
        counts = Counter(element.name for element in self.elements)
        return [number for number in self.read if counts[self.elements[number].name] == 1]


def visible_in(view: View, sample: PageSample) -> VisibleTexts:
    """Selects the elements and lines of a screen that are inside a view."""
    elements = [one for one in elements_of(sample) if view.holds(one.box)]
    lines = [line for line in lines_of(sample) if line.text.strip() and view.holds(line.box)]
    read: dict[int, TextLine] = {}
    for number, element in enumerate(elements):
        if 0 < len(element.name) <= LONGEST and '"' not in element.name:
            within = (line for line in lines if line.text.strip() == element.name and _inside(line, element.box))
            if (line := next(within, None)) is not None:
                read[number] = line
    return VisibleTexts(elements, lines, read)


def _inside(line: TextLine, box: Box) -> bool:
    x, y = (line.box[0] + line.box[2]) / 2, line.middle
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


@dataclass(slots=True)
class PageRow(BatchRow):
    """Questions about one screen."""

    gaze: list[tuple[int, int, float, float]] = field(default_factory=list)
    """(column, kind, x, y): where a head should look from a text token, in pixels of the picture."""


@dataclass(frozen=True, slots=True)
class _Member:
    """One sample of a batch: its index, questions, view, screens, and cells with token, cell, class and weight."""

    index: int
    row: PageRow
    view: View
    screenshots: Sequence[str]
    letters: Sequence[tuple[int, int, int, float]]


@dataclass(frozen=True, slots=True)
class PageBatch:
    """One forward pass over screens of one grid; n is the number of its target tokens."""

    patches: Tensor
    grid: Grid
    screens: int
    """Screens per row."""
    packed: PackedRows | None
    """None for screens that only teach letters."""
    rows: Tensor
    """(n,) row of every target."""
    columns: Tensor
    """(n,) text position that predicts each target."""
    targets: Tensor
    """(n,) token ids of the targets."""
    places: Tensor
    """(n,) exact place in bins, or -1 if the target is no coordinate."""
    weights: Tensor
    """(n,)."""
    cells: Tensor
    """(k, 3) number of the screen in the pass, token, and cell within the token."""
    letters: Tensor
    """(k,) class of the letter in each cell."""
    cell_weights: Tensor
    """(k,)."""
    gaze: Tensor
    """(j, 4) row, column, head, and token of the row's last screen, counted with its start."""
    gaze_weights: Tensor
    """(j,)."""
    copies: Tensor
    """(c, 4) row, reading head, token as in `gaze`, and id of the letter, for each letter of the last screens."""
    copy_weights: Tensor
    """(c,)."""
    members: tuple[int, ...]
    """Index of each row's document among the given documents."""
    first: Tensor
    """For each token id, bin 0 of the token's family of coordinates, or -1."""
    sigma: float
    """Spread of a place over neighbouring bins, in bins."""

    @property
    def tokens(self) -> int:
        """Counts the tokens that the text stack or, for letters alone, the vision tower processes."""
        if self.packed is None:
            return self.patches.shape[0] * self.patches.shape[1]
        return int((self.packed.segments >= 0).sum())


def page_outputs(net: TinyNet, piece: PageBatch) -> Outputs:
    """Computes the outputs of a piece; targets are ordered: first plain tokens, then places."""
    screens = net.see(piece.patches, piece.grid)
    width, nothing = screens.shape[-1], screens.new_zeros(0)
    none = torch.zeros(0, dtype=torch.long)
    if piece.packed is None:
        return Outputs(nothing, screens.new_zeros(0, width), nothing, none, none, screens=screens)
    lead = net.lead(screens, len(piece.packed.tokens))
    mask = visible(piece.packed.segments, net.dtype, lead.shape[1])
    text = net.read_after(lead, net.embed(piece.packed.tokens), piece.packed.positions, mask)
    hidden = text.hidden[piece.rows, piece.columns]
    logits, soft = net.logits(hidden), piece.places >= 0
    bins = piece.first[piece.targets[soft]]
    logprobs = torch.cat(
        [
            token_logprobs(logits[~soft], piece.targets[~soft]),
            place_logprobs(logits[soft], piece.places[soft], bins, BINS, piece.sigma),
        ]
    )
    weights = torch.cat([piece.weights[~soft], piece.weights[soft]])
    nowhere = torch.full((len(logprobs),), -1)
    return Outputs(
        logprobs,
        hidden,
        weights,
        nowhere,
        nowhere,
        entropies(logits),
        screens=screens,
        known=text.screens.reshape(len(screens), -1, width)[:, net.starts :],
        gaze=_attention(text.queries, text.keys, piece),
        copied=_copied(net, text.values, piece),
    )


def _attention(queries: Tensor, keys: Tensor, piece: PageBatch) -> Tensor:
    """Computes the log share of the attention at the last screen that goes to the token to look at, (j,)."""
    rows, columns, heads, tokens = piece.gaze.unbind(1)
    last = _last_screens(keys, piece)
    scores = torch.einsum("jd,jsd->js", queries[rows, heads, columns] * keys.shape[-1] ** -0.5, last[rows, heads])
    return token_logprobs(scores, tokens)


def _copied(net: TinyNet, values: Tensor, piece: PageBatch) -> Tensor:
    """Computes the log probability of each letter by a reading head that looks at it, (c,)."""
    rows, heads, tokens, letters = piece.copies.unbind(1)
    return token_logprobs(net.head_logits(_last_screens(values, piece)[rows, heads, tokens], heads), letters)


def _last_screens(screens: Tensor, piece: PageBatch) -> Tensor:
    """Selects keys or values (B, heads, S, head) of each row's last screen."""
    return screens[:, :, screens.shape[2] // piece.screens * (piece.screens - 1) :]


class PageBatcher(ReplyTokens):
    """Makes batches of pages.

    Args:
        tokenizer: the policy's tokeniser.
        net: the network, for its patch size.
        pngs: PNG by sha256. policy, train: configs of the dialect, and of questions and shifts.
        steps: optimiser steps of the training.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        net: TinyNet,
        pngs: Mapping[str, bytes],
        policy: PolicyConfig,
        train: TrainConfig,
        steps: int,
    ) -> None:
        super().__init__(tokenizer, policy)
        self._train, self._steps = train, steps
        self._settings: PretrainConfig = train.pretrain
        self._patch, self._merge = net.vision["patch_size"], net.vision["spatial_merge_size"]
        self._dtype, self._pixels = net.dtype, PixelCache(pngs)
        self._windowed, self._starts = net.windowed, net.starts
        self._window: int = net.vision.get("window_size", 0) // (self._patch * self._merge) * self._patch * self._merge
        self.block = self._patch * self._merge
        """Side of a screen token in pixels."""
        self._readers = READERS if net.heads > max(READERS) else READERS[:1] * len(READERS)
        self._letter_ids = {number: self._ids(letter)[0] for letter, number in LETTERS.items()}

    def batches(
        self, samples: Sequence[PageSample], refs: Sequence[SampleRef], seed: int, rank: int = 0, world: int = 1
    ) -> list[PageBatch]:
        """Makes this rank's part of a step: one piece for each grid and number of screens.

        The step, from the position in the training, decides whether screens teach only letters, and whether they are
        whole. Each sample's own seed decides its view and its questions.
        """
        made: dict[tuple[Grid, int, bool], list[_Member]] = {}
        for index in range(rank, len(samples), world):
            sample, ref = samples[index], refs[index]
            step = ref.position // self._train.batch
            draw = random.Random(hash((seed, ref.position)))
            lines, alone = lines_of(sample), step < self._settings.letters_steps
            row, pair = PageRow(), False
            if alone and self._windowed:
                views = self._windows(sample, lines, draw)
            else:
                whole = step >= self._steps * (1 - self._settings.whole_share)
                view = self._view(sample, None if whole else self._crop(seed, step), draw)
                views = [view]
                if not alone:
                    pair = len(sample.screenshots) > 1 and draw.random() < self._settings.pairs and view.whole
                    row = self._row(sample, view, pair, draw)
            for each in views:
                grid = grid_of(each.height, each.width, self._patch, self._merge)
                letters = self._letters(lines, each, grid.rows * grid.columns // self._merge**2, len(views), draw)
                member = _Member(index, row, each, sample.screenshots[-1 - pair :], letters)
                made.setdefault((grid, 1 + pair, alone), []).append(member)
        pieces: list[PageBatch] = []
        for (grid, screens, alone), members in sorted(made.items()):
            counted = grid.rows * grid.columns * screens // (self._merge**2 if self._windowed else 1)
            most = max(1, MAX_TOKENS // counted)
            pieces += [self._laid(grid, members[at : at + most], alone) for at in range(0, len(members), most)]
        return pieces

    def whole_view(self, sample: PageSample) -> View:
        """Returns the view of a whole screen that is not moved."""
        return View(0, 0, sample.width, sample.height, True)

    def see(self, net: TinyNet, samples: Sequence[PageSample]) -> tuple[Tensor, Grid]:
        """Encodes whole screens of equal size, (B, tokens, hidden)."""
        grid = grid_of(samples[0].height, samples[0].width, self._patch, self._merge)
        canvases = [canvas_of(self._pixels(one.screenshots[-1]), grid, self._patch) for one in samples]
        return net.see(patches_of(canvases, self._patch, self._merge, self._dtype), grid), grid

    def where(self, view: View, element: PageElement) -> tuple[list[int], list[tuple[int, float]], int]:
        """Makes the question of a place: the prompt, the reply, and the number of the reply's given tokens."""
        reply = self._written(_centre(element, view))
        places = [index for index, (_, place) in enumerate(reply) if place >= 0]
        return self._ids(f'"{marked(element.name)}"'), reply[: places[-1] + 1], places[0]

    def what(self, view: View, x: float, y: float) -> list[int]:
        """Makes the question of the name at a pixel."""
        return [token for token, place in self._written(view.point(x, y)) if place >= 0]

    def read_line(self, view: View, x: float, y: float) -> list[int]:
        """Makes the question of the line at a pixel."""
        return self._ids(f"{READ_LINE.replace(PLACE, self._family.write(view.point(x, y), SCREEN))}{START}")

    def pixel(self, tokens: Sequence[int], view: View) -> tuple[float, float] | None:
        """Reads a place from its two coordinate tokens, in pixels of the screen; None for other tokens."""
        starts = [int(self.first[token]) if token < len(self.first) else -1 for token in tokens]
        if len(tokens) != 2 or starts[0] < 0 or starts[1] < 0 or starts[0] == starts[1]:
            return None
        x, y = ((token - start) / (BINS - 1) for token, start in zip(tokens, starts, strict=True))
        return view.left + x * view.width, view.top + y * view.height

    def quoted(self, tokens: Sequence[int]) -> str:
        """Reads the name that a reply writes in quotes, up to the closing quote or the end."""
        text = self._tokenizer.decode([token for token in tokens if token < len(self.first)], skip_special_tokens=True)
        return text.removeprefix('"').partition('"')[0]

    def cells(self, lines: Iterable[TextLine], view: View) -> Iterable[tuple[int, int, int, float]]:
        """Yields token, cell within the token, class and font size of each letter of these lines in a view."""
        across = -(-view.width // self.block)
        for line in lines:
            y = line.middle - view.top
            for character, centre in zip(line.text, line.centres, strict=False):
                x = centre - view.left
                if character in LETTERS and 0 <= x < view.width and 0 <= y < view.height:
                    token = int(y) // self.block * across + int(x) // self.block
                    yield token, self._cell(x, y), LETTERS[character], line.font_px

    def _cell(self, x: float, y: float) -> int:
        """Finds the cell of a pixel in its screen token."""
        (wide, high), side = CELL, self.block
        return int(y) % side // high * (side // wide) + int(x) % side // wide

    def _reader(self, cell: int) -> int:
        """Finds the reading head of a cell."""
        across, down = (self.block // side for side in CELL)
        row, column = divmod(cell, across)
        return self._readers[row * 2 // down * 2 + column * 2 // across]

    def _crop(self, seed: int, step: int) -> tuple[int, int]:
        """Draws the largest width and height of a step's pictures. An area is the rarer, the more time it takes."""
        draw, settings = random.Random(hash((seed, -1 - step))), self._settings
        factor = (1 - draw.random() * (1 - settings.crop_growth**-2)) ** -0.5
        wide, high = (round(side * factor / self.block) for side in (settings.crop_width, settings.crop_height))
        return wide * self.block, high * self.block

    def _view(self, sample: PageSample, crop: tuple[int, int] | None, draw: random.Random) -> View:
        width, height = sample.width, sample.height
        wide, high = crop or (width, height)
        if width <= wide and height <= high:
            most = self._train.shift
            return View(draw.randint(-most, most), draw.randint(-most, most), width, height, True)
        wide, high = min(wide, width), min(high, height)
        boxes = [line.box for line in lines_of(sample)] or [(0, 0, width, height)]
        box = draw.choice(boxes)
        left = min(max(0, int((box[0] + box[2]) / 2 - draw.random() * wide)), width - wide)
        top = min(max(0, int((box[1] + box[3]) / 2 - draw.random() * high)), height - high)
        return View(left, top, wide, high, False)

    def _windows(self, sample: PageSample, lines: Sequence[TextLine], draw: random.Random) -> list[View]:
        """Chooses windows with letters, as many as cover the largest picture, of the screen moved by less than one.

        Patches attend within windows, so a window alone teaches the tower what it would teach in its picture. Most
        windows have no letters.
        """
        side = self._window
        left, top = -draw.randrange(side), -draw.randrange(side)
        places = {
            (int(line.middle - top) // side, int(x - left) // side)
            for line in lines
            if 0 <= line.middle < sample.height
            for character, x in zip(line.text, line.centres, strict=False)
            if character in LETTERS and 0 <= x < sample.width
        } or {(0, 0)}
        most = max(1, self._settings.crop_width * self._settings.crop_height // side**2)
        chosen = sorted(draw.sample(sorted(places), min(most, len(places))))
        return [View(left + side * column, top + side * row, side, side, False) for row, column in chosen]

    def _row(self, sample: PageSample, view: View, pair: bool, draw: random.Random) -> PageRow:
        row, shown = PageRow(), visible_in(view, sample)
        if pair:
            self._compare(row, sample, view, draw)
        if sample.action and (not pair or self._policy.context_rule.shown(2) > 1):
            self._act(row, sample, view, draw)
        if view.whole and not pair:
            asked = json.loads(sample.perceived)
            for question, answer, x, y in draw.sample(asked, min(2, len(asked))):
                self._perceive(row, sample, view, question, answer, x, y)
        self._states(row, shown, view, draw)
        for _ in range(self._settings.typing):
            self._type(row, shown, view, draw)
        kinds = Counter(element.kind for element in shown.elements)
        alone = [element for element in shown.elements if kinds[element.kind] == 1]
        for element in draw.sample(alone, min(self._settings.kinds, len(alone))):
            self._kind(row, element, view)
        left = max(0, self._settings.questions - len(row.questions))
        names, readable = shown.unique, [*shown.read]
        for number in draw.sample(names, min(left // 2, len(names))):
            self._where(row, shown.elements[number], shown.read[number], view)
        readings: list[Callable[[], None]] = [
            *(
                lambda at=number: self._label(row, shown.elements[at], shown.read[at], view, draw)
                for number in readable
            ),
            *(lambda of=line: self._line(row, of, view, draw) for line in shown.lines if len(line.text) <= LONGEST),
        ]
        for read in draw.sample(readings, min(left - left // 2, len(readings))):
            read()
        return row

    def _compare(self, row: PageRow, sample: PageSample, view: View, draw: random.Random) -> None:
        """Asks for the change between two screens, and for the action."""
        if sample.change:
            row.add(self._ids(f"{WHAT_CHANGED}{START}"), self._plain(marked(sample.change)), 1.0)
        done = view.moved(marked_action(from_json(sample.history[-1])), (sample.width, sample.height))
        if done is not None:
            self._answer(row, self._ids(f"{WHAT_WAS_DONE}{START}"), self._reply("", [done]), done, view)

    def _act(self, row: PageRow, sample: PageSample, view: View, draw: random.Random) -> None:
        """Asks for the instruction's next action, with or without a thought, as the acting policy is asked."""
        size, thinks = (sample.width, sample.height), self._policy.thoughts and draw.random() < 0.5
        past = [view.moved(marked_action(from_json(one)), size) for one in sample.history]
        action = view.moved(marked_action(from_json(sample.action)), size)
        if action is None or None in past:
            return
        parts = [self._family.asked(marked(sample.instruction), thinks)]
        for one in past:
            assert one is not None
            thought = templated_thought(one) if thinks else ""
            parts.append(f"{START}{format_reply(thought, self._family.write(one, SCREEN))}{END}")
        thought = templated_thought(action) if thinks else ""
        self._answer(row, self._ids("".join([*parts, START])), self._reply(thought, [action]), action, view)

    def _answer(
        self, row: PageRow, prompt: list[int], reply: list[tuple[int, float]], action: Action, view: View, skip: int = 0
    ) -> None:
        """Adds a question whose reply is an action; one head looks at the action's places."""
        start, fields = row.length + len(prompt) - 1, action.model_dump()
        points = [(fields[x], fields[y]) for x, y in (("x", "y"), ("to_x", "to_y")) if x in fields]
        places = [number for number, (_, place) in enumerate(reply) if place >= 0]
        each = len(places) // max(1, len(points))
        for number, place in enumerate(places):
            x, y = points[number // each]
            row.gaze.append((start + place, POINTS, x * view.width, y * view.height))
        row.add(prompt, reply, 1.0, skip)

    def _perceive(
        self, row: PageRow, sample: PageSample, view: View, question: str, answer: str, x: float | None, y: float | None
    ) -> None:
        place = None
        if x is not None and y is not None:
            place = view.moved(Click(x=x, y=y), (sample.width, sample.height))
            if place is None:
                return
            question = question.replace(PLACE, self._family.write(place, SCREEN))
        row.add(self._ids(f"{marked(question)}{START}"), self._plain(marked(answer)), 1.0)

    def _states(self, row: PageRow, shown: VisibleTexts, view: View, draw: random.Random) -> None:
        """Asks for up to two states of elements, as often for true as for false ones where there are both."""
        known = [(one, state, one.states[state]) for one in shown.elements for state in STATES if state in one.states]
        for value in (True, False):
            if some := [one for one in known if one[2] is value]:
                element, state, _ = draw.choice(some)
                x, y = _within(element.box, draw)
                place = self._family.write(view.point(x, y), SCREEN)
                asked = STATE.format(place=place, state=state)
                row.add(self._ids(f"{asked}{START}"), self._plain(YES if value else NO), 1.0)

    def _where(self, row: PageRow, element: PageElement, line: TextLine, view: View) -> None:
        """Adds the question of a place; a head looks at each letter of the name, and at the last one for the place.

        A token of a screen knows only those before it. So only the last token of a name can know the whole name.
        """
        prompt, reply, given = self.where(view, element)
        letters = self._letter_places(f'"{element.name}"', line, view, True)
        row.gaze += [(row.length + number, NAMES, x, y) for number, x, y in letters]
        start, last = row.length + len(prompt) - 1, line.centres[len(line.text.rstrip()) - 1] - view.left
        places = [start + number for number, (_, place) in enumerate(reply) if place >= 0]
        row.gaze += [(column, POINTS, last, line.middle - view.top) for column in places]
        row.add(prompt, reply, 1.0, given)

    def _kind(self, row: PageRow, element: PageElement, view: View) -> None:
        """Asks for the place of the only element of its kind."""
        _, reply, given = self.where(view, element)
        self._answer(row, self._ids(f"{element.kind}?"), reply, _centre(element, view), view, given)

    def _type(self, row: PageRow, shown: VisibleTexts, view: View, draw: random.Random) -> None:
        """Asks to type a word of the screen or a random one, as the acting policy is asked, perhaps after a click."""
        words = [word for line in shown.lines for word in line.text.split() if word.isalnum() and len(word) <= WORD]
        if words and draw.random() < 0.5:
            word = draw.choice(words)
        else:
            letters = string.ascii_lowercase if draw.random() < 0.5 else string.ascii_letters + string.digits
            word = "".join(draw.choices(letters, k=draw.randint(2, 8)))
            word = word.capitalize() if draw.random() < 0.5 else word
        thinks = self._policy.thoughts and draw.random() < 0.5
        parts = [self._family.asked(marked(draw.choice(TYPED).format(word)), thinks)]
        if draw.random() < 0.5:
            click = Click(x=draw.random(), y=draw.random())
            thought = templated_thought(click) if thinks else ""
            parts.append(f"{START}{format_reply(thought, self._family.write(click, SCREEN))}{END}")
        action = Type(content=word)
        thought = templated_thought(action) if thinks else ""
        self._answer(row, self._ids("".join([*parts, START])), self._reply(thought, [action]), action, view)

    def _letter_places(self, text: str, line: TextLine, view: View, quoted: bool) -> list[tuple[int, float, float]]:
        """Lists the tokens of a line's text, perhaps in quotes, that have letters of it, each with the place of its
        first letter in pixels of the picture."""
        found: list[tuple[int, float, float]] = []
        offset, written = len(line.text) - len(line.text.lstrip()) - quoted, marked(text)
        for number, span in enumerate(self._tokenizer.encode(written).offsets):
            start, end = (at - written.count(SELECTOR, 0, at) + offset for at in span)
            letters = (at for at in range(max(0, start), end) if at < len(line.centres) and not line.text[at].isspace())
            if (at := next(letters, None)) is not None and 0 <= at - offset - quoted < len(text) - 2 * quoted:
                found.append((number, line.centres[at] - view.left, line.middle - view.top))
        return found

    def _label(self, row: PageRow, element: PageElement, line: TextLine, view: View, draw: random.Random) -> None:
        self._read(row, self.what(view, *_within(element.box, draw)), f'"{element.name}"', line, view, quoted=True)

    def _line(self, row: PageRow, line: TextLine, view: View, draw: random.Random) -> None:
        self._read(row, self.read_line(view, *_within(line.box, draw)), line.text.strip(), line, view)

    def _read(
        self, row: PageRow, prompt: list[int], text: str, line: TextLine, view: View, quoted: bool = False
    ) -> None:
        """Adds a question whose reply is the text of a line; one head looks at the next letter."""
        start = row.length + len(prompt) - 1
        row.gaze += [(start + number, READS, x, y) for number, x, y in self._letter_places(text, line, view, quoted)]
        reply = [(token, -1.0) for token in self._ids(marked(text))]
        row.add(prompt, reply if quoted else [*reply, (self._end, -1.0)], 1.0)

    def _laid(self, grid: Grid, members: Sequence[_Member], alone: bool) -> PageBatch:
        rows, screens = [member.row for member in members], len(members[0].screenshots)
        canvases = [
            canvas_of(self._pixels(digest), grid, self._patch, -member.view.top, -member.view.left)
            for member in members
            for digest in member.screenshots
        ]
        across, down = grid.columns // self._merge, grid.rows // self._merge
        packed = None
        if not alone:
            packed = pack(
                [row.questions or [[self.pad]] for row in rows], (down, across), screens, self.pad, self._starts
            )
        marks = [(index, *mark) for index, row in enumerate(rows) for mark in _weighted(row.supervised)]
        index, columns, targets, places, weights = zip(*marks, strict=True) if marks else ((),) * 5
        gaze = [
            (
                index,
                column,
                self._reader(self._cell(x, y)) if kind == READS else POINTS,
                self._starts + min(int(y) // self.block, down - 1) * across + min(int(x) // self.block, across - 1),
            )
            for index, row in enumerate(rows)
            for column, kind, x, y in row.gaze
        ]
        looks = [weight for row in rows for weight in _shares(row.gaze)]
        idle = [
            ((row, column, other, 0), look / (len(self._readers) - 1))
            for (row, column, head, _), look in zip(gaze, looks, strict=True)
            if self._starts and head in self._readers
            for other in sorted({*self._readers} - {head})
        ]
        gaze += [where for where, _ in idle]
        looks += [look for _, look in idle]
        copies = [
            (index, self._reader(cell), self._starts + token, self._letter_ids[letter], 1 / len(found))
            for index, member in enumerate(members)
            if (found := [one for one in member.letters if one[2]])
            for token, cell, letter, _ in found
        ]
        cells = [
            ((number + 1) * screens - 1, *letter) for number, member in enumerate(members) for letter in member.letters
        ]
        return PageBatch(
            patches_of(canvases, self._patch, self._merge, self._dtype),
            grid,
            screens,
            packed,
            torch.tensor(index, dtype=torch.long),
            torch.tensor(columns, dtype=torch.long),
            torch.tensor(targets, dtype=torch.long),
            torch.tensor(places, dtype=torch.float32),
            torch.tensor(weights, dtype=torch.float32),
            torch.tensor([one[:3] for one in cells], dtype=torch.long).view(-1, 3),
            torch.tensor([one[3] for one in cells], dtype=torch.long),
            torch.tensor([one[4] for one in cells], dtype=torch.float32),
            torch.tensor(gaze, dtype=torch.long).view(-1, 4),
            torch.tensor(looks, dtype=torch.float32),
            torch.tensor([one[:4] for one in copies], dtype=torch.long).view(-1, 4),
            torch.tensor([one[4] for one in copies], dtype=torch.float32),
            tuple(member.index for member in members),
            self.first,
            self._train.soft_bins,
        )

    def _letters(
        self, lines: Sequence[TextLine], view: View, tokens: int, views: int, draw: random.Random
    ) -> list[tuple[int, int, int, float]]:
        """Lists the cells with letters, and as many empty ones: token, cell, class and weight.

        The weights of all `views` of a screen sum to 1.
        """
        if not self._settings.letters and not self._settings.copying:
            return []
        shown = (line for line in lines if view.top <= line.middle < view.top + view.height)
        found = {(token, cell): letter for token, cell, letter, _ in self.cells(shown, view)}
        per_token = (self.block // CELL[0]) * (self.block // CELL[1])
        empty = {(draw.randrange(tokens), draw.randrange(per_token)): 0 for _ in found}
        both = {**empty, **found}
        return [(token, cell, letter, 1 / len(both) / views) for (token, cell), letter in both.items()]


def _centre(element: PageElement, view: View) -> Click:
    left, top, right, bottom = element.box
    return view.point((left + right) / 2, (top + bottom) / 2)


def _within(box: Box, draw: random.Random) -> tuple[float, float]:
    left, top, right, bottom = box
    return left + (right - left) * draw.uniform(0.2, 0.8), top + (bottom - top) * draw.uniform(0.2, 0.8)


def _shares(gaze: Sequence[tuple[int, int, float, float]]) -> list[float]:
    """Gives the looks of each kind equal weights, whose sum is 1 for each kind."""
    counts = Counter(kind for _, kind, _, _ in gaze)
    return [1 / counts[kind] for _, kind, _, _ in gaze]


def _weighted(supervised: Sequence[tuple[int, int, float, float]]) -> list[tuple[int, int, float, float]]:
    """Gives the places and the other tokens of a screen equal weight, each 1 in sum."""
    places = sum(place >= 0 for _, _, place, _ in supervised)
    others = len(supervised) - places
    return [
        (column, target, place, weight / (places if place >= 0 else others))
        for column, target, place, weight in supervised
    ]
