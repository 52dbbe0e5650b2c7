"""One rank computes with copies that it casts once a step; its parameters are the trained weights."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from learning.engines.fsdp.copies import ComputeCopies
from models.padding import pad_products


def passed(net: nn.Module, copies: ComputeCopies, x: torch.Tensor) -> None:
    """A pass with its gradient, which computes its blocks again in the backward pass."""
    copies.begin()
    found = checkpoint(net, x, use_reentrant=False)
    copies.end_after_backward([found])
    found.float().square().sum().backward()


def test_gradients_of_passes_add_up_in_fp32_and_padding_is_cut() -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(16, 20), nn.SiLU(), nn.Linear(20, 8)), torch.randn(6, 16)
    peer = nn.Sequential(nn.Linear(16, 20), nn.SiLU(), nn.Linear(20, 8)).bfloat16()
    peer.load_state_dict(net.state_dict())
    pad_products(net)
    weights, copies = list(net.parameters()), ComputeCopies(net, torch.bfloat16)
    for part in x.bfloat16().split(3):
        passed(net, copies, part)
        assert [id(one) for one in net.parameters()] == [id(one) for one in weights]
        peer(part).float().square().sum().backward()
    for weight, other in zip(weights, peer.parameters(), strict=True):
        assert weight.grad is not None and other.grad is not None and weight.grad.dtype == torch.float32
        torch.testing.assert_close(weight.grad, other.grad.float(), rtol=0.02, atol=0.02)


def test_weights_are_cast_again_only_after_a_change() -> None:
    net = nn.Linear(8, 8)
    copies = ComputeCopies(net, torch.bfloat16)
    copies.begin()
    copy, version = net.weight, net.weight._version
    copies.begin()
    assert net.weight is copy and copy._version == version
    copies.end()
    with torch.no_grad():
        net.weight.mul_(2)
    copies.begin()
    assert net.weight is copy and copy._version > version
    copies.end()
    assert torch.equal(copy, net.weight.bfloat16())


def test_shared_weights_have_one_copy() -> None:
    net = nn.ModuleList([nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)])
    net[1].weight = net[0].weight  # type: ignore[assignment]
    copies = ComputeCopies(net, torch.bfloat16)
    copies.begin()
    assert net[0].weight is net[1].weight and net[0].weight.dtype == torch.bfloat16
    copies.end_after_backward([torch.zeros(1)])
    assert net[0].weight is net[1].weight and net[0].weight.dtype == torch.float32
