"""Defines the critic: a linear head on hidden states of the policy or of a separate network.

A critic that shares the policy's body costs one matrix product, and its loss also changes the body. A separate critic
begins as a copy of the policy and costs a second forward and backward pass. Both kinds are saved in the policy's
checkpoint, in a file that `transformers` ignores. The policy's next training with a critic resumes from this file. A
separate network is saved in bf16, and also in fp32 if the policy's weights are (`learning.master_weights`).
"""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from learning.checkpoint import State
from learning.engines.engine import Body, Engine
from learning.engines.optimizer import moments_of
from learning.job import Job
from learning.master_weights import WEIGHTS, take_up_auxiliary
from models.tiny.layout import CRITIC, read_config
from schemas.failure import CheckpointError

WEIGHT, BIAS, BODY = "value.weight", "value.bias", "critic."


class Critic:
    """Estimates the value V of hidden states; all ranks hold the same weights.

    Args:
        job: gives the parent checkpoint, which may have a critic of the configured kind, and the clip.
        engine: runs the policy, and the network of a separate critic.

    Raises:
        CheckpointError: the parent's critic cannot be read or is of another size.
    """

    def __init__(self, job: Job, engine: Engine) -> None:
        self._engine, self._clip = engine, job.train.clip
        config = read_config(job.parent)
        width = config.get("text_config", config)["hidden_size"]
        alone = job.train.ppo.critic == "alone"
        kept = read_critic(job.parent, alone, width)
        self.kept = bool(kept)
        """Whether the critic was loaded from the parent's checkpoint."""
        self.head = torch.zeros(width + 1)
        """(hidden + 1,): weights, then the bias; zeros at first, so that V is 0 everywhere."""
        if kept:
            self.head.copy_(torch.cat([kept[WEIGHT], kept[BIAS]]))
        self.head.requires_grad_().grad = torch.zeros_like(self.head)
        self._adam = torch.optim.AdamW([self.head], lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)
        self.body: Body | None = None
        """Network of a separate critic; None if the critic shares the policy's body."""
        if alone:
            own = {name.removeprefix(BODY): part for name, part in kept.items() if name.startswith(BODY)}
            self.body = engine.body(own)
            if kept:
                take_up_auxiliary(_weights(self.body.weights()), job.parent)
                self.body.restored(0)

    def values(self, hidden: Tensor) -> Tensor:
        """Computes V, (n,), in at least fp32, of hidden states (n, hidden) on any device."""
        seen = hidden if hidden.dtype == torch.float64 else hidden.float()
        head = self.head.to(seen)
        return seen @ head[:-1] + head[-1]

    @torch.no_grad()
    def expect(self, value: float) -> None:
        """Initialises the critic to this value for every state."""
        self.head[-1] = value

    def zero(self) -> None:
        """Clears the gradients."""
        assert self.head.grad is not None
        self.head.grad.zero_()
        if self.body is not None:
            self.body.zero()

    def step(self, rate: float) -> float:
        """Sums the ranks' gradients, makes one step, and returns the gradient's norm; an unsound gradient changes no
        weight."""
        assert self.head.grad is not None
        self.head.grad.copy_(self._engine.sum(self.head.grad))
        norm = float(torch.linalg.vector_norm(self.head.grad))
        body = self.body.norm() if self.body is not None else 0.0
        if math.isfinite(norm + body):
            self.head.grad.mul_(min(1.0, self._clip / (norm + 1e-6)))
            self._adam.param_groups[0]["lr"] = rate
            self._adam.step()
            if self.body is not None:
                self.body.step(rate)
        return math.hypot(norm, body)

    def snapshot(self) -> list[Tensor]:
        """Copies the weights."""
        return [self.head.detach().clone(), *(self.body.snapshot() if self.body is not None else [])]

    def restore(self, weights: Sequence[Tensor], steps: int) -> None:
        """Restores a copy; `steps` is the number of steps made since the critic was created."""
        with torch.no_grad():
            self.head.copy_(weights[0])
        if self.body is not None:
            self.body.restore(weights[1:], steps)

    def state(self) -> State:
        """Returns weights and moments, to be saved and loaded in place."""
        moments = moments_of(self._adam, self.head)
        found = {f"{BODY}head.{name}": moments[name] for name in ("exp_avg", "exp_avg_sq")}
        body = _named(self.body.state()) if self.body is not None else {}
        return {f"{BODY}head.weight": self.head.detach(), **found, **body}

    def masters(self) -> State:
        """Returns the fp32 weights of a separate network."""
        return _weights(self.body.masters()) if self.body is not None else {}

    def restored(self, steps: int) -> None:
        """Resumes at this step, after `state` was loaded."""
        moments_of(self._adam, self.head)["step"].fill_(steps)
        if self.body is not None:
            self.body.restored(steps)

    def write(self, folder: Path) -> None:
        """Writes the critic into the policy's checkpoint: the head in fp32, a separate network in bf16."""
        body = self.body.tensors() if self.body is not None else {}
        if self._engine.rank == 0:
            tensors = {WEIGHT: self.head.detach()[:-1].clone(), BIAS: self.head.detach()[-1:].clone()}
            tensors |= {f"{BODY}{name}": part.to(torch.bfloat16).contiguous() for name, part in body.items()}
            save_file(tensors, folder / CRITIC, metadata={"format": "pt"})


def _named(body: State) -> State:
    return {f"{BODY}{name}": part for name, part in body.items()}


def _weights(body: State) -> State:
    return _named({name: part for name, part in body.items() if name.startswith(WEIGHTS)})


def read_critic(checkpoint: Path, alone: bool, width: int) -> dict[str, Tensor]:
    """Reads the tensors of a checkpoint's critic; empty if the checkpoint has no critic of this kind.

    Raises:
        CheckpointError: the file cannot be read, or is of another size.
    """
    path = checkpoint / CRITIC
    if not path.exists():
        return {}
    try:
        found = load_file(path)
        weight, bias = found[WEIGHT], found[BIAS]
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{path}: {error}.", "Remove the file: a critic is then begun anew.") from error
    if weight.shape != (width,) or bias.shape != (1,):
        raise CheckpointError(
            f"{path}: a head of {tuple(weight.shape)}, the policy's hidden states are ({width},).",
            "Remove the file: a critic is then begun anew.",
        )
    return found if any(name.startswith(BODY) for name in found) == alone else {}
