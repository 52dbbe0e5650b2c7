"""Trains the local judge from verified trajectories.

First, the judge's reader learns the content around a point from elements that pages list, by a contrastive loss between
pixels and names (CLIP, arXiv 2103.00020). The trained judge never sees elements. Then the whole network learns the
verifier's results. Scores are calibrated, and the threshold is chosen, on validation trajectories.

The module also calibrates a network's logits, so that scores are probabilities, and chooses the threshold for accepting
a score.

Both use trajectories on which the network was not trained.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor

from learning.judging.cases import Cases
from learning.judging.points import Points
from models.judges.local.judge import CONFIG, TOGETHER, WEIGHTS, LocalConfig
from models.judges.local.network import JudgeNet, reading_loss


def platt(logits: Tensor, known: Tensor) -> tuple[float, float]:
    """Computes the scale and shift of logits with the least cross entropy (Platt, 1999).

    Args:
        logits: (n,) logits of a trained network.
        known: (n,) true results, 0 or 1.
    """
    both = torch.zeros(2, requires_grad=True)
    with torch.no_grad():
        both[0] = 1.0
    optimiser = torch.optim.LBFGS([both], lr=0.5, max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.binary_cross_entropy_with_logits(both[0] * logits + both[1], known) + 1e-4 * both.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return float(both[0].detach()), float(both[1].detach())


def best_threshold(scores: Tensor, known: Tensor) -> float:
    """Finds the threshold in steps of 0.01 with the best F1; among equal ones, the highest, which accepts the
    fewest."""
    grid = [number / 100 for number in range(5, 96)]
    return max(grid, key=lambda one: (_f1(scores >= one, known > 0), one))


def _f1(accepted: Tensor, known: Tensor) -> float:
    return 2 * int((accepted & known).sum()) / max(1, int(accepted.sum() + known.sum()))


RATE, DECAY = 1.5e-3, 0.02
READING_SHARE = 0.3
JITTER = 2
"""Maximum random shift of crops in pixels, so that the network does not memorise crops."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Length of the training."""

    reading_steps: int = 1000
    epochs: int = 12
    steps: int = 1500
    """Maximum number of steps, for a lake of any size."""
    batch: int = 64
    readings: int = 192
    """Number of points in one step of the reader's training."""


USUAL = Effort()


@dataclass(frozen=True, slots=True)
class Fitted:
    """A trained judge, not yet in a folder."""

    net: JudgeNet
    config: LocalConfig

    def write(self, folder: Path) -> None:
        """Writes weights and config."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / WEIGHTS).write_bytes(save({name: one.contiguous() for name, one in self.net.state_dict().items()}))
        (folder / CONFIG).write_text(self.config.model_dump_json())

    def scores(self, cases: Cases) -> Tensor:
        """Computes (n,) P(success) of cases in the way of the written judge."""
        return torch.sigmoid(self.config.scale * logits_of(self.net, cases) + self.config.shift)


def fit(
    train: Cases,
    validation: Cases,
    points: Points,
    effort: Effort,
    seed: int,
    note: Callable[[float], None] = lambda done: None,
) -> Fitted:
    """Trains, calibrates and chooses the threshold.

    Args:
        train, validation: trajectories of different pages; each set must have both outcomes.
        points: points of training screens with their elements; empty if pages list no elements.
        effort: length of the training.
        seed: seed of weights, order and jitter.
        note: called with the completed share of the work.
    """
    torch.manual_seed(seed)
    net = JudgeNet(points.kinds, train.numbers)
    _train(net, train, points, effort, np.random.default_rng(seed), note)
    logits, known = logits_of(net, validation), validation.truth
    scale, shift = platt(logits, known)
    config = LocalConfig(
        kinds=points.kinds,
        numbers=train.numbers,
        scale=scale,
        shift=shift,
        threshold=best_threshold(torch.sigmoid(scale * logits + shift), known),
        learned=sorted({*train.pages, *validation.pages}),
    )
    return Fitted(net, config)


def logits_of(net: JudgeNet, cases: Cases) -> Tensor:
    """Computes the network's logits of cases, (n,)."""
    with torch.inference_mode():
        starts = range(0, len(cases), TOGETHER)
        parts = [net(cases.batch(np.arange(at, min(at + TOGETHER, len(cases))))) for at in starts]
    return torch.cat(parts).clone()


def _train(
    net: JudgeNet,
    cases: Cases,
    points: Points,
    effort: Effort,
    order: np.random.Generator,
    note: Callable[[float], None],
) -> None:
    """Trains first only the reader, if there are points, then the whole network including the reader."""
    optimiser = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    kinds, reading = points.kinds, effort.reading_steps if len(points) else 0
    for step in range(reading):
        _update(net, optimiser, reading_loss(net.reader, *points.draw(effort.readings, order, kinds)), 1.0)
        note(0.4 * step / reading)
    truth = cases.truth
    steps = min(effort.steps, effort.epochs * max(1, len(cases) // effort.batch))
    rounds = -(-steps * effort.batch // len(cases))
    chosen = np.concatenate([order.permutation(len(cases)) for _ in range(rounds)])
    for step in range(steps):
        at = chosen[step * effort.batch : (step + 1) * effort.batch]
        batch = cases.batch(at)
        batch["crops"] = _jittered(batch["crops"], order)
        loss = F.binary_cross_entropy_with_logits(net(batch), truth[at])
        if len(points):
            loss = loss + READING_SHARE * reading_loss(net.reader, *points.draw(effort.batch, order, kinds))
        _update(net, optimiser, loss, min(1, (step + 1) / 50) * (1 + math.cos(math.pi * step / steps)) / 2)
        note(0.4 + 0.6 * step / steps)
    net.eval()


def _update(net: JudgeNet, optimiser: torch.optim.Optimizer, loss: Tensor, share: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = RATE * share
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimiser.step()


def _jittered(crops: Tensor, order: np.random.Generator) -> Tensor:
    down, right = (int(one) for one in order.integers(-JITTER, JITTER + 1, 2))
    return torch.roll(crops, (down, right), (-2, -1))
