"""Optimises one flat fp32 weight: Muon for matrices, and AdamW for tables and vectors.

Muon (K. Jordan et al., 2024) replaces a matrix's momentum by the nearest orthogonal matrix, so that a rare direction
moves as far as a frequent one. A rare direction is, for example, the difference of ONE and TWO: a few thin strokes on a
white screen. The factor 0.2 sqrt(max(rows, columns)) makes an update as large as AdamW's (Liu et al., arXiv
2502.16982), so both use the same learning rate.

The network's weights are bf16, since a policy is written in bf16. A step of 1e-3 of a bf16 weight would be lost by
rounding, so the optimiser updates an fp32 copy.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from learning.checkpoint import Part, State
from learning.checkpoint import stretches as tensor_stretches
from models.precision import compute_dtype
from models.tiny.network import TinyNet
from schemas.config.training import TrainConfig

MOMENTUM = 0.95
BETAS = (0.9, 0.98)
"""AdamW's decay rates of the moments."""
BLOCK = 96
"""Maximum shorter side of a matrix that is made orthogonal as a whole. Larger matrices are cut into blocks of rows,
since the cost grows with the square of the side."""
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class MatrixRows:
    """Rows of a matrix that are made orthogonal together, as a range of the flat weight."""

    start: int
    rows: int
    columns: int

    @property
    def cost(self) -> int:
        """Computes the number of operations, up to a constant factor."""
        short, long = sorted((self.rows, self.columns))
        return short * short * long


class Adam:
    """AdamW of one weight by torch's fused step, without `torch.optim`, whose first use imports torch's compiler.

    Args:
        weight: the weight to update; its moments have its shape.
        decay: weight decay, as a factor of the learning rate.
    """

    def __init__(self, weight: Tensor, decay: float) -> None:
        self.weight, self.decay = weight, decay
        self.mean, self.square = torch.zeros_like(weight), torch.zeros_like(weight)
        self.steps = torch.zeros((), dtype=torch.float32, device=weight.device)

    def step(self, gradient: Tensor, rate: float) -> None:
        """Makes one step at a learning rate."""
        self.steps += 1
        torch.ops.aten._fused_adamw_(
            [self.weight], [gradient], [self.mean], [self.square], [], [self.steps],
            lr=rate, beta1=BETAS[0], beta2=BETAS[1], weight_decay=self.decay, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip


class FlatOptimizer:
    """Updates the weights of a network from one flat gradient.

    Every rank keeps the state of its own part of the matrices, updates this part, and sends it to the other ranks
    (ZeRO-1, Rajbhandari et al., arXiv 1910.02054). Tables and vectors are small, so every rank updates all of them.
    """

    def __init__(
        self, net: TinyNet, config: TrainConfig, rank: int = 0, world: int = 1, freeze_vision: bool = False
    ) -> None:
        self.master = net.flat.detach().to(torch.float32, copy=True)
        """The weights in fp32; of the matrices, only this rank's part is up to date."""
        self._flat, self._config, self._layout = net.flat, config, net.layout()
        blocks = _blocks(net)
        self._stretches = stretches(blocks, world)
        self._own = slice(*self._stretches[rank])
        self._matrices = self.master[self._own]
        self._tail = net.sections[0]
        self._rest = list(self.master[self._tail :].split(list(net.sections[1:])))
        self._momentum = torch.zeros_like(self._matrices)
        self._update = torch.zeros_like(self._matrices, dtype=compute_dtype())
        self._groups = _grouped(
            [block for block in blocks if self._own.start <= block.start < self._own.stop], self._own.start
        )
        self._adam = [Adam(part, decay) for part, decay in zip(self._rest, (config.weight_decay, 0.0), strict=True)]
        frozen = net.vision_ranges() if freeze_vision else []
        self._frozen = [(part, self.master[part].clone()) for part in frozen]
        """Weights that weight decay must not change either."""

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float) -> float:
        """Makes one step; returns the gradient's norm before clipping. An unsound gradient changes no weight."""
        norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float32))
        if not math.isfinite(norm):
            return norm
        scale = min(1.0, self._config.clip / (norm + 1e-6))
        rest = gradient[self._tail :].float().mul_(scale).split([len(part) for part in self._rest])
        for adam, piece in zip(self._adam, rest, strict=True):
            adam.step(piece, rate)
        matrices = gradient[self._own].float().mul_(scale)
        self._momentum.lerp_(matrices, 1 - MOMENTUM)
        update = self._orthogonal(matrices.lerp_(self._momentum, MOMENTUM))
        self._matrices.mul_(1 - rate * self._config.weight_decay).add_(update, alpha=-rate)
        for part, weights in self._frozen:
            self.master[part] = weights
        self._hand_on()
        return norm

    def state(self) -> State:
        """Returns weights and moments by tensor: this rank's part of the matrices, and all other tensors."""
        found: dict[str, Part] = {}
        kinds = [("model", self._own.start, self._matrices), ("optimizer.momentum", self._own.start, self._momentum)]
        for adam, start in zip(self._adam, (self._tail, self._tail + len(self._rest[0])), strict=True):
            kinds += [
                ("model", start, adam.weight),
                ("optimizer.exp_avg", start, adam.mean),
                ("optimizer.exp_avg_sq", start, adam.square),
            ]
        for kind, start, flat in kinds:
            found |= {f"{kind}.{name}": part for name, part in tensor_stretches(flat, start, self._layout).items()}
        return found

    def restored(self, step: int) -> None:
        """Resumes at this step, after `state` was loaded."""
        for adam in self._adam:
            adam.steps.fill_(step)
        with torch.no_grad():
            self._hand_on()

    def _hand_on(self) -> None:
        """Updates the network's weights from the fp32 weights; every rank sends its matrices."""
        self._flat[self._own].copy_(self._matrices.bfloat16())
        self._flat[self._tail :].copy_(self.master[self._tail :].bfloat16())
        if len(self._stretches) > 1:
            for owner, (start, end) in enumerate(self._stretches):
                dist.broadcast(self._flat[start:end], owner)

    def _orthogonal(self, direction: Tensor) -> Tensor:
        """Computes the scaled orthogonal update of this rank's matrices, flat; 0 for matrices without any gradient."""
        update = self._update
        for (rows, columns), members in self._groups.items():
            size = rows * columns
            starts = [start for start in members if direction[start : start + size].any()]
            if len(starts) < len(members):  # a base's first steps train the vision tower alone
                for start in members:
                    update[start : start + size] = 0
            if not starts:
                continue
            stack = torch.stack([direction[start : start + size].view(rows, columns) for start in starts])
            made = orthogonal(stack).mul_(0.2 * math.sqrt(max(rows, columns)))
            for start, block in zip(starts, made, strict=True):
                update[start : start + size] = block.flatten()
        return update


def orthogonal(stack: Tensor) -> Tensor:
    """Computes near-orthogonal matrices of the same row and column space, (n, rows, columns), by Newton-Schulz rounds.

    The rounds only need bf16, but are in fp32 where fp32 is faster.

    X <- a X + (b A + c A^2) X with A = X X^T; singular values end in about [0.7, 1.2].
    """
    x = stack.to(compute_dtype())
    upright = x.shape[1] > x.shape[2]
    x = x.mT if upright else x
    x = x / (x.float().square().sum((1, 2), keepdim=True).sqrt() + 1e-7).to(x.dtype)
    a, b, c = _QUINTIC
    for _ in range(_ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if upright else x


def _blocks(net: TinyNet) -> list[MatrixRows]:
    """Lists the blocks of all matrices, in flat order."""
    blocks, start = [], 0
    for shape in net.matrix_shapes():
        rows, columns = shape[0], math.prod(shape[1:])
        pieces = math.gcd(rows, -(-rows // BLOCK)) if min(rows, columns) > BLOCK else 1
        for _ in range(pieces):
            blocks.append(MatrixRows(start, rows // pieces, columns))
            start += rows // pieces * columns
    return blocks


def stretches(blocks: list[MatrixRows], world: int) -> list[tuple[int, int]]:
    """Computes each rank's range [start, end) of the matrices, cut between blocks so that the work is even."""
    total, done, rank = sum(block.cost for block in blocks), 0, 0
    edges = [0]
    for block in blocks:
        if rank < world - 1 and done + block.cost / 2 >= total * (rank + 1) / world:
            edges.append(block.start)
            rank += 1
        done += block.cost
    end = blocks[-1].start + blocks[-1].rows * blocks[-1].columns
    edges += [end] * (world + 1 - len(edges))
    return list(pairwise(edges))


def _grouped(blocks: list[MatrixRows], offset: int) -> dict[tuple[int, int], list[int]]:
    """Groups the starts of the blocks, counted from `offset`, by their shape."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for block in blocks:
        groups[block.rows, block.columns].append(block.start - offset)
    return dict(groups)
