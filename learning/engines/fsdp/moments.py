"""Runs AdamW with moments of one byte each, by block-wise dynamic quantization (Dettmers et al., arXiv 2110.02861).

A block's numbers are divided by the block's largest number and rounded to one of 256 values, which cover seven powers
of ten. Every step reads the moments, makes AdamW's step in fp32, and rounds the moments again. Two details differ from
the paper. Both concern moments that are small compared with the largest of their block:

- The root of the second moment is rounded, since the root has the range of the first moment. If the second moment
  itself were rounded, it would become 0 for all gradients below a thousandth of the block's largest.
- A positive root is not rounded to 0, since a first moment would then be divided by 0 (Li et al., arXiv 2309.01507,
  section 4.1).

A block lies within a row (the weight's first dimension), so that ranks, which hold whole rows, never share a block.
Codes and scales are sharded like the weight, and any number of ranks can load a checkpoint of them bit for bit
(docs/decisions/0015-own-eight-bit-moments.md).
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.optim.adamw import adamw

from learning.engines.fsdp.shards import local

LEAST = 4096
"""Minimum number of elements; smaller weights keep moments in fp32, as in the paper's release."""
BLOCK, SHORTEST = 256, 16
"""Maximum and minimum size of a block; rows whose length has no divisor in this range keep moments in fp32."""
AT_ONCE = {"cpu": 2**18, "cuda": 2**22}
"""Number of a shard's elements that are in fp32 at a time, by device."""
KINDS = ("exp_avg", "exp_avg_sq")
SCALE = "_scale"
"""Suffix of the name of a moment's scales."""


@cache
def code_book(signed: bool) -> Tensor:
    """Computes the 256 ascending values from -1 (or 0) to 1 of the paper's dynamic quantization.

    The values are 0, 1, and values within each power of ten from 1e-7 on: the means of equal steps, twice as many as in
    the previous power. If unsigned, no value is negative.
    """
    found = [0.0, 1.0]
    for power in range(7):
        edges = torch.linspace(0.1, 1, 2 ** (power + (not signed)) + 1)
        means = 10.0 ** (power - 6) * (edges[:-1] + edges[1:]) / 2
        found += [*means.tolist(), *((-means).tolist() if signed else ())]
    return torch.tensor(sorted(found))


@cache
def _tables(signed: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Computes the code book, and the 255 thresholds above which the next value is nearer; any root above 0 is above
    the first threshold."""
    book = code_book(signed)
    edges = (book[1:] + book[:-1]) / 2
    if not signed:
        edges[0] = 0.0
    return book.to(device), edges.to(device)


def block_of(row: int) -> int:
    """Finds the largest divisor of a row's length that is a valid size of a block; 0 if there is none."""
    return next((size for size in range(BLOCK, SHORTEST - 1, -1) if row % size == 0), 0)


def quantize(numbers: Tensor, signed: bool) -> tuple[Tensor, Tensor]:
    """Computes codes and scales, (n, block) uint8 and (n, 1), of fp32 blocks (n, block); unsigned blocks are roots."""
    return _rounded(numbers, _tables(signed, numbers.device)[1])


def _rounded(numbers: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    scales = numbers.abs().amax(dim=1, keepdim=True)
    codes = torch.bucketize(numbers / scales.clamp(min=torch.finfo(torch.float32).tiny), edges, out_int32=True)
    return codes.to(torch.uint8), scales


def dequantize(codes: Tensor, scales: Tensor, signed: bool) -> Tensor:
    """Computes the numbers that codes and scales encode, as made by `quantize`."""
    return _read(codes, scales, _tables(signed, codes.device)[0])


def _read(codes: Tensor, scales: Tensor, book: Tensor) -> Tensor:
    return book.index_select(0, codes.reshape(-1).int()).view(codes.shape) * scales


class AdamW8bit(torch.optim.AdamW):
    """AdamW with moments of one byte each, and an fp32 scale for every block of up to 256 moments.

    A weight's state has `step`, `exp_avg` and `exp_avg_sq`. The moments are codes of the weight's shape, and their
    scales, (rows, blocks of a row), have the same names with `_scale`. For a weight that is small or not cut by rows,
    both moments are in fp32.
    """

    compiled = False
    """Whether a weight's step is one compiled function."""

    def begun(self, weight: Tensor) -> dict[str, Tensor]:
        """Returns the state of a weight before its first step."""
        blocks = _blocks(weight)
        state = {"step": torch.zeros((), dtype=torch.float32)}
        for kind, zero in zip(KINDS, _zeros(), strict=True):
            if not blocks:
                state[kind] = torch.zeros_like(weight, memory_format=torch.preserve_format)
                continue
            state[kind] = torch.full_like(weight, zero, dtype=torch.uint8, memory_format=torch.contiguous_format)
            state[kind + SCALE] = _scales(weight, blocks)
        return state

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Makes one step of every weight that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight].update(self.begun(weight))
            held = [(weight, {name: local(one) for name, one in self.state[weight].items()}) for weight in weights]
            _move_in_full([one for one in held if KINDS[0] + SCALE not in one[1]], group)
            for weight, state in held:
                if KINDS[0] + SCALE in state:
                    state["step"] += 1
                    self._move(weight, state, group)

    def _move(self, weight: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Makes the step of one weight with moments of a byte: at once if compiled, else some rows at a time."""
        assert weight.grad is not None
        numbers, slope, taken = local(weight), local(weight.grad), float(state["step"])
        if not numbers.numel():
            return
        rate, (beta1, beta2) = group["lr"], group["betas"]
        factors = (1 - rate * group["weight_decay"], -rate / (1 - beta1**taken), math.sqrt(1 - beta2**taken))
        rows = max(1, AT_ONCE.get(numbers.device.type, AT_ONCE["cuda"]) * len(numbers) // numbers.numel())
        function: Callable[..., None] = _step
        if self.compiled:  # numbers that change would each be compiled for
            rows, function = len(numbers), _compiled_step()
            factors = torch.tensor(factors, dtype=torch.float64).unbind()
        parts = [numbers, slope, *(state[kind + end] for kind in KINDS for end in ("", SCALE))]
        tables = [_tables(signed, numbers.device) for signed in (True, False)]
        for start in range(0, len(numbers), rows):
            blocks = parts[3][start : start + rows].numel()
            part = [one[start : start + rows].view(blocks, -1) for one in parts]
            function(*part, tables, factors, (beta1, beta2, group["eps"]))
        torch.autograd.graph.increment_version([numbers])  # by which copies of weights are known to be old


def _move_in_full(held: Sequence[tuple[Tensor, dict[str, Tensor]]], group: dict[str, Any]) -> None:
    """Makes the step of weights with fp32 moments, in a few calls for all of them."""
    if held:
        beta1, beta2 = group["betas"]
        adamw(
            [local(weight) for weight, _ in held],
            [local(weight.grad) for weight, _ in held if weight.grad is not None],
            [state["exp_avg"] for _, state in held],
            [state["exp_avg_sq"] for _, state in held],
            [],
            [state["step"] for _, state in held],
            foreach=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def _step(
    weight: Tensor,
    slope: Tensor,
    first_codes: Tensor,
    first_scales: Tensor,
    second_codes: Tensor,
    second_scales: Tensor,
    tables: Sequence[tuple[Tensor, Tensor]],
    factors: Sequence[float | Tensor],
    constants: tuple[float, float, float],
) -> None:
    """Computes AdamW (Loshchilov and Hutter, arXiv 1711.05101), in the order of `torch.optim.adamw`.

    Args:
        weight, slope: (n, block) numbers and their gradient, in blocks.
        first_codes, first_scales, second_codes, second_scales: (n, block) and (n, 1) moments; of the second, roots.
        tables: code book and thresholds of the first moment, and of the root of the second.
        factors: of the weight (its decay) and the first moment (the rate), and a divisor of the root.
        constants: rates of the moments, and epsilon.
    """
    beta1, beta2, epsilon = constants
    decay, rate, correction = factors
    (first_book, first_edges), (second_book, second_edges) = tables
    first = _read(first_codes, first_scales, first_book).lerp_(slope, 1 - beta1)
    second = _read(second_codes, second_scales, second_book).square_()
    root = second.mul_(beta2).addcmul_(slope, slope, value=1 - beta2).sqrt_()
    weight.mul_(decay).add_((first * rate).div_((root / correction).add_(epsilon)))
    moments = (first_codes, first_scales, first, first_edges), (second_codes, second_scales, root, second_edges)
    for codes, scales, moment, edges in moments:
        made, largest = _rounded(moment, edges)
        codes.copy_(made)
        scales.copy_(largest)


@cache
def _compiled_step() -> Callable[..., None]:
    """Compiles the step of a weight: one pass over its memory, where each operation of `_step` is a pass."""
    return torch.compile(_step, dynamic=True)


def _zeros() -> tuple[int, int]:
    """Finds the code of 0 in the two code books."""
    return tuple(int((code_book(signed) == 0).nonzero()) for signed in (True, False))  # type: ignore[return-value]


def _blocks(weight: Tensor) -> int:
    """Counts the blocks of a row of a weight; 0 if its moments are kept in fp32."""
    by_rows = all((isinstance(one, Shard) and one.dim == 0) or one.is_replicate() for one in _placements(weight))
    if weight.ndim < 2 or weight.numel() < LEAST or weight.dtype != torch.float32 or not by_rows:
        return 0
    row = weight.numel() // weight.shape[0]
    size = block_of(row)
    return row // size if size else 0


def _placements(weight: Tensor) -> tuple[Any, ...]:
    return weight.placements if isinstance(weight, DTensor) else ()


def _scales(weight: Tensor, blocks: int) -> Tensor:
    """Makes scales of 0, (rows, blocks), sharded like the weight."""
    mine = torch.zeros(len(local(weight)), blocks, device=weight.device)
    if not isinstance(weight, DTensor):
        return mine
    mesh, shape = weight.device_mesh, torch.Size((weight.shape[0], blocks))
    made = DTensor.from_local(mine, mesh, weight.placements, run_check=False, shape=shape, stride=(blocks, 1))
    return made.to(weight.device)  # offloaded weights are not on the mesh's device
