"""Runs mixtures of experts with expert parallelism, and computes the loss that balances experts.

Each rank has experts of its own (GShard, arXiv 2006.16668): one all-to-all sends a token's copies to the ranks of the
experts that its router chose, and another returns the experts' outputs. Weights are never gathered, and a rank's
gradient of its experts covers the tokens of all ranks.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

from learning.engines.fsdp.shards import local
from learning.parallel.dispatch import exchange
from schemas.failure import UsageError

PARALLEL = "flywheel_parallel"


def experts_of(model: Any) -> Iterator[nn.Module]:
    """Yields the modules of a layer's experts, whose weights are (experts, rows, columns)."""
    return (one for one in model.modules() if hasattr(one, "gate_up_proj") and hasattr(one, "num_experts"))


def parallelize(model: Any, mesh: DeviceMesh) -> set[nn.Parameter]:
    """Gives each rank its share of every layer's experts; returns the experts' weights, which must not be sharded
    again.

    Raises:
        UsageError: the number of experts is no multiple of the ranks, or the model has no experts.
    """
    held: set[nn.Parameter] = set()
    for module in experts_of(model):
        if module.num_experts % mesh.size():  # type: ignore[operator]
            raise UsageError(
                f"`train.experts.parallel`: {module.num_experts} experts cannot be divided by {mesh.size()} processes.",
                "Take a number of processes that divides them.",
            )
        for name, weight in list(module.named_parameters(recurse=False)):
            part = distribute_tensor(weight.detach(), mesh, [Shard(0)], src_data_rank=None)
            setattr(module, name, nn.Parameter(part, requires_grad=weight.requires_grad))
            held.add(getattr(module, name))
    if not held:
        raise UsageError("`train.experts.parallel`: the model has no experts.", "Remove it.")
    model.config.get_text_config()._experts_implementation = PARALLEL
    return held


def parallel(module: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Computes the weighted sum of the experts' outputs for each token; all ranks call it.

    The signature is the library's.

    Args:
        module: a layer's experts, of which this rank holds a share.
        hidden: (n, width).
        chosen: (n, k) numbers of experts.
        weights: (n, k).
    """
    world = dist.get_world_size()
    each = module.num_experts // world
    asked = chosen.reshape(-1)
    order = torch.argsort(asked, stable=True)
    sent = torch.bincount(asked // each, minlength=world)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    leaving, coming = torch.stack([sent, received]).tolist()
    rows = exchange(hidden[order // chosen.shape[1]], leaving, coming)
    numbers = exchange(asked[order], leaving, coming) - each * dist.get_rank()
    made = _local(module, each, rows, numbers)
    back = exchange(made, coming, leaving) * weights.reshape(-1)[order, None].to(made.dtype)
    return torch.zeros_like(hidden).index_add(0, order // chosen.shape[1], back.to(hidden.dtype))


def _local(module: Any, each: int, rows: Tensor, numbers: Tensor) -> Tensor:
    """Computes the outputs of this rank's experts for rows with one expert each."""
    held = _LocalExperts(module, each, rows.dtype)
    if not len(rows):  # every weight must still get a gradient
        return rows + 0.0 * (held.gate_up_proj.sum() + held.down_proj.sum())
    plain: Any = type(module).forward.__wrapped__ if rows.dtype == torch.float64 else grouped_mm_experts_forward
    return plain(held, rows, numbers[:, None], torch.ones_like(numbers, dtype=rows.dtype)[:, None])


class _LocalExperts:
    """A layer's experts in the form of the library's functions, restricted to this rank's experts."""

    def __init__(self, module: Any, each: int, dtype: torch.dtype) -> None:
        self._module, self.num_experts = module, each
        self.gate_up_proj, self.down_proj = (local(one).to(dtype) for one in (module.gate_up_proj, module.down_proj))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def imbalance(
    logits: Sequence[Tensor], owners: Tensor, lengths: Tensor, chosen: int, group: dist.ProcessGroup | None
) -> Tensor:
    """Computes this rank's part of how unevenly documents use experts, as a sum over documents and a mean over layers.

    For a document and a layer, the imbalance is E sum_e f_e P_e, where f_e is the share of tokens that chose expert e,
    and P_e is the expert's mean probability (Switch, eqs. 4 to 6). With `chosen` experts per token, its minimum is
    `chosen`.

    Args:
        logits: (n, E) logits of the routers, by layer.
        owners: (n,) number of each token's document on this rank; for padding, the number of documents.
        lengths: (documents,) number of tokens of each document, on all ranks of the group.
        chosen: number of experts of a token.
        group: the ranks that share these documents.
    """
    kind = torch.float64 if logits[0].dtype == torch.float64 else torch.float32
    shares = torch.stack([F.softmax(one, dtype=kind, dim=-1) for one in logits])
    layers, _, experts = shares.shape
    count = len(lengths)
    picked = torch.zeros_like(shares).scatter_(-1, shares.topk(chosen, dim=-1).indices, 1.0)
    used = shares.new_zeros(layers, count + 1, experts).index_add_(1, owners, picked)
    if group is not None:
        dist.all_reduce(used, group=group)
    mean = shares.new_zeros(layers, count + 1, experts).index_add(1, owners, shares)[:, :count]
    return experts * (used[:, :count] * mean / lengths[:, None].square()).sum() / layers


ALL_EXPERTS_FUNCTIONS.register(PARALLEL, parallel)
