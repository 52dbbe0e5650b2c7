"""What a model's modules compute in fewer passes is what they computed before."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.falcon_h1.modeling_falcon_h1 import FalconH1RMSNormGated
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLRMSNorm as Norm
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5RMSNorm, Qwen3_5RMSNormGated

from learning.engines.fsdp.model import use_faster
from learning.engines.fsdp.shards import ShardedAdamW, clip


def both(module: nn.Module, x: torch.Tensor, slope: torch.Tensor) -> list[torch.Tensor]:
    """What it makes, and the gradients of input and weight."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    made = module(x)
    made.backward(slope)
    assert x.grad is not None
    return [made.detach(), x.grad, *(one.grad.clone() for one in module.parameters() if one.grad is not None)]


@pytest.mark.parametrize("kind", [Norm, Qwen3_5RMSNorm, GemmaRMSNorm])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 0.0), (torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_a_norm_and_its_gradients_are_those_of_transformers(
    kind: type[nn.Module], dtype: torch.dtype, close: float
) -> None:
    torch.manual_seed(0)
    module: Any = kind(48).to(dtype)
    module.weight.data.normal_()
    x, slope = (torch.randn(7, 900, 48, dtype=dtype) for _ in range(2))
    before = both(module, x, slope)
    use_faster(module, norms=True)
    assert module.forward.__class__.__name__ == "_Norm"
    after = both(module, x, slope)
    for one, other in zip(after, before, strict=True):
        assert one.dtype == other.dtype and (one - other).norm() <= close * other.norm()


class HalvedNorm(Norm):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden_states) / 2


def test_a_norm_that_scales_otherwise_keeps_its_own_way() -> None:
    module = HalvedNorm(8)
    use_faster(module, norms=True)
    assert "forward" not in vars(module)


def test_a_norm_of_another_precision_than_its_input_is_rounded_as_before() -> None:
    module, x = Norm(8), torch.randn(3, 8, dtype=torch.bfloat16)
    before = module(x)
    use_faster(module, norms=True)
    assert module(x).dtype == before.dtype == torch.float32 and torch.equal(module(x), before)


def test_patches_are_embedded_by_one_product_with_the_gradients_of_the_convolution() -> None:
    torch.manual_seed(0)
    kernel = (2, 4, 4)
    module = nn.Conv3d(3, 16, kernel_size=kernel, stride=kernel)
    x, slope = torch.randn(10, 3, *kernel), torch.randn(10, 16, 1, 1, 1)
    wide = torch.randn(2, 3, 2, 8, 8)
    before, convolved = both(module, x, slope), module(wide)
    use_faster(module, norms=False)
    for one, other in zip(both(module, x, slope), before, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.equal(module(wide), convolved), "what is no single patch is convolved"


def test_the_step_and_the_clipped_norm_of_shards_are_those_of_torch() -> None:
    torch.manual_seed(0)
    ours, theirs = (nn.Linear(6, 5) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    kinds = ((ShardedAdamW, ours), (torch.optim.AdamW, theirs))
    steps = [kind(net.parameters(), lr=0.1, betas=(0.9, 0.95), weight_decay=0.01, fused=True) for kind, net in kinds]
    for scale in (0.01, 100.0):
        for net, adam in zip((ours, theirs), steps, strict=True):
            adam.zero_grad()
            (scale * net(torch.ones(2, 6))).sum().backward()
        norm = clip(list(ours.parameters()), 1.0)
        expected = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        assert float(norm) == pytest.approx(float(expected))
        for adam in steps:
            adam.step()
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("found", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_no_weight(found: float) -> None:
    net = nn.Linear(6, 5)
    adam = ShardedAdamW(net.parameters(), lr=0.1, fused=True)
    before = [weight.detach().clone() for weight in net.parameters()]
    net(torch.full((2, 6), found)).sum().backward()
    norm = clip(list(net.parameters()), 1.0)
    adam.step(norm=norm)
    assert not norm.isfinite() and all(torch.equal(*pair) for pair in zip(before, net.parameters(), strict=True))
    assert all(float(state["step"]) == 0 for state in adam.state.values())


def test_norms_with_a_gate_or_of_an_unknown_kind_keep_their_own_way() -> None:
    for module in (Qwen3_5RMSNormGated(8), FalconH1RMSNormGated(8)):
        use_faster(module, norms=True)
        assert "forward" not in vars(module)
