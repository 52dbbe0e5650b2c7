"""The critic: a linear head on hidden states, those of the policy or of a network of its own.

A critic that shares the policy's body costs one product; its loss moves the body too. One that stands alone begins as a
copy of the policy and costs a second forward and backward pass. Either is kept beside the weights of the policy that it
judged, in a file that `transformers` ignores, and goes on in that policy's next training with a critic; a network in
bf16, and in fp32 where the policy's weights are kept so (`learning.master_weights`).
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
from learning.master_weights import take_up_auxiliary
from models.tiny.layout import CRITIC, read_config
from schemas.failure import CheckpointError

WEIGHT, BIAS, BODY = "value.weight", "value.bias", "critic."


class Critic:
    """V of hidden states; all ranks hold the same.

    Args:
        job: the parent, where a critic of the configured kind may lie, and the clip.
        engine: what runs the policy, and the network of a critic that stands alone.

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
        """Whether it goes on from the parent's."""
        self.head = torch.zeros(width + 1)
        """(hidden + 1,): weights, then the bias. Zeros know nothing and expect nothing."""
        if kept:
            self.head.copy_(torch.cat([kept[WEIGHT], kept[BIAS]]))
        self.head.requires_grad_().grad = torch.zeros_like(self.head)
        self._adam = torch.optim.AdamW([self.head], lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)
        self.body: Body | None = None
        """The network of a critic that stands alone."""
        if alone:
            own = {name.removeprefix(BODY): part for name, part in kept.items() if name.startswith(BODY)}
            self.body = engine.body(own)
            if kept:
                take_up_auxiliary(_named(self.body.weights()), job.parent)
                self.body.restored(0)

    def values(self, hidden: Tensor) -> Tensor:
        """V in fp32 or better, (n,), of hidden states (n, hidden) on any device."""
        seen = hidden if hidden.dtype == torch.float64 else hidden.float()
        head = self.head.to(seen)
        return seen @ head[:-1] + head[-1]

    @torch.no_grad()
    def expect(self, value: float) -> None:
        """Begins with this value for every state."""
        self.head[-1] = value

    def zero(self) -> None:
        """Forgets gradients."""
        assert self.head.grad is not None
        self.head.grad.zero_()
        if self.body is not None:
            self.body.zero()

    def step(self, rate: float) -> float:
        """Adds the ranks' gradients up and makes one step; returns their norm; an unsound one moves nothing."""
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
        """A copy of the weights."""
        return [self.head.detach().clone(), *(self.body.snapshot() if self.body is not None else [])]

    def restore(self, weights: Sequence[Tensor], steps: int) -> None:
        """Goes back to a copy; `steps` is how many were made since the critic was made."""
        with torch.no_grad():
            self.head.copy_(weights[0])
        if self.body is not None:
            self.body.restore(weights[1:], steps)

    def state(self) -> State:
        """Weights and moments, to be saved and loaded in place."""
        moments = moments_of(self._adam, self.head)
        found = {f"{BODY}head.{name}": moments[name] for name in ("exp_avg", "exp_avg_sq")}
        body = _named(self.body.state()) if self.body is not None else {}
        return {f"{BODY}head.weight": self.head.detach(), **found, **body}

    def masters(self) -> State:
        """The fp32 weights of a network of its own."""
        return _named(self.body.masters()) if self.body is not None else {}

    def restored(self, steps: int) -> None:
        """Goes on from what was loaded into `state` after so many steps."""
        moments_of(self._adam, self.head)["step"].fill_(steps)
        if self.body is not None:
            self.body.restored(steps)

    def write(self, folder: Path) -> None:
        """Writes it beside the policy's weights: the head in fp32, a network of its own in bf16. All ranks call it."""
        body = self.body.tensors() if self.body is not None else {}
        if self._engine.rank == 0:
            tensors = {WEIGHT: self.head.detach()[:-1].clone(), BIAS: self.head.detach()[-1:].clone()}
            tensors |= {f"{BODY}{name}": part.to(torch.bfloat16).contiguous() for name, part in body.items()}
            save_file(tensors, folder / CRITIC, metadata={"format": "pt"})


def _named(body: State) -> State:
    return {f"{BODY}{name}": part for name, part in body.items()}


def read_critic(checkpoint: Path, alone: bool, width: int) -> dict[str, Tensor]:
    """The tensors of a checkpoint's critic; none if it has none of this kind.

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
