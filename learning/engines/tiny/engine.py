"""Trains the small policy: its fast network, one flat gradient, Muon and AdamW, and batches split over the ranks.

`TinyBody` is the network of a separate critic for the small policy.

`ReplyEncoder` encodes documents in the form that the acting policy sees.

It neither shifts screens nor adds questions, since log probabilities must belong to the generated tokens and must not
vary.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

from learning.checkpoint import State
from learning.data.documents import ANY, Document, chat_of, thought_of, visible_screens
from learning.data.files import Rollout
from learning.data.pages import PageSample
from learning.data.sample import TrainSample, read_screenshots
from learning.engines.engine import Batch, Body, Engine, Outputs, SampleRef, TrainedNetwork
from learning.engines.tiny.batches import SCREEN, Batcher, ForwardBatch, outputs_of, read_piece
from learning.engines.tiny.exam import examine
from learning.engines.tiny.optimizer import FlatOptimizer
from learning.engines.tiny.pages import PageBatch, PageBatcher, page_outputs
from learning.job import Job
from models.families.family import TinyFamily
from models.families.outside import as_sent
from models.safe import SINGLE, write_index
from models.tiny.build import PixelCache, canvas_of, grid_of, patches_of
from models.tiny.generator import prompt_text, read_tokenizer, token_id
from models.tiny.layout import read_config
from models.tiny.network import Grid, TinyNet, pack
from models.tiny.tokens import END, PAD
from schemas.action import from_json_list
from schemas.config.sections import PolicyConfig


class ReplyEncoder:
    """Encodes documents for a network.

    Args:
        checkpoint: the checkpoint's directory, for the tokeniser.
        policy: the config of the dialect and of the number of screens.
        net: the network, for its patch size.
        pngs: PNG by sha256.
        seed: the job's seed.
    """

    def __init__(
        self, checkpoint: Path, policy: PolicyConfig, net: TinyNet, pngs: Mapping[str, bytes], seed: int = 0
    ) -> None:
        self._tokenizer, self._seed = read_tokenizer(checkpoint), seed
        self._checkpoint, self._policy = checkpoint, policy
        self._family = TinyFamily(policy)
        self._patch, self._merge = net.vision["patch_size"], net.vision["spatial_merge_size"]
        self._dtype, self._starts = net.dtype, net.starts
        self._pixels = PixelCache(pngs)
        self._ids = lru_cache(maxsize=100_000)(lambda text: self._tokenizer.encode(text).ids)
        self._pad, self._end = (token_id(self._tokenizer, token) for token in (PAD, END))

    def tokens(self, document: Document) -> tuple[int, ...]:
        """Returns the reply's sampled tokens, or else the encoded text, with an end token if the reply has one."""
        return self._encoded(document)[1]

    def _encoded(self, document: Document) -> tuple[list[int], tuple[int, ...]]:
        """Encodes prompt and reply."""
        sizes = [SCREEN] * len(visible_screens(document, self._family.rule))
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
            numbers: number of each document in the step.
            starts: number of each document's first target among the targets of all documents.
        """
        screens = [[self._pixels(sha) for sha in visible_screens(one, self._family.rule)] for one in documents]
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
            pack(lines, (grid.rows // self._merge, grid.columns // self._merge), screens, self._pad, self._starts),
            rows,
            columns,
            targets,
            torch.ones(len(marks)),
            members,
            tokens,
            named,
            torch.tensor(temperatures, dtype=torch.float32),
        )


class TinyTrained(TrainedNetwork):
    """A small network with one flat gradient; all ranks hold the same weights.

    Args:
        job: the parent and the training's settings. rank, world: this rank, and the number of ranks.
        weights: initial weights; none for the parent's.
    """

    def __init__(self, job: Job, rank: int, world: int, weights: Mapping[str, Tensor] | None = None) -> None:
        super().__init__(job, rank, world)
        self.net = TinyNet(read_config(job.parent), dict(weights)) if weights else TinyNet.load(job.parent)
        self._gradient = self.net.gradients(vision=not job.freezes_vision)
        self._optimizer = FlatOptimizer(self.net, job.train, rank, world, job.freezes_vision)

    def zero(self) -> None:
        """Clears the gradients."""
        self._gradient.zero_()

    def norm(self) -> float:
        """Computes the norm of the gradient's sum over the ranks."""
        if self.world > 1:
            dist.all_reduce(self._gradient)
        return float(torch.linalg.vector_norm(self._gradient, dtype=torch.float32))

    def step(self, rate: float) -> None:
        """Makes one step at a learning rate."""
        self._optimizer.step(self._gradient, rate)

    def state(self) -> State:
        """Returns the state by the tensors' `transformers` names: a rank's part of the matrices, and all other
        weights."""
        return self._optimizer.state()

    def restored(self, steps: int) -> None:
        """Updates the network's weights, and sends this rank's matrices to the other ranks."""
        self._optimizer.restored(steps)


class TinyBody(TinyTrained, Body):
    """Small network of a separate critic."""

    def hidden(self, piece: ForwardBatch) -> Tensor:
        """Computes the hidden states of the tokens before the piece's targets."""
        return read_piece(self.net, piece)[0]

    def snapshot(self) -> list[Tensor]:
        """Copies the weights; of matrices, only this rank's part."""
        return [self._optimizer.master.clone()]

    def restore(self, weights: Sequence[Tensor], steps: int) -> None:
        """Restores a copy of the weights."""
        self._optimizer.master.copy_(weights[0])
        self.restored(steps)

    def tensors(self) -> dict[str, Tensor]:
        """Returns the weights by name."""
        return dict(self.net.state())


TOGETHER = 16
"""Number of replies in one forward pass; more replies would only take more memory."""


class TinyEngine(TinyTrained, Engine):
    """Trains the small policy; every rank processes a part of each batch."""

    optimizer = "muon"

    def __init__(self, job: Job, rank: int, world: int) -> None:
        super().__init__(job, rank, world)
        self._family, tokenizer = TinyFamily(job.policy), read_tokenizer(job.parent)
        self._count = lru_cache(maxsize=100_000)(lambda text: len(tokenizer.encode(text).ids))

    def encode(self, documents: Sequence[Document], screenshots: Path, numbered: bool = False) -> list[int]:
        """Switches to these documents; questions about a sample differ in every draw, unless targets must have
        numbers."""
        job, pngs = self._job, read_screenshots(screenshots)
        self._documents: Sequence[Any] = documents
        self._pages = None
        if isinstance(documents[0], PageSample):
            self._pages = PageBatcher(read_tokenizer(job.parent), self.net, pngs, job.policy, job.train, job.steps)
            self._asks, self.report_every = False, 10
            return [0] * len(documents)
        self._asks = isinstance(documents[0], TrainSample) and not numbered
        if self._asks:
            self._batcher = Batcher(read_tokenizer(job.parent), self.net, pngs, job.policy, job.train)
            self.report_every = 10
            return [0] * len(documents)
        self._encoder = ReplyEncoder(job.parent, job.policy, self.net, pngs, job.seed)
        counts = [len(self._encoder.tokens(one)) for one in self._documents]
        self._starts = list(accumulate(counts, initial=0))
        return counts

    def prepare(self, chosen: Sequence[SampleRef]) -> Sequence[SampleRef]:
        """Does nothing, since the running step uses all cores."""
        return chosen

    def ready(self, prepared: Sequence[SampleRef]) -> Batch:
        """Encodes this rank's part of the batch."""
        documents = [ref.sample for ref in prepared]
        if self._pages is not None:
            chosen = [self._documents[number] for number in documents]
            pieces = self._pages.batches(chosen, prepared, self._job.seed, self.rank, self.world)
            own = [documents[member] for member in {member: None for piece in pieces for member in piece.members}]
            return Batch(documents, len(documents), own, pieces, float(sum(piece.tokens for piece in pieces)))
        if self._asks:
            chosen = [self._documents[number] for number in documents]
            seeds = [(self._job.seed, ref.position) for ref in prepared]
            pieces = self._batcher.batches(chosen, seeds, self.rank, self.world)
            own = [documents[member] for piece in pieces for member in piece.members]
            return Batch(documents, len(documents), own, pieces, _tokens(pieces))
        rows = range(self.rank, len(documents), self.world)
        pieces = [
            piece for at in range(0, len(rows), TOGETHER) for piece in self._laid(documents, rows[at : at + TOGETHER])
        ]
        targets = sum(self._starts[number + 1] - self._starts[number] for number in documents)
        return Batch(documents, targets, documents[self.rank :: self.world], pieces, _tokens(pieces))

    def _laid(self, documents: Sequence[int], rows: Sequence[int]) -> list[ForwardBatch]:
        chosen = [documents[row] for row in rows]
        starts = [self._starts[number] for number in chosen]
        return self._encoder.encode([self._documents[number] for number in chosen], rows, starts)

    def forward(self, piece: ForwardBatch | PageBatch) -> Outputs:
        """Runs one forward pass."""
        return page_outputs(self.net, piece) if isinstance(piece, PageBatch) else outputs_of(self.net, piece)

    def examine(self, letters: Callable[[Tensor], Tensor], samples: Sequence[PageSample]) -> Tensor:
        """Measures the network on held-out pages (`learning.engines.tiny.exam`)."""
        assert self._pages is not None
        return examine(self.net, self._pages, letters, samples)

    def lengths(self, document: int) -> tuple[int | None, int | None]:
        """Counts with the small policy's tokenizer."""
        if self._pages is not None:
            return None, None
        given = self._documents[document]
        thought = thought_of(given, self._family)
        if thought is None:
            return None, None
        if not self._asks:
            return self._count(thought), self._starts[document + 1] - self._starts[document]
        reply = self._family.reply(thought, from_json_list(given.actions), ANY)
        return self._count(thought), self._count(reply) + 1

    def body(self, weights: Mapping[str, Tensor]) -> TinyBody:
        """Makes a small network for a critic."""
        return TinyBody(self._job, self.rank, self.world, weights)

    def write(self, folder: Path) -> None:
        """Writes the weights in bf16 by their `transformers` names."""
        if self.rank == 0:
            tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in self.net.state().items()}
            save_file(tensors, folder / SINGLE, metadata={"format": "pt"})
            write_index(folder)


def _tokens(pieces: Sequence[ForwardBatch]) -> float:
    """Counts the tokens of text and screens in these pieces, without padding."""
    return float(sum(int((piece.packed.segments >= 0).sum()) for piece in pieces))
