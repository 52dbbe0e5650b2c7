"""The network of a separate critic, for a policy of any `transformers` directory."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from learning.checkpoint import State
from learning.engines.engine import Body
from learning.engines.fsdp.adapters import add_adapters, in_full, merged, plain
from learning.engines.fsdp.loading import empty_model, fill_from, fill_with
from learning.engines.fsdp.model import device_of, freeze, optimizer_of, shard, start_group, state_of
from learning.engines.fsdp.phases import RankWork
from learning.engines.fsdp.shards import clip
from learning.engines.optimizer import moments_of
from learning.job import Job
from models.tiny.layout import CRITIC
from schemas.failure import CheckpointError


class FsdpBody(Body):
    """A model of a separate critic, sharded block by block over all ranks, with the policy's adapter settings.

    Args:
        job: the parent and the training's settings.
        rank, world: this rank and how many there are.
        dtype: of weights, gradients and moments.
        weights: to begin with, by their `transformers` names; none for the parent's.

    Raises:
        CheckpointError: the parent cannot be loaded, or the weights are not of such a model.
    """

    def __init__(self, job: Job, rank: int, world: int, dtype: torch.dtype, weights: Mapping[str, Tensor]) -> None:
        self._rank, self._clip, self._dtype = rank, job.train.clip, dtype
        self._device = device_of(job.train)
        start_group(world, self._device)
        self._model = empty_model(job.parent, dtype)
        if weights:
            _check(self._model, weights, job)
        freeze(self._model, job.train)
        add_adapters(self._model, job.train.lora, job.seed)
        self._net = shard(self._model, self._device, world, dtype, job.train)
        if weights:
            fill_with(self._model, weights, job.parent)
        else:
            fill_from(self._model, job.parent)
        self._weights = [weight for weight in self._net.parameters() if weight.requires_grad]
        self._optimizer = optimizer_of(self._net, job.train)

    def hidden(self, piece: RankWork) -> Tensor:
        """Computes the hidden states of the tokens before the work's targets, (m, width)."""
        return self._net(piece.to(self._device))[1]

    def settle(self) -> None:
        """Frees the weights that passes without gradient leave gathered and that a step would not change."""
        cast(FSDPModule, self._net).reshard()

    def zero(self) -> None:
        """Clears the gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def norm(self) -> float:
        """Computes the norm over all ranks' shards; clips the gradient to `train.clip`."""
        return clip(self._weights, self._clip)

    def step(self, rate: float) -> None:
        """Makes one step at a learning rate."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()

    def snapshot(self) -> list[Tensor]:
        """Copies this rank's shards."""
        return [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def restore(self, weights: Sequence[Tensor], steps: int) -> None:
        """Restores a copy."""
        for weight, before in zip(self._weights, weights, strict=True):
            weight.copy_(before)
        self.restored(steps)

    def state(self) -> State:
        """Returns the state, as the policy's engine does."""
        return state_of(self._model, self._optimizer)

    def weights(self) -> State:
        """Returns the weights, as the policy's engine does."""
        return {f"model.{name}": weight for name, weight in plain(self._model) if weight.dtype == self._dtype}

    def masters(self) -> State:
        """Returns the master weights, as the policy's engine does."""
        return {f"model.{name}": weight for name, weight in in_full(self._model, self._dtype)}

    def restored(self, steps: int) -> None:
        """Resumes after so many steps."""
        for weight in self._weights:
            moments_of(self._optimizer, weight)["step"].fill_(steps)

    def tensors(self) -> dict[str, Tensor]:
        """Returns the whole weights by name, with the adapters merged in, on rank 0."""
        found = ((name, full.detach()) for name, full in merged(self._model))
        return {name: full.to("cpu", torch.bfloat16) for name, full in found if self._rank == 0}


def _check(model: Any, weights: Mapping[str, Tensor], job: Job) -> None:
    wanted = {name: weight.shape for name, weight in model.named_parameters()}
    if wanted != {name: weight.shape for name, weight in weights.items()}:
        raise CheckpointError(
            f"{job.parent / CRITIC}: the network in it is not of the policy's architecture.",
            "Remove the file: a critic is then begun anew.",
        )
