"""Computes products whose widths are no multiple of 8 at a GPU's full speed, by padding them with zeros.

A GPU's fast kernels for bf16 need rows that begin at multiples of 16 bytes. The vision tower of Qwen2.5-VL is 3420 wide
within its gated layers: on an H200, such a product runs at a quarter of the speed of one 3424 wide. Padded inputs and
rows of weights are 0, and padded outputs are cut, so that the layer computes the same function.
"""

from collections import Counter
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MULTIPLE = 8
"""Numbers of 2 bytes in 16 bytes."""


def padded(size: int) -> int:
    """Rounds a width up to a multiple of 8."""
    return -(-size // MULTIPLE) * MULTIPLE


def pad_products(model: nn.Module) -> None:
    """Lets every linear layer with a width that is no multiple of 8 compute with padding; its weights do not change."""
    for layer in model.modules():
        if type(layer) is nn.Linear and (layer.in_features % MULTIPLE or layer.out_features % MULTIPLE):
            layer.__class__ = PaddedLinear  # a compiler compiles layers of one class once, unlike functions of each


@torch.no_grad()
def hold_padded(model: nn.Module) -> None:
    """Pads the weights of such layers once, for a model that is neither trained nor saved."""
    pad_products(model)
    uses = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    for layer in model.modules():
        if isinstance(layer, PaddedLinear) and uses[id(layer.weight)] == 1:
            for name, weight in list(layer.named_parameters(recurse=False)):
                setattr(layer, name, nn.Parameter(layer.whole(weight), requires_grad=False))


@torch.no_grad()
def replace_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copies the weights of another model of the same config into this one, which may hold them padded.

    Addresses and types stay as they are, so captured graphs remain valid.

    Args:
        model: the model that gets the weights.
        weights: the other model's weights by name.
    """
    held = model.state_dict(keep_vars=True)
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, PaddedLinear)}
    for name, weight in weights.items():
        layer = layers.get(name.rpartition(".")[0])
        held[name].copy_(weight if layer is None or weight.shape == held[name].shape else layer.whole(weight))


class PaddedLinear(nn.Linear):
    """A linear layer that computes with padding; its weight and bias may be padded already."""

    def whole(self, weight: Tensor) -> Tensor:
        """Pads the weight, (out, in), or the bias, (out,)."""
        rows = padded(self.out_features) - weight.shape[0]
        return _extended(weight, (0, rows) if weight.ndim == 1 else (0, self._width - weight.shape[1], 0, rows))

    def forward(self, input: Tensor) -> Tensor:
        """Maps (..., in) to (..., out)."""
        x = _extended(input, (0, self._width - input.shape[-1]))
        bias = None if self.bias is None else self.whole(self.bias)
        return F.linear(x, self.whole(self.weight), bias)[..., : self.out_features]

    @property
    def _width(self) -> int:
        return padded(self.in_features)


def _extended(part: Tensor, by: tuple[int, ...]) -> Tensor:
    return F.pad(part, by) if any(by) else part  # without rows to add, it would copy
