"""Defines the local judge's network: 1.3 million weights that read a point, the screens and the words.

Its reader maps the pixels around a point and names into the same space, so that the element at the point can be
compared with the instruction. Names are read by their parts, so that this also works for names that training did not
have.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.judges.local.features import BUCKETS, CANVAS, CROP, grams_of

WIDTH = 96
PART = 64
"""Width of a part of a name."""
SHADE = 60.0
"""Grey levels per unit, white is 0."""
SPOT = 0.04
"""Radius of the mark of the last point on the canvas, in fractions of its rows."""
Batch = Mapping[str, Tensor]


class PointNetwork(nn.Module):
    """Maps pixels around a point, and names, to unit vectors of one space, and recognises the kind of element."""

    def __init__(self, kinds: int) -> None:
        super().__init__()
        rows, columns = (size // 8 for size in CROP)
        self.look = nn.Sequential(
            nn.Conv2d(1, 24, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * rows * columns, 2 * WIDTH), nn.ReLU(),
        )  # fmt: skip
        self.place = nn.Linear(2 * WIDTH, WIDTH)
        self.kind = nn.Linear(2 * WIDTH, kinds)
        self.parts = nn.Embedding(BUCKETS, PART, padding_idx=0)
        self.name = nn.Sequential(nn.Linear(PART, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
        self.sharpness = nn.Parameter(torch.tensor(2.5))

    def seen(self, crops: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps grey levels (B, *CROP) to features (B, 2 * WIDTH), unit vectors (B, WIDTH) and kind logits."""
        found = self.look(shade(crops)[:, None])
        return found, F.normalize(self.place(found), dim=-1), self.kind(found)

    def named(self, grams: Tensor) -> Tensor:
        """Maps (..., GRAMS) parts to unit vectors (..., WIDTH); an empty name is 0."""
        there = (grams > 0).sum(-1, keepdim=True)
        mean = self.parts(grams).sum(-2) / there.clamp(min=1) ** 0.5
        return F.normalize(self.name(mean), dim=-1) * (there > 0)

    def match(self, seen: Tensor, named: Tensor) -> Tensor:
        """Computes logits (B, N) of (B, WIDTH) against (N, WIDTH)."""
        return seen @ named.T * self.sharpness.exp()


class JudgeNet(nn.Module):
    """Computes the logit that a case is a success.

    Args:
        kinds: the names of the kinds of elements that the reader distinguishes; may be empty.
        numbers: how many numbers a case has.
    """

    kinds: Tensor
    """(n, GRAMS) the names of the kinds."""

    def __init__(self, kinds: Sequence[str], numbers: int) -> None:
        super().__init__()
        self.reader = PointNetwork(len(kinds))
        self.register_buffer("kinds", torch.from_numpy(np.stack([grams_of(kind) for kind in kinds])))
        cells = -(-CANVAS[0] // 16) * -(-CANVAS[1] // 16)
        self.whole = nn.Sequential(
            nn.Conv2d(4, 16, 5, 2, 2), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(48, 48, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(48 * cells, WIDTH), nn.ReLU(),
        )  # fmt: skip
        self.facts = nn.Sequential(nn.Linear(numbers, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.order = nn.GRU(WIDTH, WIDTH, batch_first=True)
        near = 2 * (2 * WIDTH + len(kinds))
        self.near = nn.Sequential(nn.Linear(near, WIDTH), nn.ReLU())
        self.by_text = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.end = nn.Sequential(
            nn.Dropout(0.2), nn.Linear(7 * WIDTH + MATCHES, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 1)
        )

    def forward(self, batch: Batch) -> Tensor:
        """Computes logits (B,)."""
        words = self.reader.named(batch["words"])
        text = self._text(words, batch["words"])
        before, read, kind = self.reader.seen(batch["crops"][:, 0])
        after, read_after, kind_after = self.reader.seen(batch["crops"][:, 1])
        near = self.near(torch.cat([before, kind.softmax(-1), after, kind_after.softmax(-1)], -1))
        screens = torch.cat([shade(batch["screens"]), _spot(batch["point"])[:, None]], 1)
        parts = [near, self.whole(screens), self.facts(batch["numbers"])]
        bound = [part * gate(text) for part, gate in zip(parts, self.by_text, strict=True)]
        phrase = self.reader.named(batch["phrase"])
        called = kind.softmax(-1) @ self.reader.named(self.kinds)
        matches = torch.cat([_matches(one, words, phrase) for one in (read, read_after, called)], -1)
        return self.end(torch.cat([*parts, *bound, text, matches], -1)).squeeze(-1)

    def _text(self, words: Tensor, grams: Tensor) -> Tensor:
        """Encodes the instruction, (B, WIDTH): the state at its last word."""
        last = (grams[..., 0] > 0).sum(1).clamp(min=1) - 1
        return self.order(words * words.shape[-1] ** 0.5)[0][torch.arange(len(words)), last]


MATCHES = 3 * 3


def _matches(seen: Tensor, words: Tensor, phrase: Tensor) -> Tensor:
    """Compares features of crops with the quoted phrase and with the two best words; (B, 3)."""
    alike = (words @ seen[:, :, None]).squeeze(-1)
    best = alike.topk(2, dim=1).values
    return 4 * torch.stack([(seen * phrase).sum(-1), best[:, 0], best[:, 1]], -1)


def shade(grey: Tensor) -> Tensor:
    """Scales grey levels for the network."""
    return (grey.float() - 255) / SHADE


def _spot(point: Tensor) -> Tensor:
    """Draws a mark at a point of the canvas, (B, *CANVAS)."""
    rows, columns = CANVAS
    down = (torch.arange(rows) + 0.5)[None, :, None] / rows - point[:, 1, None, None]
    right = ((torch.arange(columns) + 0.5)[None, None] / columns - point[:, 0, None, None]) * (columns / rows)
    return 3 * torch.exp(-(down**2 + right**2) / (2 * SPOT**2))


def reading_loss(reader: PointNetwork, crops: Tensor, names: Tensor, which: Tensor, kinds: Tensor) -> Tensor:
    """Computes the contrastive loss of crops (B, *CROP) against different names (N, GRAMS), plus that of their kinds.

    Args:
        reader: the network that learns to read.
        crops: pixels around points.
        names: the different names among them.
        which: (B,) the name of each crop; -1 for an element without one.
        kinds: (B,) the kind of each.
    """
    _, seen, kind = reader.seen(crops)
    loss = F.cross_entropy(kind, kinds)
    with_name = which >= 0
    if with_name.any():
        loss = loss + F.cross_entropy(reader.match(seen[with_name], reader.named(names)), which[with_name])
    return loss


def numbered(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """Converts arrays of `features.stacked` to tensors."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
