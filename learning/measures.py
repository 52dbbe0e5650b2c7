"""Measures of a training's steps between two reports, over all ranks: the points of its curves.

Each rank adds its numbers of a step, on its device where they are there; a report is one sum over the ranks and one
transfer, however many measures there are. An unknown measure is left out: none replaces another.
"""

import math
import resource
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from learning.algorithms.objective import Objective
from learning.data.rollouts import Rollout
from learning.engines.engine import Batch, Engine, Outputs
from models.families.registry import reply_limit
from schemas.config.policy import PolicyConfig

COUNTED = ("tokens", "operations", "thought", "thoughts", "reply", "replies", "cut", "drawn")
"""Sums that a rank keeps of its documents."""


class Measures:
    """One rank's share of the measures.

    Args:
        engine, objective: of the training.
        policy: whose replies are cut at `policy.max_new_tokens`.
    """

    def __init__(self, engine: Engine, objective: Objective, policy: PolicyConfig) -> None:
        self._engine, self._objective, self._policy = engine, objective, policy
        self._limit: int | None = None
        self._seen = objective.counts.clone()
        self._restart()

    def _restart(self) -> None:
        self._sums = {name: 0.0 for name in COUNTED}
        self._seconds = 0.0
        self._entropy = torch.zeros(2, dtype=torch.float64, device=self._engine.device)

    def forward(self, outputs: Outputs) -> None:
        """Adds the entropies of a forward pass with gradient."""
        if outputs.entropy is not None:
            known = outputs.entropy.detach().double()
            self._entropy += torch.stack([known.sum(), torch.ones_like(known).sum()])

    def step(self, batch: Batch, documents: Sequence[object], seconds: float) -> None:
        """Adds a step.

        Args:
            batch: its batch.
            documents: all of the training.
            seconds: its duration on this rank.
        """
        self._seconds += seconds
        self._add("tokens", batch.tokens)
        self._add("operations", batch.operations)
        for number in batch.own:
            document = documents[number]
            thought, reply = self._engine.lengths(number)
            if thought is not None:
                self._add("thought", thought)
                self._add("thoughts", 1)
            if reply is not None:
                self._add("reply", reply)
                self._add("replies", 1)
            if isinstance(document, Rollout) and document.token_ids:
                self._add("drawn", 1)
                self._add("cut", len(document.token_ids) >= self._most)

    @property
    def _most(self) -> int:
        self._limit = self._limit or reply_limit(self._policy)
        return self._limit

    def _add(self, name: str, value: float) -> None:
        self._sums[name] += value

    def read(self, loss: Tensor) -> tuple[float, dict[str, float]]:
        """Reduces the last step's loss and the measures since the last report; all ranks call it.

        Args:
            loss: this rank's part.
        """
        engine, world, counts = self._engine, self._engine.world, self._objective.counts
        memory = [0.0] * world
        memory[engine.rank] = _peak_memory(engine.device)
        known = torch.tensor([*self._sums.values(), *memory], dtype=torch.float64)
        new = (counts - self._seen.to(counts)).to(engine.device, torch.float64)
        parts = [loss.detach().reshape(1).to(engine.device, torch.float64), self._entropy, new, known.to(engine.device)]
        total, *found = engine.sum(torch.cat(parts)).tolist()
        entropy, entropies, *found = found
        of_method, found = found[: len(new)], found[len(new) :]
        sums = dict(zip(COUNTED, found, strict=False))
        made = {
            "entropy": _mean(entropy, entropies),
            "thought_tokens": _mean(sums["thought"], sums["thoughts"]),
            "reply_tokens": _mean(sums["reply"], sums["replies"]),
            "truncated": _mean(sums["cut"], sums["drawn"]),
            "tokens_per_s": _mean(sums["tokens"], self._seconds) if sums["tokens"] else None,
            "mfu": self._mfu(sums["operations"]),
            "peak_memory_gb": max(found[len(COUNTED) :]) / 1e9,
            **self._objective.measures(torch.tensor(of_method, dtype=torch.float64)),
        }
        self._seen = counts.clone()
        self._restart()
        return total, {name: value for name, value in made.items() if value is not None and math.isfinite(value)}

    def _mfu(self, operations: float) -> float | None:
        """Computes model FLOP/s utilisation (PaLM, arXiv 2204.02311): the policy's operations by the devices' peak."""
        peak = self._engine.peak_operations
        return operations / (self._seconds * peak * self._engine.world) if peak and operations else None


def _mean(total: float, number: float) -> float | None:
    return total / number if number else None


def _peak_memory(device: torch.device) -> float:
    """Measures peak bytes of this rank: of the GPU since the last call, else of the process since it began."""
    if device.type == "cuda":
        found = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return float(found)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)
