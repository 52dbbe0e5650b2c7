"""Padded products compute the same function."""

import pytest
import torch
from torch import nn

from models.padding import PaddedLinear, hold_padded, pad_products


def gated(inner: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, inner), nn.SiLU(), nn.Linear(inner, 24, bias=False))


@pytest.mark.parametrize("inner", [3, 20, 3420])
def test_a_padded_layer_gives_the_same_outputs_and_gradients(inner: int) -> None:
    plain, padded, x = gated(inner), gated(inner), torch.randn(5, 16)
    pad_products(padded)
    assert isinstance(padded[0], PaddedLinear) and isinstance(padded[2], PaddedLinear)  # type: ignore[index]
    for model in (plain, padded):
        model(x).square().sum().backward()
    for one, other in zip(plain.parameters(), padded.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    torch.testing.assert_close(plain(x), padded(x))


def test_layers_whose_widths_are_multiples_of_8_stay() -> None:
    model = gated(32)
    pad_products(model)
    assert not any(isinstance(layer, PaddedLinear) for layer in model)


def test_weights_that_are_held_padded_give_the_same_outputs() -> None:
    plain, held, x = gated(20), gated(20), torch.randn(5, 16)
    hold_padded(held)
    assert [tuple(weight.shape) for weight in held.parameters()] == [(24, 16), (24,), (24, 24)]
    torch.testing.assert_close(plain(x), held(x))
