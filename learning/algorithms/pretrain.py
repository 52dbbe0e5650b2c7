"""Trains a base from rendered pages: imitates answers, knows the letter in each cell and the place of each screen
token, and looks at the next letter.

The linear head for letters and places, and the supervision of attention, exist only in training. The checkpoints of the
training hold the head, and the policy does not.
"""

import math
from typing import TYPE_CHECKING, Any

from learning.algorithms.method import DataSource, Method
from learning.algorithms.objective import Objective
from learning.data.pages import LARGEST, PageSample, read_pages
from schemas.failure import CheckpointError

if TYPE_CHECKING:  # a stage reads the record without loading torch
    from collections.abc import Sequence

    from torch import Tensor

    from learning.checkpoint import State
    from learning.engines.engine import Batch, Engine, Outputs, Piece
    from learning.job import Job


class BasePretraining(Objective):
    """Computes the weighted sum of losses, each a mean over a screen's targets, and the mean over the screens.

    The losses are the cross entropy of the places and of the other tokens of answers; of letters, by a linear head on
    screen tokens, and by the reading heads of the last text layer; of the row and of the column of screen tokens, by a
    linear head before the last text layer; and of attention at the next letter, at places, and at the letters of names.

    Raises:
        CheckpointError: the job trains another model than the small policy.
    """

    def __init__(self, job: "Job", engine: "Engine") -> None:
        import torch

        from learning.engines.tiny.engine import TinyEngine
        from learning.engines.tiny.exam import SHAPE
        from learning.engines.tiny.optimizer import Adam
        from learning.engines.tiny.pages import CELL, CLASSES

        super().__init__(job, engine)
        if not isinstance(engine, TinyEngine):
            raise CheckpointError(f"{job.parent} is not the small policy.", "Leave train.method out.")
        self._tiny, self._settings = engine, job.train.pretrain
        width = engine.net.text["hidden_size"]
        block = engine.net.vision["patch_size"] * engine.net.vision["spatial_merge_size"]
        cells = (block // CELL[0]) * (block // CELL[1])
        self._letters, self._places = (cells, CLASSES), tuple(-(-side // block) for side in LARGEST)
        heads = cells * CLASSES + sum(self._places)
        drawn = torch.randn(heads, width, generator=torch.Generator().manual_seed(job.seed))
        self._head = torch.cat([drawn / math.sqrt(width), torch.zeros(len(drawn), 1)], dim=1)
        """(cells * classes + columns + rows, hidden + 1): weights, then the bias."""
        self._head.requires_grad_().grad = torch.zeros_like(self._head)
        self._adam = Adam(self._head.detach(), 0.0)
        self._step, self._examined = 0, 0
        self._held_out: Sequence[PageSample] = ()
        self.counts = torch.zeros(math.prod(SHAPE), dtype=torch.float64)

    def documents(self, samples: "Sequence[Any]") -> "Sequence[Any]":
        """Keeps the screens of the split `validation` for the measurements."""
        held_out = [sample for sample in samples if sample.split == "validation"]
        self._held_out = held_out[self._engine.rank :: self._engine.world]
        return samples

    def letters(self, tokens: "Tensor") -> "Tensor":
        """Computes the letter logits of screen tokens, (n, hidden) to (n, cells, classes)."""
        import torch.nn.functional as F

        head = self._head[: math.prod(self._letters)]
        return F.linear(tokens.float(), head[:, :-1], head[:, -1]).unflatten(-1, self._letters)

    def _place_loss(self, tokens: "Tensor", across: int) -> "Tensor":
        """Computes the cross entropy of column and row, summed over screens, of their tokens (n, tokens, hidden)."""
        import torch
        import torch.nn.functional as F

        head, at = self._head[math.prod(self._letters) :], torch.arange(tokens.shape[1])
        logits = F.linear(F.rms_norm(tokens.float(), tokens.shape[-1:]), head[:, :-1], head[:, -1])
        loss = logits.new_zeros(())
        for part, place in zip(logits.split(self._places, dim=-1), (at % across, at // across), strict=True):
            known = place.clamp(max=part.shape[-1] - 1).expand(len(tokens), -1)
            loss = loss + F.cross_entropy(part.flatten(0, 1), known.flatten()) * len(tokens)
        return loss

    @property
    def measurement(self) -> str:
        """Names the measurement on held-out pages, if the next step begins with it."""
        last = self._step == self._job.steps
        due = last or (self._step > 0 and self._step % self._settings.validate_every == 0)
        return "measuring held-out pages" if due and (last or self._examined != self._step) else ""

    def start(self) -> None:
        """Measures on held-out pages every `train.pretrain.validate_every` steps, and at the end."""
        if self._step == self._job.steps:
            self.counts.zero_()  # the measures that are stored with the policy are those of the last measurement
        if self.measurement:
            self._examined = self._step
            self.counts += self._tiny.examine(self.letters, self._held_out).flatten()

    def loss(self, piece: "Piece", outputs: "Outputs", batch: "Batch") -> "Tensor":
        """Computes a piece's share of the loss of its step."""
        import torch.nn.functional as F

        loss = -(outputs.logprobs * outputs.weights).sum()
        if outputs.gaze is not None:
            loss = loss - self._settings.looking * (outputs.gaze * piece.gaze_weights).sum()
        if outputs.copied is not None:
            loss = loss - self._settings.copying * (outputs.copied * piece.copy_weights).sum()
        if outputs.known is not None and self._settings.places:
            across = piece.grid.columns // self._tiny.net.vision["spatial_merge_size"]
            loss = loss + self._settings.places * self._place_loss(outputs.known, across) / piece.screens
        if len(piece.cells):
            assert outputs.screens is not None
            screens, tokens, cells = piece.cells.unbind(1)
            used, at = (screens * outputs.screens.shape[1] + tokens).unique(return_inverse=True)
            logits = self.letters(outputs.screens.flatten(0, 1)[used])[at, cells]
            each = F.cross_entropy(logits, piece.letters, reduction="none")
            loss = loss + self._settings.letters * (each * piece.cell_weights).sum()
        return loss / max(1, batch.targets)

    def zero(self) -> None:
        """Clears the gradient of the head."""
        assert self._head.grad is not None
        self._head.grad.zero_()

    def update(self, rate: float) -> float:
        """Makes one step of the head on the ranks' summed gradient."""
        import torch

        assert self._head.grad is not None
        gradient = self._engine.sum(self._head.grad)
        norm = float(torch.linalg.vector_norm(gradient))
        if math.isfinite(norm):
            with torch.no_grad():
                self._adam.step(gradient * min(1.0, self._job.train.clip / (norm + 1e-6)), rate)
        self._step += 1
        return norm

    def metrics(self, counts: "Tensor") -> dict[str, float]:
        """Computes the measures of the last measurement (`learning.engines.tiny.exam.measures_of`)."""
        from learning.engines.tiny.exam import measures_of

        return measures_of(counts)

    def measures(self, counts: "Tensor") -> dict[str, float]:
        """Computes the measures of a measurement since the last report, if there was one."""
        return self.metrics(counts.cpu())

    def state(self) -> "State":
        """Returns the head and its moments."""
        parts = {"weight": self._head.detach(), "exp_avg": self._adam.mean, "exp_avg_sq": self._adam.square}
        return {f"head.{name}": part for name, part in parts.items()}

    def restored(self, step: int) -> None:
        """Resumes at this step."""
        self._step = step
        self._adam.steps.fill_(step)


METHOD = Method(
    source=DataSource.PAGES,
    read=read_pages,
    objective=BasePretraining,
    section="pretrain",
    rates={"muon": 3e-3},
)
