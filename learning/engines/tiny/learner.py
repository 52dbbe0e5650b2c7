"""The learner of the small policy: one flat gradient, batches shared over the ranks."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

from learning.algorithms.losses import place_loss, token_loss
from learning.checkpoint import State
from learning.data.sample import read_screenshots
from learning.engines.learner import Draw, Learner, Taken
from learning.engines.tiny.batches import Batch, Batcher
from learning.engines.tiny.optimizer import FlatOptimizer
from learning.job import Job
from models.tiny.generator import read_tokenizer
from models.tiny.network import TinyNet
from models.tiny.packing import visible
from models.tiny.tokens import BINS
from schemas.sample import TrainSample


def batch_loss(net: TinyNet, batch: Batch, first: Tensor, sigma: float, words: float = 0.0) -> Tensor:
    """Summed loss of a batch; `first` is, by token id, bin 0 of its family of coordinates, or -1.

    `words` weighs what a screen token should be close to: the embeddings of the words written there.
    """
    seen = net.see(batch.patches, batch.grid)
    seen = seen.reshape(batch.packed.tokens.shape[0], -1, seen.shape[-1])
    x = torch.cat([seen, net.embed(batch.packed.tokens)], dim=1)
    hidden = net.read(x, batch.packed.positions, visible(batch.packed.segments, net.dtype))
    logits = net.logits(hidden[batch.rows, batch.columns + seen.shape[1]])
    soft = batch.places >= 0
    hard = token_loss(logits[~soft], batch.targets[~soft], batch.weights[~soft])
    bins = first[batch.targets[soft]]
    loss = hard + place_loss(logits[soft], batch.places[soft], bins, batch.weights[soft], BINS, sigma)
    if words > 0 and len(batch.words):
        rows, blocks, tokens = batch.words.unbind(1)
        last = seen.shape[1] // batch.screens * (batch.screens - 1)
        loss = loss + words * token_loss(net.say(seen[rows, last + blocks]), tokens, batch.shares)
    return loss


class FlatLearner(Learner):
    """What all learners of the small policy share: one flat weight, moments shared out, a checkpoint in bf16."""

    _net: TinyNet
    _optimizer: FlatOptimizer
    _rank: int

    def prepare(self, draws: Sequence[Draw]) -> Sequence[Draw]:
        """Nothing: the cores are busy with the step that runs."""
        return draws

    def state(self) -> State:
        """By the tensors' `transformers` names; a rank has its stretch of the matrices, and all of the rest."""
        return self._optimizer.state()

    def restored(self, step: int) -> None:
        """Hands the weights to the network, and this rank's matrices to the others."""
        self._optimizer.restored(step)

    def write(self, folder: Path) -> None:
        """Writes the weights in bf16 by their `transformers` names."""
        if self._rank == 0:
            write_weights(self._net, folder)


class SmallLearner(FlatLearner):
    """Trains the small policy; every rank takes its part of each batch, and all hold the same weights.

    Raises:
        CheckpointError: the parent cannot be loaded.
    """

    report_every = 10

    def __init__(self, job: Job, samples: Sequence[TrainSample], rank: int, world: int) -> None:
        self._job, self._samples, self._rank, self._world = job, samples, rank, world
        self._net = TinyNet.load(job.parent)
        pngs = read_screenshots(job.screenshots)
        self._batcher = Batcher(read_tokenizer(job.parent), self._net, pngs, job.policy, job.train)
        self._gradient = self._net.gradients()
        self._optimizer = FlatOptimizer(self._net, job.train, rank, world)

    def step(self, batch: Sequence[Draw], rate: float) -> Taken:
        """One step; the loss is the mean over the samples of the batch."""
        chosen = [self._samples[draw.sample] for draw in batch]
        seeds = [(self._job.seed, draw.position) for draw in batch]
        parts = self._batcher.batches(chosen, seeds, self._rank, self._world)
        train = self._job.train
        self._gradient.zero_()
        total = torch.zeros(())
        for made in parts:
            part = batch_loss(self._net, made, self._batcher.first, train.soft_bins, train.words) / train.batch
            part.backward()
            total += part.detach()
        if self._world > 1:
            dist.all_reduce(self._gradient)
        norm = self._optimizer.step(self._gradient, rate)
        return Taken(total, norm, tuple(batch[member].sample for made in parts for member in made.members))


def write_weights(net: TinyNet, folder: Path) -> None:
    """Writes a network's weights in bf16 by their `transformers` names."""
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in net.state().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
