"""Trains the local judge from verified trajectories.

The judge's reader gets a bounded number of screen points with their elements, sampled uniformly. Verified trajectories
are stored on disk, so that memory does not grow with the lake. Each array of a case has its own file, with one row per
case; a trajectory takes about 40 kB in all files. The files are memory-mapped, and training reads the rows of a batch.

First, the judge's reader learns the content around a point from elements that pages list, by a contrastive loss between
pixels and names (CLIP, arXiv 2103.00020). The trained judge never sees elements. Then the whole network learns the
verifier's results. Scores are calibrated, and the threshold is chosen, on validation trajectories.

The module also calibrates a network's logits, so that scores are probabilities, and chooses the threshold for accepting
a score.

Both use trajectories on which the network was not trained.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor

from models.judges.judge import JudgeCase
from models.judges.local import (
    CONFIG,
    CROP,
    TOGETHER,
    WEIGHTS,
    Array,
    JudgeNet,
    LocalConfig,
    crop_of,
    features_of,
    grams_of,
    grey_of,
    numbered,
    reading_loss,
    stacked,
)

MOST = 65_536
"""Maximum number of points, which take 168 MB of pixels on disk."""


@dataclass(frozen=True, slots=True)
class LabelledPoint:
    """A point of a screen, in fractions of the screen, and the element at the point."""

    png: bytes
    x: float
    y: float
    name: str
    kind: str


class Points:
    """Keeps at most `most` of the added points, each with equal probability (Vitter's algorithm R, 1985).

    Args:
        file: a new file for the pixels; it must exist while points are drawn.
        chance: random numbers that decide which points are kept.
        most: maximum number of points.
    """

    def __init__(self, file: Path, chance: random.Random, most: int = MOST) -> None:
        self._chance, self._most, self._added = chance, most, 0
        self._crops: Array = np.memmap(file, np.uint8, "w+", shape=(most, *CROP))
        self._names: list[str] = []
        self._kinds: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    @property
    def kinds(self) -> list[str]:
        """Lists the kinds of elements of the kept points, and the empty kind, in order."""
        return sorted({*self._kinds, ""})

    def add(self, reading: LabelledPoint) -> None:
        """Adds a point, which is kept, replaces another point, or is dropped."""
        at = self._added if self._added < self._most else self._chance.randrange(self._added + 1)
        self._added += 1
        if at >= self._most:
            return
        if at == len(self._names):
            self._names.append("")
            self._kinds.append("")
        self._crops[at] = crop_of(grey_of(reading.png), reading.x, reading.y)
        self._names[at], self._kinds[at] = reading.name.strip().lower(), reading.kind

    def draw(
        self, count: int, order: np.random.Generator, kinds: Sequence[str]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draws `count` points as arguments of `network.reading_loss`."""
        at = order.integers(0, len(self), count)
        names = [self._names[index] for index in at]
        different = sorted({name for name in names if name}) or [""]
        places = {name: place for place, name in enumerate(different) if name}
        which = torch.tensor([places.get(name, -1) for name in names])
        grams = torch.from_numpy(np.stack([grams_of(name) for name in different]))
        shown = torch.tensor([kinds.index(self._kinds[index]) for index in at])
        return torch.from_numpy(np.asarray(self._crops[at])), grams, which, shown


PARTS = np.int16
"""Number type of parts of names on disk; there are 4096 different parts."""


@dataclass(frozen=True, slots=True)
class Example:
    """Trajectory with a verifier's result."""

    case: JudgeCase
    success: bool
    page: str
    """Task and seed of the trajectory."""


class Cases:
    """Examples, added in any number and read by their numbers.

    Args:
        folder: a new or empty folder for the files; it must exist while cases are read.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._shapes: dict[str, tuple[np.dtype[np.generic], tuple[int, ...]]] = {}
        self._mapped: dict[str, Array] = {}
        self._truth: list[bool] = []
        self.pages: list[str] = []
        """Task and seed of each example."""

    def __len__(self) -> int:
        return len(self._truth)

    @property
    def truth(self) -> Tensor:
        """Returns (n,) float32: 1 for a success, else 0."""
        return torch.tensor(self._truth, dtype=torch.float32)

    @property
    def numbers(self) -> int:
        """Returns the length of a case's `Features.numbers`; 0 without cases."""
        return self._shapes["numbers"][1][0] if self._shapes else 0

    def add(self, examples: Sequence[Example]) -> None:
        """Appends examples."""
        if not examples:
            return
        arrays = stacked([features_of(one.case) for one in examples])
        self._mapped = {}
        for name, array in arrays.items():
            kept = array.astype(PARTS) if array.dtype == np.int64 else array
            self._shapes[name] = (kept.dtype, kept.shape[1:])
            with (self._folder / name).open("ab") as file:
                file.write(kept.tobytes())
        self._truth += [one.success for one in examples]
        self.pages += [one.page for one in examples]

    def batch(self, at: Sequence[int] | Array) -> dict[str, Tensor]:
        """Reads the cases with these numbers, as inputs of the network."""
        if not self._mapped:
            self._mapped = {
                name: np.memmap(self._folder / name, dtype, "r", shape=(len(self), *shape))
                for name, (dtype, shape) in self._shapes.items()
            }
        rows = {name: np.asarray(mapped[at]) for name, mapped in self._mapped.items()}
        return numbered({name: row.astype(np.int64) if row.dtype == PARTS else row for name, row in rows.items()})


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
