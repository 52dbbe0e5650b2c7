"""Lays out documents that begin alike, so that a training computes what they share only once.

Prompts of a batch have the same system text, and samples of a group the same screens. The layout is a tree: a segment
of tokens is followed by the segments of the documents that continue it. A token attends to the earlier tokens of its
own segment and to the segments before it, which are all earlier tokens of its document. So all results are those of
separate documents. The module does not import torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

LEAST = 32
"""Minimum tokens that documents share, since each segment is a further sequence for attention."""

COPIED = 32
"""A shared segment behind another one has at least this part of the tokens up to its end, since their keys and values
are copied for it. Source: a token takes 59 to 164 times the memory of its copied keys and values in models of 2 to 8
billion weights."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens of one document, which others may share."""

    document: int
    """Index of a document with these tokens."""
    start: int
    """Place of the first token in each of these documents."""
    end: int
    """End of the segment in them."""
    before: tuple[int, ...]
    """Indices of the segments with all earlier tokens, in order."""


def share(keys: Sequence[npt.NDArray[np.int64]], own: Sequence[int], least: int = LEAST) -> list[Segment]:
    """Cuts documents into segments; a segment follows those before it.

    Documents with equal openings share them to their ends. So a batch never has more tokens than its openings, each
    once, and the rest of each document; a plan counts these (`learning.planning.alike`).

    Args:
        keys: for each document, a number for each token; tokens with equal numbers and equal predecessors are the same.
        own: for each document, the place from which it shares nothing, such as its first token that precedes a target.
        least: minimum tokens of a shared segment; at the end of equal openings, of the whole opening.

    Returns:
        The segments. The last segment of each document belongs to it alone and may have no token.
    """
    heads = [one[:end] for one, end in zip(keys, own, strict=True)]
    order = sorted(range(len(keys)), key=lambda at: heads[at].tolist())
    common = [0, *(_common(heads[one], heads[other]) for one, other in pairwise(order))]
    found = list[Segment]()
    waiting: list[tuple[int, int, int, tuple[int, ...]]] = [(0, len(order), 0, ())] if order else []
    while waiting:  # depth first, the next documents on top
        first, end, start, before = waiting.pop()
        document = order[first]
        if end - first == 1:
            found.append(Segment(document, start, len(keys[document]), before))
            continue
        shared = min(common[first + 1 : end])
        ends = len(heads[order[first + 1]]) == shared  # openings that end here come before longer ones
        saved = shared if ends else shared - start
        if saved >= (max(least, shared // COPIED) if start else least):
            found.append(Segment(document, start, shared, before))
            start, before = shared, (*before, len(found) - 1)
        cuts = [first, *(at for at in range(first + 1, end) if common[at] == shared), end]
        waiting += [(*part, start, before) for part in zip(cuts[-2::-1], cuts[:0:-1], strict=True)]
    return found


def _common(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> int:
    """Counts the numbers with which both begin."""
    size = min(len(one), len(other))
    different = np.flatnonzero(one[:size] != other[:size])
    return int(different[0]) if len(different) else size
