"""The learner of any `transformers` image-text-to-text directory, on one process or on many.

Weights, gradients and moments are fp32 and sharded block by block over all ranks (FSDP2, `fully_shard`); a GPU computes
in bf16. A step is planned from lengths alone (`learning.step_plan`), one step ahead in a thread that also encodes what
this rank will process (`learning.phases`). The loss is the mean over all target tokens of the batch, whoever computes
them, so it does not depend on the plan. Auxiliary losses of mixtures of experts are left out: they would depend on it.
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from learning.chats import Chats, Measure
from learning.checkpoint import Part, State
from learning.job import Job
from learning.learner import Draw, Learner, Taken
from learning.model_costs import CPU, GPU, Shape, check_fit, cluster_cost, shape_of
from learning.optimizer import moments_of
from learning.packed_attention import NAME
from learning.phases import TwoPhases, Work, WorkMaker
from learning.sample import Screenshots, TrainSample
from learning.step_plan import Item, MicroBatch, Rules, check_plan, digest, plan_step
from learning.ulysses import GroupPool
from schemas.config.sections import TrainConfig
from schemas.failure import CheckpointError, FlywheelError, PlanError

BETAS = (0.9, 0.95)


@dataclass(slots=True)
class Prepared:
    """One step's work on this rank."""

    plan: list[MicroBatch]
    works: list[Work]
    targets: int
    """Target tokens of the whole batch."""
    samples: list[int]
    """The samples of the groups that begin with this rank."""


class ShardedLearner(Learner):
    """Trains a directory's model.

    Args:
        job, samples: what to train on.
        rank, world: this rank and how many there are.
        dtype: of weights, gradients and moments.

    Raises:
        CheckpointError: the parent cannot be loaded, or is of a kind that cannot be trained.
        PlanError: a sample fits on no rank and no group of ranks.
    """

    def __init__(
        self, job: Job, samples: Sequence[TrainSample], rank: int, world: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self._job, self._rank, self._world = job, rank, world
        self._device = device_of(job.train)
        _start_group(world, self._device)
        self._chats = Chats(job.parent, job.policy, Screenshots(job.screenshots), job.seed)
        model = load_model(job.parent, dtype)
        self.shape = shape_of(model)
        """What the model costs."""
        self._measures: list[Measure | None] = self._measure(samples)
        self.rules = self._rules_of(job.train, self.shape)
        pool = GroupPool(world) if self.rules.cluster is not None and world > 1 else None
        self._maker = WorkMaker(model, self._chats, samples, rank, world, pool)
        self._model = model
        self._net = shard(model, self._device, world, dtype, job.train.activation_checkpointing)
        self._weights = [weight for weight in self._net.parameters() if weight.requires_grad]
        self._optimizer = _optimizer(self._net, job.train, self._device)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")

    @property
    def items(self) -> list[Item]:
        """The lengths of all samples that can be drawn, by their index; others are empty."""
        return [measure.item if measure else Item(0, ()) for measure in self._measures]

    def prepare(self, draws: Sequence[Draw]) -> "Future[Prepared]":
        """Plans the step and encodes this rank's part of it, in the background."""
        return self._thread.submit(self.prepared, [draw.sample for draw in draws])

    def step(self, batch: "Future[Prepared]", rate: float) -> Taken:
        """One step; the loss is the mean over the target tokens of the batch."""
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
        """This rank's work for a batch of these samples, by the plan that is made for them unless one is given.

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
        mine = [chosen[sample] for group in own for sample in group.sequences]
        return Prepared(plan, works, sum(measure.targets for measure in measures), mine)

    def gradient(self, ready: Prepared) -> Tensor:
        """Gathers the gradient of a step in the weights' `grad`; returns this rank's part of the loss."""
        self._optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for work in ready.works:
            total += self.add_gradient(work, ready.targets)
        return total

    def add_gradient(self, work: Work, targets: int) -> Tensor:
        """Adds one micro-batch's part of a step with so many target tokens; returns this rank's part of the loss."""
        loss = self._net(work.to(self._device)) / max(1, targets)
        loss.backward()
        return loss.detach()

    def gradients(self) -> dict[str, Tensor]:
        """The gathered gradients by the weights' names, whole on every rank; all ranks call it."""
        named = {name: weight.grad for name, weight in self._model.named_parameters() if weight.grad is not None}
        return {name: one.full_tensor() if isinstance(one, DTensor) else one for name, one in named.items()}

    def state(self) -> State:
        """Weights by their `transformers` names, and AdamW's moments of them; every rank its shard."""
        found: dict[str, Part] = {}
        for name, weight in self._model.named_parameters():
            moments = moments_of(self._optimizer, weight)
            found[f"model.{name}"] = weight
            found |= {f"optimizer.{kind}.{name}": moments[kind] for kind in ("exp_avg", "exp_avg_sq")}
        return found

    def restored(self, step: int) -> None:
        """The tensors are in place; what is left is how many steps they took."""
        for weight in self._weights:
            moments_of(self._optimizer, weight)["step"].fill_(step)

    def write(self, folder: Path) -> None:
        """Writes the weights, in the parent's precision, as `transformers` names and shards them."""
        state = {}
        for name, weight in self._model.named_parameters():
            full = weight.full_tensor() if isinstance(weight, DTensor) else weight
            if self._rank == 0:
                state[name] = full.detach().to("cpu", self._model.config.dtype or torch.bfloat16)
        if self._rank == 0:
            kept = {path.name: path.read_bytes() for path in folder.glob("*.json")}
            self._model.save_pretrained(folder, state_dict=state)
            for name, written in kept.items():
                if not name.endswith(".index.json"):
                    (folder / name).write_bytes(written)

    def close(self) -> None:
        """Ends the planning thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _measure(self, samples: Sequence[TrainSample]) -> list[Measure | None]:
        """The lengths of all samples; each rank measures its share."""
        share = samples[self._rank :: self._world]
        try:
            mine: Any = [self._chats.measure(sample) if sample.weight > 0 else None for sample in share]
        except FlywheelError as error:
            mine = error
        shares: list[Any] = [None] * self._world
        dist.all_gather_object(shares, mine)
        _raise_first(shares)
        return [shares[index % self._world][index // self._world] for index in range(len(samples))]

    def _rules_of(self, train: TrainConfig, shape: Shape) -> Rules:
        """What plans may do; refuses samples that no plan can place."""
        per_node = int(os.environ.get("LOCAL_WORLD_SIZE", self._world))
        cost = None
        if train.sequence_plans and train.token_cap is not None and self._world & (self._world - 1) == 0:
            speeds = CPU if self._device.type == "cpu" else GPU
            cost = cluster_cost(shape, self._world, per_node, train.token_cap, speeds)
        lengths = [item.tokens for item in self.items]
        longest = max(range(len(lengths)), key=lengths.__getitem__)
        check_fit(lengths[longest], longest, cost, train.token_cap)
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
            raise type(one)(one.problem, one.mend)
        if isinstance(one, Exception):
            raise FlywheelError(f"a screenshot cannot be read: {one}.", "Look at the job's screenshots.") from one


def device_of(train: TrainConfig) -> torch.device:
    """Where this rank computes; raises `FlywheelError` if there is no such device."""
    if train.device == "cuda" and not torch.cuda.is_available():
        raise FlywheelError("train.device is cuda and there is no GPU here.", "Set train.device to auto or cpu.")
    if train.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def load_model(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The model of a directory, on the CPU, with packed attention; `dtype` is what it will be trained in.

    Raises:
        CheckpointError: it cannot be loaded, or does not take encoded screens or packed documents.
    """
    from transformers import AutoModelForImageTextToText

    experts = {"experts_implementation": "eager"} if dtype == torch.float64 else {}  # the grouped kernel has no double
    try:
        model: Any = AutoModelForImageTextToText.from_pretrained(directory, attn_implementation=NAME, **experts)
    except Exception as error:  # whatever the library raises, the directory is what is wrong
        raise CheckpointError(f"{directory}: {error}.", "Name an image-text-to-text model directory.") from error
    core, text = model.base_model, model.config.get_text_config()
    lacks = [name for name in ("get_image_features", "language_model", "visual") if not hasattr(core, name)]
    if lacks:
        raise CheckpointError(
            f"{directory}: a {model.config.model_type!r} model has no {', '.join(lacks)}.",
            "The trainer takes models of the Qwen-VL family and those with the same interface.",
        )
    if any("sliding" in kind for kind in getattr(text, "layer_types", None) or ()):
        raise CheckpointError(f"{directory}: sliding-window attention.", "The trainer runs full attention only.")
    return model


def shard(model: Any, device: torch.device, world: int, dtype: torch.dtype, checkpointing: bool) -> TwoPhases:
    """The model, sharded block by block over all ranks, its weights in `dtype`."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    mesh = init_device_mesh(device.type, (world,), mesh_dim_names=("ranks",))
    half = device.type == "cuda"
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if half else MixedPrecisionPolicy()
    net = TwoPhases(model).train()
    for block in [module for module in net.modules() if isinstance(module, GradientCheckpointingLayer)]:
        _widen(block, dtype)
        fully_shard(block, mesh=mesh, mp_policy=policy)
    _widen(net, dtype)
    fully_shard(net, mesh=mesh, mp_policy=policy)
    for module in net.modules():
        if isinstance(module, FSDPModule):  # sums, no means: a rank's part of the loss is its part of the batch's
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return net


def _widen(module: nn.Module, dtype: torch.dtype) -> None:
    for weight in module.parameters():
        if not isinstance(weight, DTensor):
            weight.data = weight.data.to(dtype)


def _optimizer(net: nn.Module, train: TrainConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW; vectors (norms, biases) do not decay."""
    weights = list(net.parameters())
    groups = [
        {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": train.weight_decay},
        {"params": [weight for weight in weights if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=BETAS, fused=device.type == "cuda")


def _start_group(world: int, device: torch.device) -> None:
    """A process that was started alone is a group of one."""
    if world == 1 and not dist.is_initialized():
        backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
