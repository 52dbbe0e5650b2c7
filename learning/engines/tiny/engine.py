"""The small policy's engine: its fast network, one flat gradient, Muon and AdamW, batches shared over the ranks."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

from learning.checkpoint import State
from learning.data.documents import ANY, Document, thought_of
from learning.data.sample import TrainSample, read_screenshots
from learning.engines.engine import Batch, Engine, Outputs, SampleRef
from learning.engines.tiny.batches import Batcher
from learning.engines.tiny.body import TinyBody
from learning.engines.tiny.forward import ForwardBatch, outputs_of
from learning.engines.tiny.optimizer import FlatOptimizer
from learning.engines.tiny.replies import ReplyEncoder
from learning.job import Job
from models.families.family import TinyFamily
from models.safe import SINGLE, write_index
from models.tiny.generator import read_tokenizer
from models.tiny.network import TinyNet
from schemas.action import from_json

TOGETHER = 16
"""Replies of one forward pass: more only takes memory."""


class TinyEngine(Engine):
    """Runs the small policy; every rank takes its part of each batch, and all hold the same weights."""

    optimizer = "muon"

    def __init__(self, job: Job, rank: int, world: int) -> None:
        super().__init__(job, rank, world)
        self.net = TinyNet.load(job.parent)
        self._gradient = self.net.gradients()
        self._optimizer = FlatOptimizer(self.net, job.train, rank, world)
        self._family, tokenizer = TinyFamily(job.policy), read_tokenizer(job.parent)
        self._count = lru_cache(maxsize=100_000)(lambda text: len(tokenizer.encode(text).ids))

    def encode(self, documents: Sequence[Document], screenshots: Path, numbered: bool = False) -> list[int]:
        """Goes on with these; samples ask other questions in every draw, unless their targets must have numbers."""
        job, pngs = self._job, read_screenshots(screenshots)
        self._documents: Sequence[Any] = documents
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
        """Nothing: the cores are busy with the step that runs."""
        return chosen

    def ready(self, prepared: Sequence[SampleRef]) -> Batch:
        """Encodes this rank's part of the batch."""
        documents = [ref.sample for ref in prepared]
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

    def forward(self, piece: ForwardBatch) -> Outputs:
        """One forward pass."""
        return outputs_of(self.net, piece)

    def lengths(self, document: int) -> tuple[int | None, int | None]:
        """Counts by the small policy's tokenizer."""
        given = self._documents[document]
        thought = thought_of(given, self._family)
        if thought is None:
            return None, None
        if not self._asks:
            return self._count(thought), self._starts[document + 1] - self._starts[document]
        reply = self._family.reply(thought, from_json(given.action), ANY)
        return self._count(thought), self._count(reply) + 1

    def zero(self) -> None:
        """Forgets gradients."""
        self._gradient.zero_()

    def update(self, rate: float) -> float:
        """One step on the sum over the ranks."""
        if self.world > 1:
            dist.all_reduce(self._gradient)
        return self._optimizer.step(self._gradient, rate)

    def body(self, weights: Mapping[str, Tensor]) -> TinyBody:
        """A small network for a critic."""
        return TinyBody(self._job, self.rank, self.world, weights)

    def state(self) -> State:
        """By the tensors' `transformers` names; a rank has its stretch of the matrices, and all of the rest."""
        return self._optimizer.state()

    def restored(self, step: int) -> None:
        """Hands the weights to the network, and this rank's matrices to the others."""
        self._optimizer.restored(step)

    def write(self, folder: Path) -> None:
        """Writes the weights in bf16 by their `transformers` names."""
        if self.rank == 0:
            tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in self.net.state().items()}
            save_file(tensors, folder / SINGLE, metadata={"format": "pt"})
            write_index(folder)


def _tokens(pieces: Sequence[ForwardBatch]) -> float:
    """Tokens that these pieces show the network, without padding: of text, and of screens."""
    return float(sum(int((piece.packed.segments >= 0).sum()) for piece in pieces))
