"""Encodes documents for the small policy in the form that it sees when it acts.

Screens are neither shifted nor questioned: log probabilities must be those of the generated tokens, and the same every
time.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from learning.data.documents import Document, chat_of, visible_screens
from learning.data.rollouts import Rollout
from learning.engines.tiny.batches import SCREEN
from learning.engines.tiny.forward import ForwardBatch
from models.families.family import TinyFamily
from models.families.outside import as_sent
from models.tiny.generator import prompt_text, read_tokenizer, token_id
from models.tiny.network import Grid, TinyNet
from models.tiny.packing import pack
from models.tiny.screens import PixelCache, canvas_of, grid_of, patches_of
from models.tiny.tokens import END, PAD
from schemas.config.policy import PolicyConfig


class ReplyEncoder:
    """Encodes documents for a network.

    Args:
        checkpoint: its directory, for the tokeniser.
        policy: the dialect, and how many screens are shown.
        net: the network (its patch size).
        pngs: PNG by sha256.
        seed: the job's.
    """

    def __init__(
        self, checkpoint: Path, policy: PolicyConfig, net: TinyNet, pngs: Mapping[str, bytes], seed: int = 0
    ) -> None:
        self._tokenizer, self._seed = read_tokenizer(checkpoint), seed
        self._checkpoint, self._policy = checkpoint, policy
        self._family, self._history_images = TinyFamily(policy), policy.history_images
        self._patch, self._merge = net.vision["patch_size"], net.vision["spatial_merge_size"]
        self._dtype = net.dtype
        self._pixels = PixelCache(pngs)
        self._ids = lru_cache(maxsize=100_000)(lambda text: self._tokenizer.encode(text).ids)
        self._pad, self._end = (token_id(self._tokenizer, token) for token in (PAD, END))

    def tokens(self, document: Document) -> tuple[int, ...]:
        """Returns the reply's tokens: as they were drawn, else encoded, with an end if it has one."""
        return self._encoded(document)[1]

    def _encoded(self, document: Document) -> tuple[list[int], tuple[int, ...]]:
        """Encodes prompt and reply."""
        sizes = [SCREEN] * len(visible_screens(document, self._history_images))
        messages, reply = chat_of(document, self._family, sizes, self._seed)
        prompt = list(self._ids(prompt_text(as_sent(messages, self._checkpoint, self._policy))))
        if isinstance(document, Rollout) and document.token_ids:
            return prompt, document.token_ids
        ended = not isinstance(document, Rollout) or document.ended
        return prompt, (*self._ids(reply), *([self._end] if ended else []))

    def encode(
        self, documents: Sequence[Document], numbers: Sequence[int], starts: Sequence[int]
    ) -> list[ForwardBatch]:
        """Makes one piece per grid and number of screens, as the policy batches its steps.

        Args:
            documents: the samples or rollouts to encode.
            numbers: the number of each in the step.
            starts: the number of its first token among those of all documents.
        """
        screens = [[self._pixels(sha) for sha in visible_screens(one, self._history_images)] for one in documents]
        groups: dict[tuple[Grid, int], list[int]] = {}
        for at, images in enumerate(screens):
            height, width = (max(image.shape[axis] for image in images) for axis in (0, 1))
            groups.setdefault((grid_of(height, width, self._patch, self._merge), len(images)), []).append(at)
        return [
            self._laid(
                [documents[at] for at in members],
                patches_of(
                    [canvas_of(image, grid, self._patch) for at in members for image in screens[at]],
                    self._patch,
                    self._merge,
                    self._dtype,
                ),
                grid,
                count,
                tuple(members),
                numbers,
                starts,
            )
            for (grid, count), members in groups.items()
        ]

    def _laid(
        self,
        documents: list[Document],
        patches: Tensor,
        grid: Grid,
        screens: int,
        members: tuple[int, ...],
        numbers: Sequence[int],
        starts: Sequence[int],
    ) -> ForwardBatch:
        lines, marks = [], []
        for row, (document, member) in enumerate(zip(documents, members, strict=True)):
            prompt, reply = self._encoded(document)
            lines.append([[*prompt, *reply[:-1]]])
            number, start = numbers[member], starts[member]
            temperature = document.temperature if isinstance(document, Rollout) else 1.0
            marks += [
                (row, len(prompt) - 1 + at, token, start + at, number, temperature) for at, token in enumerate(reply)
            ]
        *indices, temperatures = zip(*marks, strict=True)
        rows, columns, targets, tokens, named = (torch.tensor(part) for part in indices)
        return ForwardBatch(
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
            named,
            torch.tensor(temperatures, dtype=torch.float32),
        )
