"""Prepares a directory's model for training: its device, attention, shards and optimiser.

The module also computes functions of a model's modules in fewer passes over memory.

A patch embedding is a convolution with a kernel of a patch's size. One matrix product computes the same, while a
convolution takes a sixth of a training step on a CPU. A root-mean-square norm of `transformers` reads its input six
times in the forward pass and about fifteen times in the backward pass, and keeps a copy in fp32. The version in this
module keeps only its input, and its intermediate values fit into a processor's cache.
"""

import os
from collections.abc import Iterator, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from learning.checkpoint import Part, State
from learning.engines.fsdp.experts import experts_of, parallelize
from learning.engines.fsdp.loading import materialize, prepare_interface
from learning.engines.fsdp.moments import AdamW8bit
from learning.engines.fsdp.nf4 import hold_in_four_bits
from learning.engines.fsdp.phases import TwoPhases
from learning.engines.fsdp.shards import ShardedAdamW, whole
from learning.engines.optimizer import moments_of
from learning.parallel.dispatch import AllToAll, all_to_all
from learning.parallel.packed_attention import NAME
from learning.planning.memory import COPIES
from models.attention import has_kernel
from models.fused import fuse, lacks_compiler
from models.padding import pad_products
from models.safe import SINGLE, read_whole, write_index
from schemas.config.training import TrainConfig
from schemas.failure import FlywheelError, UsageError

AT_ONCE = 2**18
"""Maximum number of elements that a norm processes at a time."""


def use_faster(model: Any, norms: bool) -> None:
    """Replaces the forward functions of a model's patch embedding and of its norms.

    Args:
        model: any model; a module that may compute another function is not changed.
        norms: whether norms within blocks are replaced, too; a compiler optimises those of compiled blocks by itself.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    blocks = [] if norms else [one for one in model.modules() if isinstance(one, GradientCheckpointingLayer)]
    compiled = {module for block in blocks for module in block.modules()}
    for module in model.modules():
        if isinstance(module, nn.Conv3d) and module.kernel_size == module.stride and module.groups == 1:
            module.forward = _PatchProduct(module)  # type: ignore[assignment]
        elif module not in compiled and (kind := _root_mean_square(module)):
            module.forward = kind  # type: ignore[assignment]


class _PatchProduct:
    """A convolution whose inputs are as large as its kernel."""

    def __init__(self, module: nn.Conv3d) -> None:
        self._module = module

    def __call__(self, patches: Tensor) -> Tensor:
        """Maps (n, channels, *kernel) to (n, width, 1, 1, 1); convolves inputs of other sizes."""
        weight = self._module.weight
        if patches.shape[1:] != weight.shape[1:] or any(self._module.padding):
            return nn.Conv3d.forward(self._module, patches)
        return F.linear(patches.flatten(1), weight.flatten(1), self._module.bias)[..., None, None, None]


class _Norm:
    """A root-mean-square norm.

    Args:
        module: the norm, with a weight and an epsilon.
        centred: whether the norm scales by its weight plus one, as Qwen3.5's do.
    """

    def __init__(self, module: Any, centred: bool) -> None:
        self._module, self._centred = module, centred
        self._epsilon: float = module.eps if centred else module.variance_epsilon

    def __call__(self, hidden: Tensor) -> Tensor:
        """Normalises (..., width) over the width; for float64, it uses the library's function, which rounds in
        between."""
        weight = self._module.weight
        if hidden.dtype != weight.dtype or hidden.dtype == torch.float64:
            return type(self._module).forward(self._module, hidden)
        if hidden.device.type != "cpu":  # one kernel, and one for the backward pass
            return F.rms_norm(hidden, weight.shape, weight + 1.0 if self._centred else weight, self._epsilon)
        return _RootMeanSquare.apply(hidden, weight, self._epsilon, self._centred)


class _RootMeanSquare(torch.autograd.Function):
    """Computes x / sqrt(mean(x^2) + e) * w, or * (w + 1) if centred.

    The fraction is in fp32. As in `transformers`, it is rounded to x's precision before the product with w, and after
    the product with w + 1.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float, centred: bool) -> Tensor:
        rows, made = x.reshape(-1, x.shape[-1]), torch.empty_like(x, memory_format=torch.contiguous_format)
        scale = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float32)
        scale = scale.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        for part, by, out in zip(*_parts(rows, scale, made.view_as(rows)), strict=True):
            if centred:
                out.copy_(part.float().mul(by).mul_(weight.float() + 1.0))
            else:
                torch.mul(weight, part.float().mul(by).to(x.dtype), out=out)
        ctx.save_for_backward(x, weight, scale)
        ctx.centred = centred
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight, scale = ctx.saved_tensors
        rows, width = x.reshape(-1, x.shape[-1]), x.shape[-1]
        made = torch.empty_like(x, memory_format=torch.contiguous_format)
        factors, for_weight = weight.to(scale.dtype) + float(ctx.centred), torch.zeros_like(weight, dtype=scale.dtype)
        slopes = gradients[0].reshape_as(rows)
        for part, slope, by, out in zip(*_parts(rows, slopes, scale, made.view_as(rows)), strict=True):
            normed, exact = part.to(scale.dtype).mul(by), slope.to(scale.dtype)
            both = exact * normed
            for_weight += both.sum(0)
            shared = (both @ factors).div_(width)[:, None]
            out.copy_((exact * factors).addcmul_(normed, shared, value=-1.0).mul_(by))
        return made, for_weight.to(weight.dtype), None, None


def _parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yields rows of all tensors; on a CPU, few enough rows to stay in the cache between operations."""
    rows, width = tensors[0].shape
    at_once = max(1, AT_ONCE // width if tensors[0].device.type == "cpu" else rows)
    return iter([one.split(at_once) for one in tensors])


def _root_mean_square(module: Any) -> _Norm | None:
    """Finds on a few numbers the norm that a module computes; None if it computes something else."""
    kind = type(module)
    centred = not hasattr(module, "variance_epsilon")
    if getattr(getattr(module, "weight", None), "ndim", 0) != 1 or (centred and not hasattr(module, "eps")):
        return None
    if len(signature(kind.forward).parameters) != 2:  # some norms have a gate
        return None
    numbers = torch.Generator().manual_seed(0)
    x = torch.randn(4, 8, generator=numbers)
    try:
        tried = kind(8, eps=module.eps if centred else module.variance_epsilon)
        tried.weight = nn.Parameter(torch.randn(8, generator=numbers))
        same = torch.allclose(kind.forward(tried, x), _Norm(tried, centred)(x), atol=1e-5)
    except (TypeError, ValueError, RuntimeError):
        return None
    return _Norm(module, centred) if same else None


BETAS = (0.9, 0.95)
SHARD = 5 << 30
"""Maximum bytes of one file of weights, the default of transformers."""


def device_of(train: TrainConfig) -> torch.device:
    """Returns this rank's device; raises `FlywheelError` if the device does not exist."""
    if train.device == "cuda" and not torch.cuda.is_available():
        raise FlywheelError("train.device is cuda and there is no GPU here.", "Set train.device to auto or cpu.")
    if train.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def room_of(device: torch.device) -> int | None:
    """Returns the bytes of a GPU's memory; None for a CPU, whose memory other processes use too.

    The bytes that are free at the moment would differ after a restart, and so would the plans of a resumed training.
    """
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


COMPILED_FROM = 100
"""Steps from which compiling pays on a GPU: it takes a minute once, and saves some 0.6 s of a step of a model of 4
billion weights. Source: measured on an H200."""


def compiles(train: TrainConfig, device: torch.device, steps: int) -> bool:
    """Decides whether blocks are compiled; with `auto`, they are not if a compiler is missing.

    Args:
        train: with `train.compiled`.
        device: the rank's device.
        steps: number of optimiser steps of the training.

    Raises:
        UsageError: the config asks for compiled blocks and there is no compiler.
    """
    if train.compiled is False or (train.compiled == "auto" and (device.type != "cuda" or steps < COMPILED_FROM)):
        return False
    lacks = lacks_compiler(device)
    if lacks and train.compiled is True:
        raise UsageError(f"`train.compiled`: {lacks}.", "Install it (Debian: g++), or set train.compiled=false.")
    return not lacks


def check_offload(train: TrainConfig, device: torch.device) -> None:
    """Raises `UsageError` if the config offloads weights and there is no GPU."""
    if train.memory.offload and device.type == "cpu":
        raise UsageError(
            "`train.memory.offload`: this training runs on the CPU, which holds them anyway.", "Remove it."
        )


def load_model(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Loads the model of a directory on the CPU, with packed attention; `dtype` is its training type.

    Raises:
        CheckpointError: the model cannot be loaded, or does not accept encoded screens or packed documents.
    """
    from transformers import AutoModelForImageTextToText

    experts = {"experts_implementation": "eager"} if dtype == torch.float64 else {}  # no grouped float64 kernel
    model = read_whole(AutoModelForImageTextToText, directory, attn_implementation=NAME, **experts)
    prepare_interface(model, directory)
    return model


def freeze(model: Any, train: TrainConfig) -> None:
    """Freezes the weights that `train.memory` excludes from training."""
    if train.memory.freeze_vision:
        model.base_model.visual.requires_grad_(False)


def shard(
    model: Any,
    device: torch.device,
    world: int,
    dtype: torch.dtype,
    train: TrainConfig,
    exchange: AllToAll = all_to_all,
    compiled: bool = False,
) -> TwoPhases:
    """Shards the model block by block over all ranks; computation is in the type of `train.precision`.

    Trained weights are in `dtype`, frozen ones in the type of `train.memory.frozen`. A model on the meta device has
    memory for its shards afterwards, which `learning.engines.fsdp.loading` fills. One rank shards nothing if its
    memory suffices (`_fits_alone`).

    Raises:
        UsageError: the number of ranks is no multiple of `train.replicas`, or the model has no experts.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    if train.activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
        number = None if train.activation_checkpointing is True else train.activation_checkpointing
        for block in checkpointable_blocks(model)[number:] if number else ():
            block.gradient_checkpointing = False
    compute = torch.bfloat16 if in_half(train, device) else dtype
    frozen = dtype if train.memory.frozen == "float32" else torch.bfloat16
    if train.memory.frozen == "nf4":
        hold_in_four_bits(model)
    _check_experts(model, train)
    _check_rows(world, train.replicas)
    use_faster(model, norms=not compiled)
    if device.type != "cpu":  # the meta device has a GPU's branches, for counts of calls
        if not compiled:
            fuse(model)
        if compute.itemsize == 2:
            pad_products(model)
    net = TwoPhases(model, exchange, train.memory.logits_chunk, train.experts.balance).train()
    if device.type == "cuda" and has_kernel(torch.empty(0, dtype=compute, device=device)):
        net.choose_kernels(device, compute)
    _widen(net, dtype, frozen)
    blocks = [module for module in net.modules() if isinstance(module, GradientCheckpointingLayer)]
    if compiled:
        # blocks of both stacks share one function of the library, each with and without gradients
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
        for block in blocks:
            block.forward = torch.compile(block.forward, dynamic=True)  # dynamic, since packings differ in length
    alone = world == 1 and _fits_alone(net, device, compute, train)
    if not alone:
        _shard(net, blocks, _mesh(device, world, train.replicas), MixedPrecisionPolicy(compute, dtype), train)
    if any(weight.is_meta for weight in net.parameters()):
        materialize(net, torch.device("cpu") if train.memory.offload else device)
    if alone:
        model.tie_weights()  # memory was made for each module on its own
        net.compute_in(compute)
    return net


def checkpointable_blocks(model: Any) -> list[Any]:
    """Lists the blocks that save activations, in the order in which `train.activation_checkpointing` counts them.

    A block of the vision tower saves the most bytes per operation; then follow blocks with a DeltaNet, and the others.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    def blocks(module: nn.Module) -> list[Any]:
        return [one for one in module.modules() if isinstance(one, GradientCheckpointingLayer)]

    core = model.base_model
    seen = blocks(core.visual) if any(weight.requires_grad for weight in core.visual.parameters()) else []
    return seen + sorted(blocks(core.language_model), key=lambda one: not hasattr(one, "linear_attn"))


def _fits_alone(net: nn.Module, device: torch.device, compute: torch.dtype, train: TrainConfig) -> bool:
    """Checks whether one rank holds its weights whole and in the type that it computes in."""
    memory, weights = train.memory, [weight for weight in net.parameters() if weight.is_floating_point()]
    frozen_copies = any(weight.dtype != compute for weight in weights if not weight.requires_grad)
    if memory.offload or train.experts.parallel or frozen_copies:
        return False
    if device.type != "cuda":
        return True
    moments = 2 if memory.moments == "8bit" else 8
    each = ((2 * weight.itemsize + moments + compute.itemsize) if weight.requires_grad else 2 for weight in weights)
    held = sum(weight.numel() * size for weight, size in zip(weights, each, strict=True))
    return held <= COPIES * torch.cuda.get_device_properties(device).total_memory


def _shard(
    net: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, mixed: MixedPrecisionPolicy, train: TrainConfig
) -> None:
    """Shards a model block by block over the ranks of a mesh."""
    same = all(weight.dtype == mixed.param_dtype for weight in net.parameters() if weight.is_floating_point())
    policy = MixedPrecisionPolicy() if same else mixed
    offload = CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if train.memory.offload else OffloadPolicy()
    ignored = parallelize(cast(TwoPhases, net).model, mesh) if train.experts.parallel else None
    for module in [*blocks, net]:
        fully_shard(module, mesh=mesh, mp_policy=policy, offload_policy=offload, ignored_params=ignored)
    for module in net.modules():
        if mesh.size() > 1 and isinstance(
            module, FSDPModule
        ):  # sums instead of means, since each rank's loss is its part of the batch's loss
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _check_experts(model: Any, train: TrainConfig) -> None:
    if train.experts.balance and not any(experts_of(model)):
        raise UsageError("`train.experts.balance`: the model has no experts.", "Remove it.")


def _check_rows(world: int, replicas: int) -> None:
    if world % replicas:
        raise UsageError(f"`train.replicas` is {replicas}, and {world} processes train.", "Take a divisor of them.")


def _mesh(device: torch.device, world: int, replicas: int) -> DeviceMesh:
    """Makes a mesh of ranks whose rows each hold all weights: one row, or several rows of neighbouring ranks."""
    if replicas == 1:
        return init_device_mesh(device.type, (world,), mesh_dim_names=("ranks",))
    return init_device_mesh(device.type, (replicas, world // replicas), mesh_dim_names=("replicas", "ranks"))


def in_half(train: TrainConfig, device: torch.device) -> bool:
    """Checks whether forward and backward passes compute in bf16 on this device."""
    return train.precision == "bfloat16" or (train.precision == "auto" and device.type == "cuda")


def _widen(module: nn.Module, trained: torch.dtype, frozen: torch.dtype) -> None:
    for weight in module.parameters():
        if not isinstance(weight, DTensor) and weight.is_floating_point():
            weight.data = weight.data.to(trained if weight.requires_grad else frozen)


def optimizer_of(net: nn.Module, train: TrainConfig, compiled: bool = False) -> torch.optim.AdamW:
    """Makes AdamW with moments in the type of `train.memory.moments`, without decay for vectors (norms, biases).

    The step with moments in 8 bits is `compiled` if blocks are; PyTorch's own step is one kernel.
    """
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": train.weight_decay},
        {"params": [weight for weight in weights if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    if train.memory.moments == "8bit":
        eight = AdamW8bit(groups, lr=0.0, betas=BETAS)
        eight.compiled = compiled
        return eight
    return ShardedAdamW(groups, lr=0.0, betas=BETAS, fused=True)


def start_group(world: int, device: torch.device) -> None:
    """Starts a process group; a process that was started alone forms a group of one."""
    if world == 1 and not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)


def gradients_of(model: Any) -> dict[str, Tensor]:
    """Gathers the gradients by the weights' names, whole on every rank; all ranks call it."""
    named = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {name: whole(one) for name, one in named.items()}


def state_of(model: Any, optimizer: torch.optim.AdamW) -> State:
    """Returns a model's trained weights by name, and AdamW's moments of them; every rank returns its shard."""
    found: dict[str, Part] = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            moments = moments_of(optimizer, weight)
            found[f"model.{name}"] = weight
            found |= {f"optimizer.{kind}.{name}": part for kind, part in moments.items() if kind != "step"}
    return found


def write_model(model: Any, state: dict[str, Tensor], folder: Path, most: int = SHARD) -> None:
    """Writes weights as `transformers` names and shards them; other files stay.

    Args:
        model: the model whose class defines the names; its weights are not used.
        state: the weights by the names of the model's modules.
        folder: a copy of the parent's other files.
        most: maximum bytes of a file.
    """
    others = {path.name: path.read_bytes() for path in folder.glob("*.json")}
    model.save_pretrained(folder, state_dict=state, max_shard_size=most)
    for name, content in others.items():
        (folder / name).write_bytes(content)
    if (folder / SINGLE).is_file():
        write_index(folder)
