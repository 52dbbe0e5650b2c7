"""Packs questions about the same screen into rows of tokens that share one encoded screen.

A row has one question, or several in training. Every question attends to the screen and to itself, never to another
question or its answer, and has the positions that it would have alone. So packing changes the cost of an answer, not
the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MULTIPLE = 16
"""Lengths are padded to multiples of this: the CPU library compiles a new kernel for every new shape."""
HIDDEN = -1e9


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows of text, padded to one length L, after `lead` screen tokens."""

    tokens: Tensor
    """(B, L) ids."""
    positions: Tensor
    """(3, B, lead + L): time, row, column."""
    segments: Tensor
    """(B, lead + L): 0 for screens, 1, 2, ... for questions, -1 for padding."""
    lengths: tuple[int, ...]
    """Text tokens per row."""


def pack(rows: Sequence[Sequence[Sequence[int]]], blocks: tuple[int, int], screens: int, pad: int) -> PackedRows:
    """Packs rows of questions (each a sequence of ids) after `screens` screens of (rows, columns) blocks each."""
    lead_positions, start = _screen_positions(blocks, screens)
    lead = lead_positions.shape[1]
    lengths = tuple(sum(map(len, row)) for row in rows)
    length = -(-max(lengths) // MULTIPLE) * MULTIPLE
    tokens = torch.full((len(rows), length), pad)
    segments = torch.full((len(rows), lead + length), -1)
    segments[:, :lead] = 0
    places = torch.zeros(len(rows), length, dtype=torch.long)
    for index, row in enumerate(rows):
        flat = [token for question in row for token in question]
        tokens[index, : len(flat)] = torch.tensor(flat)
        segments[index, lead : lead + len(flat)] = torch.tensor([k for k, q in enumerate(row, 1) for _ in q])
        places[index, : len(flat)] = torch.tensor([start + place for q in row for place in range(len(q))])
    head = lead_positions[:, None].expand(3, len(rows), lead)
    return PackedRows(tokens, torch.cat([head, places.expand(3, -1, -1)], dim=2), segments, lengths)


def visible(segments: Tensor, dtype: torch.dtype) -> Tensor:
    """Makes an additive attention mask (B, 1, L, L): causal; all tokens attend to screens, and a question only to
    itself."""
    queries, keys = segments[:, :, None], segments[:, None, :]
    order = torch.arange(segments.shape[1])
    seen = ((keys == 0) | (keys == queries)) & (order[:, None] >= order)
    return torch.where(seen, 0.0, HIDDEN).to(dtype).unsqueeze(1)


def _screen_positions(blocks: tuple[int, int], screens: int) -> tuple[Tensor, int]:
    """Computes positions (3, screens * rows * columns) of the screens, and the position of the first text token."""
    rows, columns = blocks
    step = max(blocks)
    grid = torch.stack(torch.meshgrid(torch.zeros(1).long(), torch.arange(rows), torch.arange(columns), indexing="ij"))
    return torch.cat([grid.reshape(3, -1) + step * screen for screen in range(screens)], dim=1), step * screens
