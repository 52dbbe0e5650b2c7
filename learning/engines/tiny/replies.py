"""Log probabilities of replies under the small policy: prompts and replies laid out as the policy plays them.

Screens are neither moved nor asked about: the log probabilities must be those of what was played.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from learning.data.rollouts import Rollout
from models.tiny.generator import read_tokenizer, token_id
from models.tiny.network import Grid, TinyNet
from models.tiny.packing import Packed, pack, visible
from models.tiny.screens import PixelCache, canvas_of, grid_of, patches_of
from models.tiny.tokens import END, PAD


@dataclass(frozen=True, slots=True)
class Replies:
    """Rollouts of one grid of screens, ready for a forward pass; n is the number of their reply tokens."""

    patches: Tensor
    grid: Grid
    screens: int
    packed: Packed
    rows: Tensor
    """(n,) row of each reply token."""
    columns: Tensor
    """(n,) text position that says it."""
    targets: Tensor
    """(n,) ids."""
    temperatures: Tensor
    """(n,) that logits are divided by."""
    members: tuple[int, ...]
    """Which of the rollouts handed in each row is."""


class ReplyLayer:
    """Lays rollouts out for a network.

    Args:
        checkpoint: its directory, for the tokeniser.
        net: the network (its patch size).
        pngs: PNG by sha256.
    """

    def __init__(self, checkpoint: Path, net: TinyNet, pngs: Mapping[str, bytes]) -> None:
        self._tokenizer = read_tokenizer(checkpoint)
        self._patch, self._merge = net.vision["patch_size"], net.vision["spatial_merge_size"]
        self._dtype = net.dtype
        self._pixels = PixelCache(pngs)
        self._ids = lru_cache(maxsize=100_000)(lambda text: self._tokenizer.encode(text).ids)
        self._pad, self._end = (token_id(self._tokenizer, token) for token in (PAD, END))

    def tokens(self, rollout: Rollout) -> tuple[int, ...]:
        """The reply's tokens: as they were drawn, else encoded, with an end."""
        return rollout.token_ids or (*self._ids(rollout.reply), self._end)

    def lay(self, rollouts: Sequence[Rollout]) -> list[Replies]:
        """One layout per grid and number of screens, as the policy batches its plays."""
        shown = [[self._pixels(sha) for sha in rollout.screenshots] for rollout in rollouts]
        groups: dict[tuple[Grid, int], list[int]] = {}
        for at, images in enumerate(shown):
            height, width = (max(image.shape[axis] for image in images) for axis in (0, 1))
            groups.setdefault((grid_of(height, width, self._patch, self._merge), len(images)), []).append(at)
        return [
            self._laid(
                [rollouts[at] for at in members],
                patches_of(
                    [canvas_of(image, grid, self._patch) for at in members for image in shown[at]],
                    self._patch,
                    self._merge,
                    self._dtype,
                ),
                grid,
                screens,
                tuple(members),
            )
            for (grid, screens), members in groups.items()
        ]

    def _laid(
        self, rollouts: list[Rollout], patches: Tensor, grid: Grid, screens: int, members: tuple[int, ...]
    ) -> Replies:
        lines, marks = [], []
        for row, rollout in enumerate(rollouts):
            prompt, reply = list(self._ids(rollout.prompt)), self.tokens(rollout)
            lines.append([[*prompt, *reply[:-1]]])
            marks += [(row, len(prompt) - 1 + at, token, rollout.temperature) for at, token in enumerate(reply)]
        rows, columns, targets, temperatures = zip(*marks, strict=True)
        blocks = (grid.rows // self._merge, grid.columns // self._merge)
        return Replies(
            patches,
            grid,
            screens,
            pack(lines, blocks, screens, self._pad),
            torch.tensor(rows),
            torch.tensor(columns),
            torch.tensor(targets),
            torch.tensor(temperatures, dtype=torch.float32),
            members,
        )


def reply_hidden(net: TinyNet, replies: Replies) -> Tensor:
    """The normed hidden state that says each reply token, (n, hidden)."""
    seen = net.see(replies.patches, replies.grid)
    seen = seen.reshape(replies.packed.tokens.shape[0], -1, seen.shape[-1])
    x = torch.cat([seen, net.embed(replies.packed.tokens)], dim=1)
    hidden = net.read(x, replies.packed.positions, visible(replies.packed.segments, net.dtype))
    return hidden[replies.rows, replies.columns + seen.shape[1]]


def said_logprobs(net: TinyNet, hidden: Tensor, replies: Replies) -> Tensor:
    """Log probability of each reply token, (n,), of logits divided by its temperature, from its hidden state."""
    shares = (net.logits(hidden).float() / replies.temperatures[:, None]).log_softmax(-1)
    return shares.gather(1, replies.targets[:, None])[:, 0]


def reply_logprobs(net: TinyNet, replies: Replies) -> Tensor:
    """Log probability of each reply token, (n,), of logits divided by its temperature."""
    return said_logprobs(net, reply_hidden(net, replies), replies)
