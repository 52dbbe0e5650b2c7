"""Holds frozen linear layers in 4 bits (NF4 of QLoRA, arXiv 2305.14314), for training with adapters.

The numbers of a block of 64 are divided by the block's largest number and rounded to one of 16 values, which are
equally likely for normally distributed numbers. A row of a weight is one row of bytes: two numbers per byte, the first
in the upper half, then the blocks' scales in fp32. This takes 0.5625 bytes per number; scales are not quantized again.
So the bytes are a frozen parameter, which FSDP shards by rows and gathers like any other, and each rank quantizes the
rows that it reads. A matrix product unpacks the weight in its own precision and then drops it; the backward pass
unpacks it again.

Neither torchao nor bitsandbytes can shard such bytes by rows (docs/decisions/0015-own-eight-bit-moments.md).
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from learning.engines.fsdp.experts import experts_of
from learning.engines.fsdp.moments import AT_ONCE
from schemas.failure import UsageError

BLOCK = 64
VALUES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""The 16 values of the paper, appendix E."""
PACKED = "packed"
"""Name of the bytes in a layer, in place of `weight`."""


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """Computes the 15 thresholds above which the next value is nearer, and for each byte its two values, as adjacent
    fp32 numbers in one element of 8 bytes, (256,)."""
    values = torch.tensor(VALUES)
    bytes_of = torch.arange(256)
    pairs = torch.stack([values[bytes_of >> 4], values[bytes_of & 15]], dim=1)
    return ((values[1:] + values[:-1]) / 2).to(device), pairs.view(torch.int64)[:, 0].to(device)


def shape_of(weight: Tensor) -> torch.Size:
    """Returns the shape of a whole weight; for a weight in 4 bits, the shape of the matrix, not of the bytes."""
    return torch.Size((weight.shape[0], _columns(weight.shape[1]))) if is_packed(weight) else weight.shape


def is_packed(weight: Tensor) -> bool:
    """Checks whether a weight is held in 4 bits."""
    return weight.dtype == torch.uint8


def pack(numbers: Tensor) -> Tensor:
    """Packs a matrix into bytes, (rows, 9 / 16 columns), some rows at a time; columns are a multiple of 64."""
    rows, columns = numbers.shape
    made = numbers.new_empty(rows, width_of(columns), dtype=torch.uint8)
    for here in _parts(rows, columns, numbers.device):
        blocks = numbers[here].float().reshape(-1, BLOCK)
        scales = blocks.abs().amax(dim=1, keepdim=True)
        edges, _ = _tables(numbers.device)
        codes = torch.bucketize(blocks / scales.clamp(min=torch.finfo(torch.float32).tiny), edges, out_int32=True)
        pairs = codes.to(torch.uint8).view(-1, columns // 2, 2)
        made[here, : columns // 2] = (pairs[..., 0] << 4) | pairs[..., 1]
        made[here, columns // 2 :] = scales.view(-1, columns // BLOCK).view(torch.uint8)
    return made


def unpack(packed: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Unpacks bytes into the matrix, (rows, columns), computed in fp32 and rounded to a precision."""
    rows, columns = packed.shape[0], _columns(packed.shape[1])
    made = packed.new_empty(rows, columns, dtype=dtype)
    _, values = _tables(packed.device)
    for here in _parts(rows, columns, packed.device):
        codes = packed[here, : columns // 2].reshape(-1).int()
        scales = packed[here, columns // 2 :].clone(memory_format=torch.contiguous_format).view(torch.float32)
        numbers = values.index_select(0, codes).view(torch.float32).view(-1, BLOCK) * scales.view(-1, 1)
        made[here] = numbers.view(-1, columns)
    return made


def unpacked(weight: Tensor) -> Tensor:
    """Returns a weight's numbers, in fp32 if it is in 4 bits; the result is sharded like the weight."""
    if not is_packed(weight):
        return weight
    if not isinstance(weight, DTensor):
        return unpack(weight)
    shape = shape_of(weight)
    made = DTensor.from_local(
        unpack(weight.to_local()), weight.device_mesh, weight.placements, run_check=False, shape=shape,
        stride=(shape[1], 1),
    )  # fmt: skip
    return made.to(weight.device)


class Nf4Linear(nn.Module):
    """A frozen linear layer whose weight is held in 4 bits.

    Args:
        layer: the layer that is replaced; if it is on the meta device, the bytes are, too.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        weight = layer.weight.detach()
        made = weight.new_empty(self.out_features, width_of(self.in_features), dtype=torch.uint8)
        self.packed = nn.Parameter(made if weight.is_meta else pack(weight), requires_grad=False)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Maps (..., in) to (..., out)."""
        found: Any = _Product.apply(x, self.packed)
        return found if self.bias is None else found + self.bias


class _Product(torch.autograd.Function):
    """Computes x W', and keeps only the bytes of W for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(packed)
        return functional.linear(x, unpack(packed, x.dtype))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (packed,) = ctx.saved_tensors
        return slope @ unpack(packed, slope.dtype), None


def hold_in_four_bits(model: Any) -> None:
    """Puts the frozen linear layers of the language model's blocks into 4 bits; layers with unsuitable widths stay.

    Raises:
        UsageError: the model has no such layers, or has experts, which are no linear layers.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    language = model.base_model.language_model
    for block in [one for one in language.modules() if isinstance(one, GradientCheckpointingLayer)]:
        if any(experts_of(block)):
            _refuse("the experts of this model are not linear layers")
        for name, layer in list(block.named_modules()):
            if isinstance(layer, nn.Linear) and not layer.weight.requires_grad and layer.in_features % BLOCK == 0:
                block.set_submodule(name, Nf4Linear(layer))
    if not any(isinstance(one, Nf4Linear) for one in language.modules()):
        _refuse(f"no frozen linear layer of this model is a multiple of {BLOCK} wide")


def width_of(columns: int) -> int:
    """Counts the bytes of a row."""
    return columns // 2 + 4 * columns // BLOCK


def _columns(width: int) -> int:
    return width * 16 // 9


def _parts(rows: int, columns: int, device: torch.device) -> list[slice]:
    """Lists slices of the rows that are in fp32 at a time."""
    each = max(1, AT_ONCE.get(device.type, AT_ONCE["cuda"]) // columns)
    return [slice(start, min(rows, start + each)) for start in range(0, rows, each)]


def _refuse(problem: str) -> None:
    raise UsageError(f"`train.memory.frozen=nf4`: {problem}.", "Take train.memory.frozen=bfloat16.")
