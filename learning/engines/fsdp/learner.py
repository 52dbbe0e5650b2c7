"""The learner of any `transformers` image-text-to-text directory, by any method, on one process or on many.

Weights, gradients and moments are fp32 and sharded block by block over all ranks (FSDP2, `fully_shard`); a GPU computes
in bf16. A step is planned from lengths alone (`learning.planning.step_plan`), one step ahead in a thread that also
encodes what this rank will process (`learning.engines.fsdp.phases`). The loss is a function of all target tokens of the
batch, whoever computes them (`learning.algorithms.objectives`), so it does not depend on the plan. Auxiliary losses of
mixtures of experts are left out: they would depend on it.
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from learning.algorithms.objectives import OBJECTIVES
from learning.checkpoint import Part, State
from learning.engines.fsdp.adapters import add_adapters, merged, whole
from learning.engines.fsdp.chats import Encoder, Measure
from learning.engines.fsdp.costs import CPU, GPU, Shape, check_fit, cluster_cost, shape_of
from learning.engines.fsdp.model import device_of, load_model, optimizer_of, shard, start_group
from learning.engines.fsdp.phases import Work, WorkMaker
from learning.engines.learner import Draw, Learner, Taken
from learning.engines.tiny.optimizer import moments_of
from learning.job import Job
from learning.parallel.ulysses import GroupPool
from learning.planning.step_plan import Item, MicroBatch, Rules, check_plan, digest, plan_step
from schemas.config.training import TrainConfig
from schemas.failure import FlywheelError, PlanError


@dataclass(slots=True)
class Prepared:
    """One step's work on this rank."""

    plan: list[MicroBatch]
    works: list[Work]
    targets: int
    """Target tokens of the whole batch."""
    chosen: list[int]
    """The documents of the batch, in the order of their numbers in the plan."""
    samples: list[int]
    """The samples of the groups that begin with this rank."""


class ShardedLearner(Learner):
    """Trains a directory's model.

    Args:
        job, samples: what to train on; the samples are those of the job's method.
        rank, world: this rank and how many there are.
        dtype: of weights, gradients and moments.

    Raises:
        CheckpointError: the parent cannot be loaded, or is of a kind that cannot be trained.
        UsageError: it has none of the layers that are to get adapters.
        FlywheelError: a sample that cannot be encoded.
        PlanError: a sample fits on no rank and no group of ranks.
    """

    def __init__(
        self, job: Job, samples: Sequence[Any], rank: int, world: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self._job, self._rank, self._world = job, rank, world
        self._device = device_of(job.train)
        start_group(world, self._device)
        self._objective = OBJECTIVES[job.train.method](job, samples)
        self._model = load_model(job.parent, dtype)
        self._written = self._model.config.dtype or torch.bfloat16  # later `save_pretrained` makes a word of it
        add_adapters(self._model, job.train.lora, job.seed)
        self.shape = shape_of(self._model)
        """What the model costs."""
        self.rules = self._rules_of(job.train, self.shape)
        self._pool = GroupPool(self.rules.cluster.degrees) if self.rules.cluster is not None and world > 1 else None
        self._lay()
        self._net = shard(self._model, self._device, world, dtype, job.train.activation_checkpointing)
        self._weights = [weight for weight in self._net.parameters() if weight.requires_grad]
        self._optimizer = optimizer_of(self._net, job.train, self._device)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        if job.stream is None:  # each batch of a stream is compared when its turn comes
            self._compare()

    def renew(self, samples: Sequence[Any], screenshots: Path) -> None:
        """Goes on with these samples; the old log probabilities are from now on those of the weights as they are."""
        before = self._objective
        if not before.streams:
            super().renew(samples, screenshots)
        job = self._job.model_copy(update={"screenshots": screenshots})
        self._objective = OBJECTIVES[job.train.method](job, samples)
        self._objective.counts += before.counts
        self._lay()
        self._compare()

    @property
    def items(self) -> list[Item]:
        """The lengths of all documents that can be drawn, by their number; others are empty."""
        return [measure.item if measure else Item(0, ()) for measure in self._measures]

    def prepare(self, draws: Sequence[Draw]) -> "Future[Prepared]":
        """Plans the step and encodes this rank's part of it, in the background."""
        each = self._objective.each
        drawn = [draw.sample * each + side for draw in draws for side in range(each)]
        return self._thread.submit(self.prepared, drawn)

    def step(self, batch: "Future[Prepared]", rate: float) -> Taken:
        """One step on the batch."""
        ready = self._agreed(batch)
        total = self.gradient(ready)
        clip = torch.nn.utils.clip_grad_norm_(self._weights, self._job.train.clip)
        norm = float(clip.full_tensor() if isinstance(clip, DTensor) else clip)
        if math.isfinite(norm):
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._optimizer.step()
        return Taken(total.cpu(), norm, tuple(ready.samples))

    def prepared(self, chosen: Sequence[int], plan: list[MicroBatch] | None = None) -> Prepared:
        """This rank's work for a batch of these documents, by the plan that is made for them unless one is given.

        Raises:
            PlanError: they fit on no rank and no group, or the given plan leaves one out or names an illegal group.
        """
        measures = [measure for measure in (self._measures[sample] for sample in chosen) if measure is not None]
        items = [measure.item for measure in measures]
        if plan is None:
            plan = plan_step(items, self.rules)
        check_plan(plan, items, self._world, self.rules.cluster.degrees if self.rules.cluster else (1,))
        works = [self._maker.make(batch, chosen, measures) for batch in plan]
        own = [group for batch in plan for group in batch.groups if group.first == self._rank]
        each = self._objective.each
        held = [chosen[number] for group in own for number in group.sequences]
        mine = [number // each for number in held if number % each == 0]
        return Prepared(plan, works, sum(measure.targets for measure in measures), list(chosen), mine)

    def gradient(self, ready: Prepared) -> Tensor:
        """Gathers the gradient of a step in the weights' `grad`; returns this rank's part of the loss."""
        self._optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        if self._objective.needs_sums:
            documents = torch.tensor(ready.chosen, device=self._device)
            whole = self._objective.weigh(self._sums(ready), documents)
            for work in ready.works:
                self.add_gradient(work, ready.targets)
            return total + whole if self._rank == 0 else total
        for work in ready.works:
            total += self.add_gradient(work, ready.targets)
        return total

    def add_gradient(self, work: Work, targets: int) -> Tensor:
        """Adds one micro-batch's part of a step with so many target tokens; returns this rank's part of the loss."""
        work = work.to(self._device)
        logprobs, hidden = self._net(work)
        loss = self.loss(logprobs, hidden, work, targets)
        loss.backward()
        return loss.detach()

    def loss(self, logprobs: Tensor, hidden: Tensor, work: Work, targets: int) -> Tensor:
        """What one micro-batch adds to the loss of a step with so many target tokens.

        Args:
            logprobs: (m,) of the work's targets.
            hidden: (m, width) what the body makes of the tokens before them.
            work, targets: which they are, and how many the whole step has.
        """
        return self._objective.loss(logprobs, work, targets)

    def numbers(self) -> dict[str, float]:
        """What the method measured."""
        counts = self._objective.counts.to(self._device)
        dist.all_reduce(counts)
        return self._objective.numbers(counts.cpu())

    def gradients(self) -> dict[str, Tensor]:
        """The gathered gradients by the weights' names, whole on every rank; all ranks call it."""
        return gradients_of(self._model)

    def state(self) -> State:
        """The weights that are trained, by name, and AdamW's moments of them; every rank its shard."""
        return state_of(self._model, self._optimizer)

    def restored(self, step: int) -> None:
        """The tensors are in place; what is left is how many steps they took."""
        for weight in self._weights:
            moments_of(self._optimizer, weight)["step"].fill_(step)

    def write(self, folder: Path) -> None:
        """Writes the weights, in the parent's precision, as `transformers` names and shards them."""
        state = {}
        for name, full in merged(self._model):
            if self._rank == 0:
                state[name] = full.detach().to("cpu", self._written)
        if self._rank == 0:
            kept = {path.name: path.read_bytes() for path in folder.glob("*.json")}
            self._model.save_pretrained(folder, state_dict=state)
            for name, written in kept.items():
                if not name.endswith(".index.json"):
                    (folder / name).write_bytes(written)

    def close(self) -> None:
        """Ends the planning thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @torch.no_grad()
    def _sums(self, ready: Prepared) -> Tensor:
        """The summed log probability of each document of a step, on every rank."""
        sums = torch.zeros(len(ready.chosen), dtype=torch.float64, device=self._device)
        for work in ready.works:
            logprobs, _ = self._net(work.to(self._device))
            sums.index_add_(0, work.rows, logprobs.double())
        dist.all_reduce(sums)
        return sums

    def _lay(self) -> None:
        """Measures the objective's documents, and makes ready to lay them out."""
        chats, documents = self._objective.encoder(), self._objective.documents
        self._measures = self._measure(chats, documents)
        lengths = [item.tokens for item in self.items]
        longest = max(range(len(lengths)), key=lengths.__getitem__)
        check_fit(lengths[longest], longest, self.rules.cluster, self.rules.cap)
        starts = list(accumulate(self._targets, initial=0))
        self._maker = WorkMaker(self._model, chats, documents, starts, self._rank, self._world, self._pool)

    def _compare(self) -> None:
        """Tells an objective that asks for them the log probabilities under the weights as they are."""
        if self._objective.needs_parent:
            self._objective.begin(self._targets, self._logprobs())

    @property
    def _targets(self) -> list[int]:
        """How many target tokens each document has."""
        return [measure.targets if measure else 0 for measure in self._measures]

    @torch.no_grad()
    def _logprobs(self) -> Tensor:
        """The log probability of every target token of every document under the weights as they are; on every rank."""
        found = torch.zeros(sum(self._targets), dtype=self._weights[0].dtype, device=self._device)
        drawn = [number for number, measure in enumerate(self._measures) if measure is not None]
        size = self._job.train.batch * self._objective.each
        batches = [drawn[start : start + size] for start in range(0, len(drawn), size)]
        ahead = self._thread.submit(self.prepared, batches[0])
        for number in range(len(batches)):
            ready = self._agreed(ahead)
            if number + 1 < len(batches):
                ahead = self._thread.submit(self.prepared, batches[number + 1])
            for work in ready.works:
                logprobs, hidden = self._net(work.to(self._device))
                found[work.tokens] = logprobs.to(found)
                self._seen_by_parent(work, hidden)
        # without a backward pass the root stays gathered, and its weights would not be those that `state` loads into
        cast(FSDPModule, self._net).reshard()
        dist.all_reduce(found)
        return found

    def _seen_by_parent(self, work: Work, hidden: Tensor) -> None:
        """Told, before the first step, what the parent's body makes of this rank's targets; only a critic asks."""

    def _measure(self, chats: Encoder[Any], samples: Sequence[Any]) -> list[Measure | None]:
        """The lengths of all documents; each rank measures its share."""
        share = samples[self._rank :: self._world]
        try:
            mine: Any = [chats.measure(sample) if sample.weight > 0 else None for sample in share]
        except FlywheelError as error:
            mine = error
        shares: list[Any] = [None] * self._world
        dist.all_gather_object(shares, mine)
        _raise_first(shares)
        return [shares[index % self._world][index // self._world] for index in range(len(samples))]

    def _rules_of(self, train: TrainConfig, shape: Shape) -> Rules:
        """What plans may do."""
        per_node = int(os.environ.get("LOCAL_WORLD_SIZE", self._world))
        cost = None
        if train.sequence_plans and train.token_cap is not None and self._world & (self._world - 1) == 0:
            speeds = CPU if self._device.type == "cpu" else GPU
            cost = cluster_cost(shape, self._world, per_node, train.token_cap, speeds)
        return Rules(self._world, shape.vision, shape.language, train.balance, train.token_cap, cost, per_node)

    def _agreed(self, batch: "Future[Prepared]") -> Prepared:
        """The prepared step, once every rank has it and all have the same plan; an error of one is raised on all."""
        failure = batch.exception()
        if failure is not None and not isinstance(failure, FlywheelError | OSError):
            raise failure
        number = 0 if failure is not None else digest(batch.result().plan)
        ends = torch.tensor([number, -number, failure is not None], device=self._device)
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        if ends[2]:
            failures: list[Any] = [None] * self._world
            dist.all_gather_object(failures, failure)
            _raise_first(failures)
        if int(ends[0]) != -int(ends[1]):
            raise PlanError("the ranks made different plans.", "Use one version of everything on all machines.")
        return batch.result()


def _raise_first(found: Sequence[Any]) -> None:
    for one in found:
        if isinstance(one, FlywheelError):
            raise type(one)(one.problem, one.hint)
        if isinstance(one, Exception):
            raise FlywheelError(f"a screenshot cannot be read: {one}.", "Look at the job's screenshots.") from one


def gradients_of(model: Any) -> dict[str, Tensor]:
    """The gathered gradients by the weights' names, whole on every rank; all ranks call it."""
    named = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {name: whole(one) for name, one in named.items()}


def state_of(model: Any, optimizer: torch.optim.AdamW) -> State:
    """The weights of a model that are trained, by name, and AdamW's moments of them; every rank its shard."""
    found: dict[str, Part] = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            moments = moments_of(optimizer, weight)
            found[f"model.{name}"] = weight
            found |= {f"optimizer.{kind}.{name}": moments[kind] for kind in ("exp_avg", "exp_avg_sq")}
    return found
