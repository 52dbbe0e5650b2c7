"""The training process: `python -m learning.trainer JOB.json`, or the same under torchrun.

Started plainly it starts the other ranks itself (`train.processes`); every rank takes its part of each batch, the
gradients are summed over one flat tensor, so all hold the same weights. Progress goes to standard output as JSON
lines: `{"step", "steps", "loss", "samples_per_s"}`, at the end `{"checkpoint", "loss", "seconds"}`, on an error
`{"error"}` and a non-zero exit. The checkpoint appears at once and whole, or not at all.
"""

import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

from learning.batches import Batch, Batcher
from learning.job import Job, read_job
from learning.losses import place_loss, token_loss
from learning.optimizer import FlatOptimizer, learning_rate
from learning.sample import TrainSample, read_samples, read_screenshots
from learning.sampler import Sampler
from models.fast import TinyNet
from models.packing import visible
from models.speaker import read_tokenizer
from models.tokens import BINS
from schemas.failure import CheckpointError, FlywheelError, UsageError


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


def train(job: Job) -> None:
    """Trains as one rank of `WORLD_SIZE`; rank 0 speaks and writes.

    Raises:
        CheckpointError: the parent cannot be trained, or the checkpoint is already there.
        FlywheelError: no samples, or the loss or gradient is not a number any more.
    """
    rank, world = dist.get_rank() if dist.is_initialized() else 0, int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(job.train.threads)
    started = time.perf_counter()
    net, samples, batches = _prepare(job, rank, world)
    gradient = net.gradients()
    optimizer = FlatOptimizer(net, job.train, rank, world)
    loss, ready = 0.0, time.perf_counter()
    for step, (batch, first) in enumerate(batches):
        gradient.zero_()
        part = torch.zeros(())
        if batch is not None:
            part = batch_loss(net, batch, first, job.train.soft_bins, job.train.words) / job.train.batch
            part.backward()
        if world > 1:
            dist.all_reduce(gradient)
        rate = learning_rate(step, job.steps, job.learning_rate, job.train.warmup, job.train.decay)
        norm = optimizer.step(gradient, rate)
        if not math.isfinite(norm):
            raise FlywheelError(
                f"step {step + 1} of {job.steps}: the gradient's norm is {norm}.",
                "Nothing was written; lower train.learning_rate or look at the samples.",
            )
        if not ((step + 1) % 10 == 0 or step + 1 == job.steps):
            continue
        loss = float(_sum(part.detach().double(), world))
        if rank == 0:
            pace = (step + 1) * job.train.batch / (time.perf_counter() - ready)
            _say(step=step + 1, steps=job.steps, loss=round(loss, 4), samples_per_s=round(pace, 1), samples=samples)
    if rank == 0:
        write_checkpoint(net, job)
        seconds = round(time.perf_counter() - started, 2)
        _say(checkpoint=str(job.out), loss=round(loss, 4), seconds=seconds, ready_s=round(ready - started, 2))


def write_checkpoint(net: TinyNet, job: Job) -> None:
    """Writes weights, the parent's other files and the job; renames the whole into place."""
    making = job.out.with_name(f"{job.out.name}.making-{os.getpid()}")
    shutil.rmtree(making, ignore_errors=True)
    weights = "model.safetensors"
    shutil.copytree(job.parent, making, ignore=shutil.ignore_patterns(weights, "job.json"))
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in net.state().items()}
    save_file(tensors, making / weights, metadata={"format": "pt"})
    (making / "job.json").write_text(job.model_dump_json(indent=1))
    making.rename(job.out)


def _prepare(job: Job, rank: int, world: int) -> tuple[TinyNet, int, Iterator[tuple[Batch | None, Tensor]]]:
    """The network, the number of samples, and this rank's batches with the table of coordinate families."""
    if job.out.exists():
        raise CheckpointError(f"{job.out} is already there.", "Name another directory or remove it.")
    net = TinyNet.load(job.parent)
    samples = read_samples(job.samples)
    batcher = Batcher(read_tokenizer(job.parent), net, read_screenshots(job.screenshots), job.policy, job.train)
    try:
        sampler = Sampler([sample.weight for sample in samples], job.seed)
    except ValueError as error:
        raise FlywheelError(
            f"{job.samples}: {error}.", "An iteration without accepted steps trains nothing."
        ) from error
    return net, len(samples), _batches(job, samples, sampler, batcher, rank, world)


def _batches(
    job: Job, samples: list[TrainSample], sampler: Sampler, batcher: Batcher, rank: int, world: int
) -> Iterator[tuple[Batch | None, Tensor]]:
    size = job.train.batch
    for step in range(job.steps):
        positions = range(step * size, (step + 1) * size)
        chosen = [samples[sampler.sample(position)] for position in positions]
        yield batcher.batch(chosen, [(job.seed, position) for position in positions], rank, world), batcher.first


def _sum(value: Tensor, world: int) -> Tensor:
    if world > 1:
        dist.all_reduce(value)
    return value


def _say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def _start_ranks(world: int) -> list[subprocess.Popen[bytes]]:
    """Starts the other ranks of this very command and makes this process rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0")
    command = [sys.executable, "-m", "learning.trainer", *sys.argv[1:]]
    return [subprocess.Popen(command, env={**os.environ, "RANK": str(rank)}) for rank in range(1, world)]


def main() -> int:
    """Runs the job named on the command line; returns the exit status."""
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        if len(sys.argv) != 2:
            raise UsageError("One argument is needed.", "python -m learning.trainer JOB.json")
        job = read_job(Path(sys.argv[1]))
        if "RANK" not in os.environ and job.train.processes > 1:
            ranks = _start_ranks(job.train.processes)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            dist.init_process_group("gloo", timeout=timedelta(minutes=5))
        train(job)
    except FlywheelError as error:
        if os.environ.get("RANK", "0") == "0":
            _say(error=str(error))
        return error.exit_code
    finally:
        _end_ranks(ranks)
    return 0


def _end_ranks(ranks: list[subprocess.Popen[bytes]]) -> None:
    """Waits a little for the ranks this process started, then ends them."""
    for process in ranks:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
