"""Makes batches for the small policy, and computes the outputs of a forward pass.

A batch has screens, one row of tokens per sample, and the targets of the loss.

A row has the step's prompt and reply, then questions about the same screen, which is encoded once. The attention mask
separates the questions. Screens are moved by a few pixels, together with all coordinates in targets, questions and
history, so that the network reads a place from the screen instead of remembering it.
"""

import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from learning.algorithms.losses import entropies, place_logprobs, token_logprobs
from learning.data.documents import marked_sample, question_text
from learning.data.sample import TrainSample
from learning.engines.engine import Outputs
from learning.planning.balance import BalanceCost, Ints, longest_first, padded
from models.families.dialects import format_reply
from models.families.family import TinyFamily
from models.families.prompt import WHAT_CHANGED, WHAT_WAS_DONE
from models.tiny.build import PixelCache, Pixels, canvas_of, grid_of, patches_of
from models.tiny.generator import token_id
from models.tiny.network import MULTIPLE, Grid, PackedRows, TinyNet, pack, visible
from models.tiny.tokens import BINS, END, PAD, START, coordinate_tokens
from schemas.action import Action, Click, Type, from_json, from_json_list
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig


@dataclass(frozen=True, slots=True)
class Aims:
    """Targets of supervised rows other than single tokens: places, and words of screens."""

    places: Tensor
    """(n,) exact place in bins, or -1 if the target is no coordinate of an action."""
    first: Tensor
    """For each token id, bin 0 of the token's family of coordinates, or -1."""
    sigma: float
    """Spread of a place over neighbouring bins, in bins."""
    words: Tensor
    """(m, 3) row, block of the current screen, and id of a token that is visible in the block."""
    shares: Tensor
    """(m,) weight of each word."""


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One forward pass over rows of one grid and number of screens; n is the number of its target tokens."""

    patches: Tensor
    grid: Grid
    screens: int
    packed: PackedRows
    rows: Tensor
    """(n,) row of every target."""
    columns: Tensor
    """(n,) text position that predicts each target."""
    targets: Tensor
    """(n,) token ids of the targets."""
    weights: Tensor
    """(n,)."""
    members: tuple[int, ...]
    """Index of each row's document among the given documents."""
    tokens: Tensor
    """(n,) number of each target among the targets of all documents, or -1."""
    documents: Tensor
    """(n,) number of each target's document in the step, or -1."""
    temperatures: Tensor | None = None
    """(n,) divisors of the logits; None for 1."""
    aims: Aims | None = None


def read_piece(net: TinyNet, piece: ForwardBatch) -> tuple[Tensor, Tensor]:
    """Computes the normed hidden states before targets, (n, hidden), and the screens, (rows, tokens, hidden)."""
    screens, rows = net.see(piece.patches, piece.grid), len(piece.packed.tokens)
    lead = net.lead(screens, rows)
    mask = visible(piece.packed.segments, net.dtype, lead.shape[1])
    hidden = net.read_after(lead, net.embed(piece.packed.tokens), piece.packed.positions, mask).hidden
    return hidden[piece.rows, piece.columns], screens.reshape(rows, -1, screens.shape[-1])


def outputs_of(net: TinyNet, piece: ForwardBatch) -> Outputs:
    """Computes the outputs of a piece; supervised targets are ordered: first plain tokens, then places, then words."""
    hidden, seen = read_piece(net, piece)
    if piece.aims is not None:
        return _aimed(net, piece, piece.aims, hidden, seen)
    logits = net.logits(hidden)
    logprobs = token_logprobs(logits, piece.targets, piece.temperatures)
    entropy = entropies(logits, piece.temperatures) if torch.is_grad_enabled() else None
    return Outputs(logprobs, hidden, piece.weights, piece.tokens, piece.documents, entropy)


def _aimed(net: TinyNet, piece: ForwardBatch, aims: Aims, hidden: Tensor, seen: Tensor) -> Outputs:
    """Computes the outputs of a piece with places and words.

    A place's log probability is the weighted mean over the bins of its spread. Entropies are only those of text tokens.
    """
    logits, soft = net.logits(hidden), aims.places >= 0
    bins = aims.first[piece.targets[soft]]
    found = [
        (token_logprobs(logits[~soft], piece.targets[~soft]), hidden[~soft], piece.weights[~soft]),
        (place_logprobs(logits[soft], aims.places[soft], bins, BINS, aims.sigma), hidden[soft], piece.weights[soft]),
    ]
    if len(aims.words):
        rows, blocks, tokens = aims.words.unbind(1)
        shown = seen[rows, seen.shape[1] // piece.screens * (piece.screens - 1) + blocks]
        found.append((token_logprobs(net.word_logits(shown), tokens), shown, aims.shares))
    logprobs, behind, weights = (torch.cat(part) for part in zip(*found, strict=True))
    nowhere = torch.full((len(logprobs),), -1)
    return Outputs(logprobs, behind, weights, nowhere, nowhere, entropies(logits))


PER_TOKEN = BalanceCost(linear=1, quadratic=0)
SCREEN = (1000, 1000)
"""The small policy writes the same coordinates on a screen of any size."""
_AXES = ("x", "y", "to_x", "to_y")
Item = TypeVar("Item")


@dataclass(slots=True)
class BatchRow:
    """Questions about one screen, or about several, with the targets of the loss."""

    questions: list[list[int]] = field(default_factory=list)
    length: int = 0
    supervised: list[tuple[int, int, float, float]] = field(default_factory=list)
    """(column, target, place, weight)."""
    words: list[tuple[float, float, list[int]]] = field(default_factory=list)
    """Short names and their places: (x, y) in [0, 1] of the moved screen, and token ids."""

    def add(self, prompt: list[int], reply: list[tuple[int, float]], weight: float, skip: int = 0) -> None:
        """Adds prompt and reply; the loss covers the reply from its token `skip` on."""
        for index, (token, place) in enumerate(reply[skip:], skip):
            self.supervised.append((self.length + len(prompt) + index - 1, token, place, weight))
        tokens = [*prompt, *(token for token, _ in reply[:-1])]
        self.questions.append(tokens)
        self.length += len(tokens)


_Shown = list[tuple[Pixels, int, int]]
"""Screens, with their shifts down and right in pixels."""


class ReplyTokens:
    """Encodes texts and actions for the small policy.

    Args:
        tokenizer: the policy's tokeniser.
        policy: config of the dialect.
    """

    def __init__(self, tokenizer: Tokenizer, policy: PolicyConfig) -> None:
        self._tokenizer, self._policy = tokenizer, policy
        self._family = TinyFamily(policy)
        self._ids = lru_cache(maxsize=100_000)(lambda text: tokenizer.encode(text).ids)
        families = [[token_id(tokenizer, token) for token in family] for family in coordinate_tokens(policy.dialect)]
        self.first = torch.full((tokenizer.get_vocab_size(),), -1)
        """For each token id, bin 0 of the token's family of coordinates, or -1."""
        for family in families:
            self.first[family] = family[0]
        self._coordinates = {token for family in families for token in family}
        self.pad = token_id(tokenizer, PAD)
        self._end = token_id(tokenizer, END)

    def _reply(self, thought: str, actions: Sequence[Action]) -> list[tuple[int, float]]:
        tokens = [(token, -1.0) for token in self._ids(format_reply(thought, ""))]
        for number, action in enumerate(actions):
            tokens += [(token, -1.0) for token in self._ids("\n\n" if number else "")]
            tokens += self._written(action)
        return [*tokens, (self._end, -1.0)]

    def _plain(self, text: str) -> list[tuple[int, float]]:
        return [*((token, -1.0) for token in self._ids(text)), (self._end, -1.0)]

    def _written(self, action: Action) -> list[tuple[int, float]]:
        """Encodes an action's tokens; each coordinate token has its exact place in bins."""
        fields = action.model_dump()
        places = [fields[axis] * (BINS - 1) for axis in _AXES if axis in fields]
        if self._policy.dialect == "bbox4":
            places = [place for point in (places[:2], places[2:]) for place in point * 2]
        waiting = iter(places)
        ids = self._tokenizer.encode(self._family.write(action, SCREEN)).ids
        return [(token, next(waiting, -1.0) if token in self._coordinates else -1.0) for token in ids]


class Batcher(ReplyTokens):
    """Makes batches of samples.

    Args:
        tokenizer: the policy's tokeniser.
        net: the network, for its patch size.
        pngs: PNG by sha256. policy, train: configs of the dialect, and of questions and shifts.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        net: TinyNet,
        pngs: Mapping[str, bytes],
        policy: PolicyConfig,
        train: TrainConfig,
    ) -> None:
        super().__init__(tokenizer, policy)
        self._pngs, self._train = pngs, train
        self._patch, self._merge = net.vision["patch_size"], net.vision["spatial_merge_size"]
        self._dtype, self._starts = net.dtype, net.starts
        self._pixels = PixelCache(pngs)
        self._patch_cost = 1 / self._merge**2 + net.vision_parameters / net.text_parameters

    def batches(
        self, samples: Sequence[TrainSample], seeds: Sequence[tuple[int, ...]], rank: int = 0, world: int = 1
    ) -> list[ForwardBatch]:
        """Makes this rank's part of the batch of these samples, with shifts and questions by each sample's own seed.

        A row has only its own screens, on the smallest grid that holds them, as in acting. So there is one batch for
        each grid and number of screens, and none if this rank gets no rows. Rows are padded to the longest row of a
        batch.
        """
        made = [self._made(sample, seed) for sample, seed in zip(samples, seeds, strict=True)]
        members = [index for index, (row, _) in enumerate(made) if row.supervised]
        kinds = {index: (self._grid(made[index][1]), len(made[index][1])) for index in members}
        if world > 1 and self._train.balance:
            costs = [self._cost(*made[index]) for index in members]
            plan = _fairest(costs, [kinds[index] for index in members], world)
            members = [members[place] for place in np.flatnonzero(plan == rank)]
        else:
            members = members[rank::world]
        alike = _groups_of(members, [kinds[index] for index in members])
        return [
            self._lay(grid, *zip(*(made[index] for index in chosen), strict=True), members=tuple(chosen))
            for (grid, _), chosen in sorted(alike.items())
        ]

    def tokens(self, sample: TrainSample, seed: tuple[int, ...]) -> int:
        """Counts a sample's cost in tokens of text, including screens, as `batches` balances it."""
        return self._cost(*self._made(sample, seed))

    def _made(self, sample: TrainSample, seed: tuple[int, ...]) -> tuple[BatchRow, _Shown]:
        sample, draw = marked_sample(sample), random.Random(hash(seed))
        images = [self._pixels(sha) for sha in sample.visible_screens(self._family.rule)]
        down, right = (draw.randint(-self._train.shift, self._train.shift) for _ in range(2))
        shift = (right / images[-1].shape[1], down / images[-1].shape[0])
        row = self._row(sample, shift, draw)
        if row is None:
            down, right, row = 0, 0, self._row(sample, (0.0, 0.0), draw)
        return row or BatchRow(), [(image, down, right) for image in images]

    def _cost(self, row: BatchRow, shown: _Shown) -> int:
        """Counts a row's cost in tokens of text, including screens."""
        grid = self._grid(shown)
        screens = len(shown) * grid.rows * grid.columns * self._patch_cost
        return round(screens) + -(-row.length // MULTIPLE) * MULTIPLE

    def _grid(self, shown: _Shown) -> Grid:
        """Finds the grid that holds all screens of a row."""
        height, width = (max(image.shape[axis] for image, _, _ in shown) for axis in (0, 1))
        return grid_of(height, width, self._patch, self._merge)

    def _lay(
        self, grid: Grid, rows: Sequence[BatchRow], shown: Sequence[_Shown], members: tuple[int, ...]
    ) -> ForwardBatch:
        screens = len(shown[0])
        canvases = [
            canvas_of(image, grid, self._patch, down, right) for images in shown for image, down, right in images
        ]
        marks = [(index, *mark) for index, row in enumerate(rows) for mark in row.supervised]
        index, column, target, place, weight = zip(*marks, strict=True)
        words = [
            (index, self._block(place, images[-1][0], grid), token, 1 / len(place[2]))
            for index, (row, images) in enumerate(zip(rows, shown, strict=True))
            for place in row.words
            for token in place[2]
        ]
        nowhere = torch.full((len(marks),), -1)
        return ForwardBatch(
            patches_of(canvases, self._patch, self._merge, self._dtype),
            grid,
            screens,
            pack(
                [row.questions for row in rows],
                (grid.rows // self._merge, grid.columns // self._merge),
                screens,
                self.pad,
                self._starts,
            ),
            torch.tensor(index),
            torch.tensor(column),
            torch.tensor(target),
            torch.tensor(weight),
            members,
            nowhere,
            nowhere,
            aims=Aims(
                torch.tensor(place),
                self.first,
                self._train.soft_bins,
                torch.tensor([word[:3] for word in words]).view(-1, 3),
                torch.tensor([word[3] for word in words]) * self._train.words,
            ),
        )

    def _block(self, place: tuple[float, float, list[int]], pixels: Pixels, grid: Grid) -> int:
        """Finds the block of the canvas that contains a place of the screen."""
        size = self._patch * self._merge
        column, row = int(place[0] * pixels.shape[1]) // size, int(place[1] * pixels.shape[0]) // size
        return row * (grid.columns // self._merge) + column

    def _row(self, sample: TrainSample, shift: tuple[float, float], draw: random.Random) -> BatchRow | None:
        """Makes a sample's row, or None if the shift moves its target off the screen."""
        row = BatchRow()
        if sample.kind == "video":
            self._family.video_rule()  # the small policy takes no video
        if sample.kind == "transition":
            row.add(self._ids(f"{WHAT_CHANGED}{START}"), self._plain(sample.thought), QUESTION_WEIGHT)
        if sample.kind == "perception":
            return self._perception(row, sample, shift)
        if sample.actions:
            actions = [moved for one in from_json_list(sample.actions) if (moved := _moved(one, shift))]
            if len(actions) < len(sample.actions):
                return None
            row.add(self._prompt(sample, shift), self._reply(sample.thought, actions), 1.0)
        if self._train.words > 0:
            for question in sample.questions:
                moved = _moved(Click(x=question.x, y=question.y), shift)
                ids = self._ids(question.name)
                if isinstance(moved, Click) and max(moved.x, moved.y) < 1 and len(ids) <= SHORT:
                    row.words.append((moved.x, moved.y, ids))
        where, what = self._train.grounding, self._train.reading
        if sample.kind == "naming":
            where, what = 0, max(1, what, where)
        for ask, most in ((self._where, where), (self._label, what)):
            for question in draw.sample(sample.questions, min(most, len(sample.questions))):
                click = _moved(Click(x=question.x, y=question.y), shift)
                if click is not None:
                    ask(row, question.name, self._written(click))
        if sample.questions and sample.kind == "step" and draw.random() < self._train.copying:
            self._copy(row, draw.choice(sample.questions).name)
        return row if row.questions else None

    def _perception(self, row: BatchRow, sample: TrainSample, shift: tuple[float, float]) -> BatchRow | None:
        """Makes a question about a screen; the place in the question moves with the screen."""
        place = None if sample.asked_at is None else _moved(from_json(sample.asked_at), shift)
        if sample.asked_at is not None and place is None:
            return None
        asked = question_text(sample, lambda click: self._family.write(place or click, SCREEN))
        row.add(self._ids(f"{asked}{START}"), self._plain(sample.thought), QUESTION_WEIGHT)
        return row

    def _copy(self, row: BatchRow, text: str) -> None:
        """Adds a task to copy: a quoted text, answered by typing it."""
        typed = self._ids(self._family.write(Type(content=text), SCREEN))
        row.add(self._ids(f'Type "{text}".'), [(token, -1.0) for token in typed], QUESTION_WEIGHT)

    def _where(self, row: BatchRow, name: str, reply: list[tuple[int, float]]) -> None:
        """Adds a task of grounding: a name, answered by a place."""
        places = [index for index, (_, place) in enumerate(reply) if place >= 0]
        row.add(self._ids(f'"{name}"'), reply[: places[-1] + 1], QUESTION_WEIGHT, places[0])

    def _label(self, row: BatchRow, name: str, reply: list[tuple[int, float]]) -> None:
        """Adds a task of reading: a place, answered by a name."""
        place = [token for token, at in reply if at >= 0]
        row.add(place, [(token, -1.0) for token in self._ids(f'"{name}"')], QUESTION_WEIGHT)

    def _prompt(self, sample: TrainSample, shift: tuple[float, float]) -> list[int]:
        """Encodes instruction and history as `prompt_text` writes them; with two screens, only the question."""
        if sample.kind == "inverse_dynamics":
            return self._ids(f"{WHAT_WAS_DONE}{START}")
        parts = [self._family.asked(sample.instruction, sample.thinks)]
        for past in sample.history:
            actions = [_moved(action, shift) or action for action in from_json_list(past.actions)]
            text = self._family.write_actions(actions, SCREEN)
            parts.append(f"{START}{format_reply(past.thought, text)}{END}")
        return self._tokenizer.encode("".join([*parts, START])).ids


def _groups_of(rows: Sequence[Item], kinds: Sequence[Hashable]) -> dict[Any, list[Item]]:
    """Groups rows by their kind."""
    alike: dict[Any, list[Item]] = {}
    for row, kind in zip(rows, kinds, strict=True):
        alike.setdefault(kind, []).append(row)
    return alike


def _fairest(costs: Sequence[int], kinds: Sequence[Hashable], ranks: int) -> Ints:
    """Assigns rows to ranks by the better of two plans, (n,).

    Rows of one kind are one batch, padded to its longest row. So the plan for padded rows is best if all rows are of
    one kind, and the plan by sums if they differ.
    """

    def slowest(plan: Ints) -> int:
        parts = [np.flatnonzero(plan == rank).tolist() for rank in range(ranks)]
        groups = [_groups_of([costs[at] for at in part], [kinds[at] for at in part]) for part in parts]
        return max(sum(len(group) * max(group) for group in found.values()) for found in groups)

    return min(padded(costs, ranks, PER_TOKEN), longest_first(costs, ranks), key=slowest)


QUESTION_WEIGHT = 1.0
"""Weight of a token of an answer to a question; a token of the reply has 1."""


SHORT = 2
"""Maximum tokens of a name that belongs to one block; longer names extend over several blocks."""


def _moved(action: Action, shift: tuple[float, float]) -> Action | None:
    """Shifts the action with the screen; None if it leaves the screen."""
    if shift == (0.0, 0.0):
        return action
    fields = action.model_dump()
    moved = {axis: fields[axis] + shift[axis.endswith("y")] for axis in _AXES if axis in fields}
    if any(not 0 <= place <= 1 for place in moved.values()):
        return None
    return action.model_copy(update=moved)
