"""Runs dynamic int8 on the CPU: weights in int8 by row, activations in int8 at run time, and everything else in fp32.

It is only for acting and measuring; training always uses the full weights. The products run in PyTorch's own kernels
(`torch.ao.quantization`, its x86 or ARM engine). Expert weights of mixtures are no linear layers and stay in fp32.
"""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization.qconfig import per_channel_dynamic_qconfig

from models.tiny.network import TinyNet


def quantized(model: nn.Module) -> nn.Module:
    """Returns the same model with every linear layer in int8 and the rest in fp32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that a separate package replaces it
        scheme = {nn.Linear: per_channel_dynamic_qconfig}
        return torch.ao.quantization.quantize_dynamic(model.float(), scheme, dtype=torch.qint8, inplace=True)


class Int8Net(TinyNet):
    """The small policy's network with matrices in int8; the embeddings, which also compute the logits, stay in fp32."""

    def __init__(
        self, config: dict[str, Any], state: dict[str, Tensor], dtype: torch.dtype | None = torch.float32
    ) -> None:
        super().__init__(config, state, dtype)
        self._layers: dict[str, nn.Module] = {}

    def product(self, x: Tensor, name: str) -> Tensor:
        """Computes `TinyNet.product` in int8."""
        layer = self._layers.get(name)
        if layer is None:
            layer = self._layers[name] = self._layer(name)
        return layer(x)

    def _layer(self, name: str) -> nn.Module:
        weight, bias = self.leaves[f"{name}.weight"], self.leaves.get(f"{name}.bias")
        full = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
        full.weight = nn.Parameter(weight.detach())
        if bias is not None:
            full.bias = nn.Parameter(bias.detach())
        return quantized(nn.Sequential(full))
