"""Defines the inputs of a forward pass of the small policy, and computes its outputs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from learning.algorithms.losses import entropies, place_logprobs, token_logprobs
from learning.engines.engine import Outputs
from models.tiny.network import Grid, TinyNet
from models.tiny.packing import PackedRows, visible
from models.tiny.tokens import BINS


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
    seen = net.see(piece.patches, piece.grid)
    seen = seen.reshape(piece.packed.tokens.shape[0], -1, seen.shape[-1])
    x = torch.cat([seen, net.embed(piece.packed.tokens)], dim=1)
    hidden = net.read(x, piece.packed.positions, visible(piece.packed.segments, net.dtype))
    return hidden[piece.rows, piece.columns + seen.shape[1]], seen


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
