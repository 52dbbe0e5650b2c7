"""Prompts and replies laid out for the small policy as it acts.

Screens are neither moved nor asked about: log probabilities must be those of what was generated.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from learning.data.rollouts import Rollout
from learning.engines.tiny.forward import Piece
from models.tiny.generator import read_tokenizer, token_id
from models.tiny.network import Grid, TinyNet
from models.tiny.packing import pack
from models.tiny.screens import PixelCache, canvas_of, grid_of, patches_of
from models.tiny.tokens import END, PAD


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
        """The reply's tokens: as they were drawn, else encoded, with an end if it has one."""
        return rollout.token_ids or (*self._ids(rollout.reply), *([self._end] if rollout.ended else []))

    def lay(self, rollouts: Sequence[Rollout], numbers: Sequence[int], starts: Sequence[int]) -> list[Piece]:
        """One piece per grid and number of screens, as the policy batches its steps.

        Args:
            rollouts: what is laid out.
            numbers: the number of each in the step.
            starts: the number of its first token among those of all documents.
        """
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
                numbers,
                starts,
            )
            for (grid, screens), members in groups.items()
        ]

    def _laid(
        self,
        rollouts: list[Rollout],
        patches: Tensor,
        grid: Grid,
        screens: int,
        members: tuple[int, ...],
        numbers: Sequence[int],
        starts: Sequence[int],
    ) -> Piece:
        lines, marks = [], []
        for row, (rollout, member) in enumerate(zip(rollouts, members, strict=True)):
            prompt, reply = list(self._ids(rollout.prompt)), self.tokens(rollout)
            lines.append([[*prompt, *reply[:-1]]])
            number, start = numbers[member], starts[member]
            marks += [
                (row, len(prompt) - 1 + at, token, start + at, number, rollout.temperature)
                for at, token in enumerate(reply)
            ]
        *indices, temperatures = zip(*marks, strict=True)
        rows, columns, targets, tokens, documents = (torch.tensor(part) for part in indices)
        return Piece(
            patches,
            grid,
            screens,
            pack(lines, (grid.rows // self._merge, grid.columns // self._merge), screens, self._pad),
            rows,
            columns,
            targets,
            torch.ones(len(marks)),
            members,
            tokens,
            documents,
            torch.tensor(temperatures, dtype=torch.float32),
        )
