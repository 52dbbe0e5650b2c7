"""Computes functions of a model's own modules in fewer passes over memory.

A patch embedding is a convolution whose kernel is the patch: one product of matrices does it, where a convolution's
passes on a CPU take a sixth of a training step. A root-mean-square norm of `transformers` goes over its input six times
forward and some fifteen times backward, and keeps a copy in fp32. Here only its input is kept, and intermediate values
stay in a processor's cache.
"""

from collections.abc import Iterator
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

AT_ONCE = 2**18
"""Numbers of a norm's rows that are worked on at a time."""


def use_faster(model: Any, norms: bool) -> None:
    """Replaces the forward functions of a model's patch embedding, and of its norms if asked.

    Args:
        model: any; a module that is not known to compute the same function stays as it is.
        norms: whether norms are changed too, which a compiler does itself.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv3d) and module.kernel_size == module.stride and module.groups == 1:
            module.forward = _PatchProduct(module)  # type: ignore[assignment]
        elif norms and _is_root_mean_square(module):
            module.forward = _Norm(module)  # type: ignore[assignment]


class _PatchProduct:
    """A convolution of inputs as large as its kernel."""

    def __init__(self, module: nn.Conv3d) -> None:
        self._module = module

    def __call__(self, patches: Tensor) -> Tensor:
        """(n, channels, *kernel) to (n, width, 1, 1, 1); others are convolved."""
        weight = self._module.weight
        if patches.shape[1:] != weight.shape[1:] or any(self._module.padding):
            return nn.Conv3d.forward(self._module, patches)
        return F.linear(patches.flatten(1), weight.flatten(1), self._module.bias)[..., None, None, None]


class _Norm:
    """A root-mean-square norm."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, hidden: Tensor) -> Tensor:
        """(..., width), normed over its width; in doubles, which the library rounds in between, as the library does."""
        if hidden.dtype != self._module.weight.dtype or hidden.dtype == torch.float64:
            return type(self._module).forward(self._module, hidden)
        return _RootMeanSquare.apply(hidden, self._module.weight, self._module.variance_epsilon)


class _RootMeanSquare(torch.autograd.Function):
    """x / sqrt(mean(x^2) + e) * w, the fraction in fp32 and rounded to x's precision, as `transformers` does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        rows, made = x.reshape(-1, x.shape[-1]), torch.empty_like(x, memory_format=torch.contiguous_format)
        scale = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float32)
        scale = scale.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        for part, by, out in zip(*_parts(rows, scale, made.view_as(rows)), strict=True):
            torch.mul(weight, part.float().mul(by).to(x.dtype), out=out)
        ctx.save_for_backward(x, weight, scale)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        rows, width = x.reshape(-1, x.shape[-1]), x.shape[-1]
        made = torch.empty_like(x, memory_format=torch.contiguous_format)
        factors, for_weight = weight.to(scale.dtype), torch.zeros_like(weight, dtype=scale.dtype)
        slopes = gradients[0].reshape_as(rows)
        for part, slope, by, out in zip(*_parts(rows, slopes, scale, made.view_as(rows)), strict=True):
            normed, exact = part.to(scale.dtype).mul(by), slope.to(scale.dtype)
            both = exact * normed
            for_weight += both.sum(0)
            shared = (both @ factors).div_(width)[:, None]
            out.copy_((exact * factors).addcmul_(normed, shared, value=-1.0).mul_(by))
        return made, for_weight.to(weight.dtype), None


def _parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yields rows of all tensors; on a CPU few enough to stay in its cache from one operation to the next."""
    rows, width = tensors[0].shape
    at_once = max(1, AT_ONCE // width if tensors[0].device.type == "cpu" else rows)
    return iter([one.split(at_once) for one in tensors])


def _is_root_mean_square(module: Any) -> bool:
    """Checks whether a module computes that, on a few numbers: some kinds scale by one more than their weight."""
    kind = type(module)
    if getattr(getattr(module, "weight", None), "ndim", 0) != 1 or not hasattr(module, "variance_epsilon"):
        return False
    if len(signature(kind.forward).parameters) != 2:  # some have a gate
        return False
    numbers = torch.Generator().manual_seed(0)
    x = torch.randn(4, 8, generator=numbers)
    try:
        tried = kind(8, eps=module.variance_epsilon)
        tried.weight = nn.Parameter(torch.randn(8, generator=numbers))
        return torch.allclose(kind.forward(tried, x), _Norm(tried)(x), atol=1e-5)
    except (TypeError, ValueError, RuntimeError):
        return False
