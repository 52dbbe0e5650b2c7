"""Trains any `transformers` image-text-to-text directory, on one process or many.

Weights, gradients and moments are fp32 and sharded block by block over all ranks (FSDP2, `fully_shard`); a GPU computes
in bf16 unless `train.precision` sets another type. A step is planned from lengths alone
(`learning.planning.step_plan`), one step ahead, in a thread that also encodes this rank's part
(`learning.engines.fsdp.phases`). A loss is a function of all target tokens of the batch on all ranks, so it does not
depend on the plan; the auxiliary loss of a mixture of experts (`train.experts.balance`) is a mean over sequences for
the same reason. A sequence is a document, or the documents of a slice (`learning.data.slices`).

`FsdpBody` is the network of a separate critic for such a policy.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from learning.algorithms.method import method_of
from learning.checkpoint import State
from learning.data.documents import Document
from learning.data.sample import Screenshots
from learning.data.slices import chained, slices
from learning.engines.choice import unsliced
from learning.engines.engine import Batch, Body, Engine, Outputs, SampleRef, TrainedNetwork
from learning.engines.fsdp.adapters import add_adapters, in_full, merged, plain, write_adapters
from learning.engines.fsdp.census import network_of
from learning.engines.fsdp.chats import Chats, Measure, common
from learning.engines.fsdp.costs import CPU, GPU, Shape, check_fit, cluster_cost, peak_of, shape_of
from learning.engines.fsdp.loading import empty_model, fill_from, fill_with
from learning.engines.fsdp.model import (
    check_offload,
    checkpointable_blocks,
    compiles,
    device_of,
    freeze,
    gradients_of,
    in_half,
    optimizer_of,
    room_of,
    shard,
    start_group,
    state_of,
)
from learning.engines.fsdp.phases import RankWork, WorkMaker
from learning.engines.fsdp.shards import ShardedAdamW, clip
from learning.engines.fsdp.writing import write_parts
from learning.engines.optimizer import moments_of
from learning.job import Job
from learning.parallel.dispatch import AllToAll, all_to_all
from learning.parallel.ulysses import GroupPool
from learning.planning.memory import MemoryRecipe, generator_bytes, holds_copies, piece_memory
from learning.planning.shared_prompts import LEAST
from learning.planning.step_plan import MicroBatch, check_plan, digest, plan_step
from learning.planning.step_rules import PieceMemory, Rules, SampleLengths
from learning.reports import send
from models.attention import find_kernel
from models.fused import find_compiler
from models.tiny.layout import CRITIC, TRAINING
from models.weights import ADAPTER
from schemas.config.training import TrainConfig
from schemas.failure import CheckpointError, FlywheelError, PlanError, UsageError


class Sharded(TrainedNetwork):
    """A model of a directory, sharded block by block over all ranks.

    Args:
        job: the parent and the training's settings. rank, world: this rank, and the number of ranks.
        dtype: number type of weights, gradients and moments.
        weights: initial weights by their `transformers` names; none for the parent's.
        exchange: the all-to-all between the two phases.
        device: the rank's device; that of `train.device` if not given.

    Raises:
        CheckpointError: the parent cannot be loaded, is of a kind that cannot be trained, or the weights do not belong
            to such a model.
        UsageError: the model has none of the layers for adapters.
    """

    def __init__(
        self,
        job: Job,
        rank: int,
        world: int,
        dtype: torch.dtype = torch.float32,
        weights: Mapping[str, Tensor] | None = None,
        exchange: AllToAll = all_to_all,
        device: torch.device | None = None,
    ) -> None:
        super().__init__(job, rank, world)
        self.dtype, self.device = dtype, device or device_of(job.train)
        start_group(world, self.device)
        check_offload(job.train, self.device)
        if line := find_kernel(self.device):
            self._warn(line)
        compiled = compiles(job.train, self.device, job.steps)
        if not compiled and (line := find_compiler(self.device)):
            self._warn(line)
        if compiled and self.device.type == "cpu":
            self._warn("train.compiled=true: on a CPU, compiling takes minutes, and later steps gain little.")
        self._model = empty_model(job.parent, dtype)
        if weights:
            _check(self._model, weights, job)
        self._written = self._model.config.dtype or torch.bfloat16  # `save_pretrained` turns it into a string later
        freeze(self._model, job.train)
        add_adapters(self._model, job.train.lora, job.seed)
        asked, there = job.train.activation_checkpointing, len(checkpointable_blocks(self._model))
        if asked is not True and asked > there:
            self._warn(f"train.activation_checkpointing is {asked}, and {there} blocks save activations: all count.")
        self.shape = shape_of(self._model)
        """Costs of the model's phases."""
        # A state that goes from token to token ends differently in each document, and experts are balanced by document.
        self.shares = job.train.share_prompts and not self.shape.undivided and not job.train.experts.balance
        """Whether tokens with which several documents of a rank begin are computed once."""
        self._memory = self._memory_of(job)
        self._net = shard(self._model, self.device, world, dtype, job.train, exchange, compiled)
        self._in_ranges = True
        """Whether each rank read only its ranges of the files."""
        if weights:
            fill_with(self._model, weights, job.parent)
        else:
            self._in_ranges = fill_from(self._model, job.parent)
        self._weights = [weight for weight in self._net.parameters() if weight.requires_grad]
        self._optimizer = optimizer_of(self._net, job.train, compiled)

    def _memory_of(self, job: Job) -> PieceMemory | None:
        """Computes the memory that limits micro-batches; None if only tokens are limited, or nothing is.

        With a number of tokens, documents that share tokens are limited to the memory of as many tokens of others.
        """
        if job.train.token_cap == "auto":
            return self._room(job)
        if job.train.token_cap is None or not self.shares:
            return None
        try:
            return replace(self._pieces(job, 0), room=None)
        except CheckpointError:  # sizes of a model that is not known, whose tokens are limited all the same
            return None

    def _room(self, job: Job) -> PieceMemory | None:
        """Computes what a GPU's memory has room for in a micro-batch; None on a CPU."""
        if (size := room_of(self.device)) is None:
            return None
        found = self._pieces(job, size)
        if found.room is not None and found.room <= 0:
            raise UsageError(
                f"train.token_cap is auto, and {-found.room / 2**30:.1f} GiB of memory lack before the first token.",
                "Run `flywheel plan`, which chooses settings that fit.",
            )
        return found

    def _pieces(self, job: Job, size: int) -> PieceMemory:
        """Computes what tokens, patches and targets take of this number of bytes."""
        sizes = {"tokens": 0, "targets": 0, "patches": 0, "networks": method_of(job.train).networks(job.train)}
        compute = 2 if in_half(job.train, self.device) else self.dtype.itemsize
        network = network_of(self._model)
        generator = generator_bytes(network, job.policy, job.train)
        recipe = MemoryRecipe.of(job.train, ranks=self.world, compute=compute, generator=generator, **sizes)
        return piece_memory(network, replace(recipe, copies=holds_copies(network, recipe, size)), size, self.shares)

    def _warn(self, line: str) -> None:
        if self.rank == 0:
            send(warning=line)

    def settle(self) -> None:
        """Frees the gathered weights after passes without gradient, since a step would not update gathered copies."""
        if isinstance(self._net, FSDPModule):
            self._net.reshard()

    def zero(self) -> None:
        """Clears the gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def norm(self) -> float:
        """Computes the norm over all ranks' shards; clips the gradient to `train.clip`."""
        return float(clip(self._weights, self._job.train.clip))

    def step(self, rate: float) -> None:
        """Makes one step at a learning rate."""
        self._set_rate(rate)
        self._optimizer.step()

    def _set_rate(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def state(self) -> State:
        """Returns the trained weights by name, and AdamW's moments of them; every rank returns its shard."""
        return state_of(self._model, self._optimizer)

    def restored(self, steps: int) -> None:
        """Sets the number of steps, after the tensors were loaded."""
        for weight in self._weights:
            moments_of(self._optimizer, weight)["step"].fill_(steps)

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained."""
        return self._job.train.lora.rank > 0

    def weights(self) -> State:
        """Returns the weights as in the state, but without adapters, since only adapters change during their training.

        Frozen weights in bf16 or 4 bits are left out, since they come from the parent's files.
        """
        held = {name: weight for name, weight in plain(self._model) if weight.dtype == self.dtype}
        return self._with_moments(held.items())

    def masters(self) -> State:
        """Returns all weights in `dtype`, with adapters merged in; every rank returns its shard."""
        return self._with_moments(in_full(self._model, self.dtype))

    def _with_moments(self, weights: Iterable[tuple[str, Tensor]]) -> State:
        """Adds the moments of the trained weights; none for adapters, which end with their training."""
        state = {} if self.adapted else self.state()
        moments = {name: part for name, part in state.items() if not name.startswith("model.")}
        return {**{f"model.{name}": weight for name, weight in weights}, **moments}


class FsdpBody(Sharded, Body):
    """A model of a separate critic, with the policy's adapter settings."""

    def hidden(self, piece: RankWork) -> Tensor:
        """Computes the hidden states of the tokens before the work's targets, (m, width)."""
        return self._net(piece.to(self.device))[1]

    def snapshot(self) -> list[Tensor]:
        """Copies this rank's shards."""
        return [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def restore(self, weights: Sequence[Tensor], steps: int) -> None:
        """Restores a copy of the weights."""
        for weight, before in zip(self._weights, weights, strict=True):
            weight.copy_(before)
        self.restored(steps)

    def tensors(self) -> dict[str, Tensor]:
        """Returns the whole weights by name, with the adapters merged in, on rank 0."""
        found = ((name, full.detach()) for name, full in merged(self._model))
        return {name: full.to("cpu", torch.bfloat16) for name, full in found if self.rank == 0}


def _check(model: Any, weights: Mapping[str, Tensor], job: Job) -> None:
    wanted = {name: weight.shape for name, weight in model.named_parameters()}
    if wanted != {name: weight.shape for name, weight in weights.items()}:
        raise CheckpointError(
            f"{job.parent / CRITIC}: the network in it is not of the policy's architecture.",
            "Remove the file: a critic is then begun anew.",
        )


@dataclass(slots=True)
class PlannedBatch(Batch):
    """A batch with the plan of its work."""

    plan: list[MicroBatch] = field(default_factory=list)


class FsdpEngine(Sharded, Engine):
    """Trains the model of a directory; arguments as in `Sharded`."""

    optimizer = "adamw"

    def __init__(
        self,
        job: Job,
        rank: int,
        world: int,
        dtype: torch.dtype = torch.float32,
        exchange: AllToAll = all_to_all,
        device: torch.device | None = None,
    ) -> None:
        super().__init__(job, rank, world, dtype, exchange=exchange, device=device)
        self.rules = self._rules_of(job.train, self.shape)
        self._pool = GroupPool(self.rules.cluster.degrees) if self.rules.cluster is not None and world > 1 else None
        if not self._in_ranges and rank == 0:
            send(warning=f"{job.parent}: not every weight is stored as it is held, so each process reads all of them.")
        if job.train.memory.frozen == "nf4" and (job.parent / TRAINING).is_dir() and rank == 0:
            send(warning=f"{job.parent}: trained weights are rounded to 4 bits again, and smaller changes are lost.")
        if self.device.type == "cuda" and in_half(job.train, self.device):
            self.peak_operations = peak_of(torch.cuda.get_device_name(self.device))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._warned = False

    def encode(self, documents: Sequence[Document], screenshots: Path, numbered: bool = False) -> list[int]:
        """Measures the documents and prepares their encoding; their targets always have numbers.

        Raises:
            FlywheelError: a document cannot be encoded.
            PlanError: a document fits on no rank and no group of ranks.
        """
        chats = Chats(self._job.parent, self._job.policy, Screenshots(screenshots), self._job.seed, self.shares)
        alone = unsliced(self._job.policy, self._job.train, self._job.parent)
        rule = self._job.policy.context_rule
        self._slices = [[one] for one in range(len(documents))] if alone else slices(documents, rule)
        self._measures, self._follows, first = self._measure(chats, documents)
        self.rules = replace(self.rules, common=first if first >= LEAST else 0)
        self._report_apart()
        self._check_fit()
        counts = [measure.targets if measure else 0 for measure in self._measures]
        starts = list(accumulate(counts, initial=0))
        self._maker = WorkMaker(self._model, chats, documents, starts, self.rank, self.world, self._pool, self.shares)
        return counts

    def _check_fit(self) -> None:
        """Raises `PlanError` if a document fits on no rank and no group of ranks.

        Sequence plans limit tokens. With a limit of memory, they take the number of tokens with which the documents
        that need the most memory per token still fit.
        """
        memory, cluster, items = self.rules.memory, self.rules.cluster, self.items
        room = None if memory is None else memory.room
        if room is not None and cluster is None:
            self.rules.sizes(items)
            return
        if memory is not None and room is not None and cluster is not None:
            cap = int(min(room * item.tokens / memory.of(item) for item in items if item.tokens))
            self.rules = replace(self.rules, cap=cap, cluster=replace(cluster, memory=float(cap)))
        longest = max(range(len(items)), key=lambda at: items[at].tokens)
        check_fit(items[longest].tokens, longest, self.rules.cluster, self.rules.cap)

    def _report_apart(self) -> None:
        """Warns once if most replies that share a slice with an earlier one do not follow it (`Chat.follows`)."""
        later = [one for members in self._slices for one in members[1:] if self._measures[one] is not None]
        apart = sum(one not in self._follows for one in later)
        if 2 * apart > len(later) and not self._warned and self.rank == 0:
            self._warned = True
            send(
                warning=f"policy.context is fold, and {apart} of {len(later)} replies are trained in sequences of "
                "their own, because their prompts do not begin with the tokens of the reply before them."
            )

    @property
    def items(self) -> list[SampleLengths]:
        """Lists the lengths of all documents by their number; empty for a document that cannot be drawn."""
        return [measure.item if measure else SampleLengths(0, ()) for measure in self._measures]

    def prepare(self, chosen: Sequence[SampleRef]) -> "Future[PlannedBatch]":
        """Plans the step and encodes this rank's part of it, in the background."""
        return self._thread.submit(self.prepared, [ref.sample for ref in chosen])

    def ready(self, prepared: "Future[PlannedBatch]") -> PlannedBatch:
        """Waits for the prepared step, until every rank has the same plan; raises a rank's error on all."""
        failure = prepared.exception()
        if failure is not None and not isinstance(failure, FlywheelError | OSError):
            raise failure
        if self.world == 1:
            _raise_first([failure])
            return prepared.result()
        number = 0 if failure is not None else digest(prepared.result().plan)
        ends = torch.tensor([number, -number, failure is not None], device=self.device)
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        if ends[2]:
            failures: list[Any] = [None] * self.world
            dist.all_gather_object(failures, failure)
            _raise_first(failures)
        if int(ends[0]) != -int(ends[1]):
            raise PlanError("the ranks made different plans.", "Use one version of everything on all machines.")
        return prepared.result()

    def prepared(self, chosen: Sequence[int], plan: list[MicroBatch] | None = None) -> PlannedBatch:
        """Makes this rank's work for a batch of these documents, by the given plan or a new one.

        Raises:
            PlanError: a document fits on no rank and no group, or the given plan lacks a document or has an illegal
        group.
        """
        chosen = [number for number in chosen if self._measures[number] is not None]
        measures = [measure for measure in (self._measures[number] for number in chosen) if measure is not None]
        sequences = chained(chosen, self._follows)
        items = [_item([measures[place] for place in sequence]) for sequence in sequences]
        if plan is None:
            plan = plan_step(items, self.rules)
        check_plan(plan, items, self.world, self.rules.cluster.degrees if self.rules.cluster else (1,))
        works = [self._maker.make(batch, chosen, measures, sequences) for batch in plan]
        if self.device.type == "cuda":
            works = [work.pinned() for work in works]
        own = [group for batch in plan for group in batch.groups if group.first == self.rank]
        held = [chosen[place] for group in own for number in group.sequences for place in sequences[number]]
        targets = sum(measure.targets for measure in measures)
        made = PlannedBatch(list(chosen), targets, held, works, plan=plan)
        if self.rank == 0:
            made.tokens = sum(item.tokens for item in items)
        made.operations = 0.0 if self.adapted else sum(work.operations(self.shape) for work in works)
        return made

    def forward(self, piece: RankWork) -> Outputs:
        """Runs one forward pass of both phases; all ranks take part."""
        work = piece.to(self.device)
        logprobs, hidden, entropy, auxiliary = self._net(work)
        return Outputs(logprobs, hidden, torch.ones_like(logprobs), work.tokens, work.rows, entropy, auxiliary)

    def lengths(self, document: int) -> tuple[int | None, int | None]:
        """Counts a thought with the model's own tokenizer."""
        found = self._measures[document]
        return (found.thought, found.targets) if found else (None, None)

    def parts(self, documents: Sequence[int], size: int) -> list[Sequence[int]]:
        """Divides documents into parts of `size`, or more where a slice would be cut; those that begin alike follow one
        another."""
        of = {document: number for number, members in enumerate(self._slices) for document in members}
        items, known = self.items, dict[str | int, int]()
        begins = [items[members[0]].begins or number for number, members in enumerate(self._slices)]
        order = {document: known.setdefault(begins[of[document]], len(known)) for document in documents}
        found: list[list[int]] = []
        for document in sorted(documents, key=lambda one: (order[one], of[one])):
            if found and (len(found[-1]) < size or of[found[-1][-1]] == of[document]):
                found[-1].append(document)
            else:
                found.append([document])
        return [*found]

    def sync(self, last: bool) -> None:
        """Sets when gradients are summed: within a row of ranks after each piece, and between rows after a step's last
        piece.

        With `train.memory.whole_gradients`, gradients are also summed within a row only after the last piece. Until
        then, a rank keeps its shard of the gradient, or the whole gradient with `whole_gradients`.
        """
        net, train = self._net, self._job.train
        if not isinstance(net, FSDPModule):  # one rank adds its gradients in place
            return
        if train.memory.whole_gradients:
            net.set_requires_gradient_sync(last)
        elif train.replicas > 1:
            net.set_requires_all_reduce(last)

    def update(self, rate: float) -> float | Tensor:
        """Makes one optimiser step; the norm stays on the device, so that the host does not wait for it."""
        if not isinstance(self._optimizer, ShardedAdamW):
            return super().update(rate)
        norm = clip(self._weights, self._job.train.clip)
        self._set_rate(rate)
        self._optimizer.step(norm=norm)
        return norm

    def body(self, weights: Mapping[str, Tensor]) -> FsdpBody:
        """Makes a model for a critic."""
        return FsdpBody(self._job, self.rank, self.world, self.dtype, weights)

    def gradients(self) -> dict[str, Tensor]:
        """Gathers the gradients by the weights' names, whole on every rank; all ranks call it."""
        return gradients_of(self._model)

    @property
    def moments_kind(self) -> str:
        """Names AdamW, and the type of the moments if it is not fp32."""
        held = self._job.train.memory.moments
        return self.optimizer if held == "float32" else f"{self.optimizer} {held}"

    def write(self, folder: Path) -> None:
        """Writes the weights, in the parent's precision, as `transformers` names and shards them.

        It also writes adapters separately, if they apply to the parent's own weights.
        """
        self.zero()  # the gradients are no longer needed
        write_parts(self._model, self._written, folder, self.rank, 1 if self._job.store else self.world)
        if self.adapted and self._job.train.memory.frozen != "nf4":
            write_adapters(self._model, self._job.train.lora, self._job.parent, folder / ADAPTER, self.rank)

    def close(self) -> None:
        """Stops the planning thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _measure(self, chats: Chats, samples: Sequence[Document]) -> tuple[list[Measure | None], dict[int, int], int]:
        """Measures all documents, the document that each one follows, and the number of tokens with which all begin;
        each rank measures some slices."""
        share = self._slices[self.rank :: self.world]
        try:
            made = [chats.measure_slice([samples[number] for number in members]) for members in share]
            mine: Any = made, chats.start
        except FlywheelError as error:
            mine = error
        shares: list[Any] = [None] * self.world
        dist.all_gather_object(shares, mine)
        _raise_first(shares)
        starts = [start for _, start in shares if start is not None]
        found: list[Measure | None] = [None] * len(samples)
        follows: dict[int, int] = {}
        for at, members in enumerate(self._slices):
            measures, before = shares[at % self.world][0][at // self.world]
            for number, measure in zip(members, measures, strict=True):
                found[number] = measure
            follows |= {members[number]: members[earlier] for number, earlier in before.items()}
        return found, follows, len(common(starts))

    def _rules_of(self, train: TrainConfig, shape: Shape) -> Rules:
        """Builds the rules of plans from the config."""
        per_node = int(os.environ.get("LOCAL_WORLD_SIZE", self.world))
        cost = None
        cap = None if train.token_cap == "auto" else train.token_cap
        limited = cap is not None or (self._memory is not None and self.world > 1)
        if train.sequence_plans and limited and self.world & (self.world - 1) == 0:
            speeds = CPU if self.device.type == "cpu" else GPU
            cost = cluster_cost(shape, self.world, per_node, cap or 0, speeds)
        return Rules(self.world, shape.vision, shape.language, train.balance, cap, cost, per_node, self._memory)


def _item(measures: Sequence[Measure]) -> SampleLengths:
    """Combines the lengths of a sequence's documents: the last one contains all tokens, and targets begin in the first
    one."""
    first, last = measures[0].item, measures[-1].item
    targets = sum(measure.targets for measure in measures)
    return replace(last, targets=targets, opening=first.opening, begins=first.begins)


def _raise_first(found: Sequence[Any]) -> None:
    for one in found:
        if isinstance(one, FlywheelError):
            raise type(one)(one.problem, one.hint)
        if isinstance(one, Exception):
            raise FlywheelError(f"a screenshot cannot be read: {one}.", "Look at the job's screenshots.") from one
