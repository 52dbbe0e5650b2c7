"""Defines the folder between actors and trainer: actors write batches, and the trainer writes weights.

Streaming (UI-TARS-2, arXiv 2509.02544, 2.7) trains as soon as enough trajectories are finished and leaves the others in
the pool. The weights with k - 1 updates train on batch k (from 1), which makes the weights with k updates. The age of a
step is k - 1 minus the number of updates of the weights that chose it. The paper gives no bound. Steps older than
`train.stream.stale` updates are left out. Steps of weights that this training never made, because its folder was lost,
are left out, too. `learning.algorithms.losses.truncated_weights` weighs the other steps.

A file or folder gets its name only when it is whole. So if one side is killed, the other side never reads an incomplete
batch or incomplete weights.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from learning.data.files import Rollout, write_rollouts
from learning.data.sample import write_screenshots

KEEP = 3
"""Number of newest weights that are kept; a reader can load weights until two more updates are made."""


def weights_name(candidate: str, parent: str, updates: int) -> str:
    """Names the weights of a streaming training; before the first update, this is the parent's name."""
    return f"{candidate}+{updates}" if updates else parent


def updates_of(name: str, candidate: str, parent: str) -> int | None:
    """Parses the number of updates from a name of weights; None if the weights are not of this training."""
    if name == parent:
        return 0
    head, plus, updates = name.rpartition("+")
    return int(updates) if plus and head == candidate and updates.isdigit() else None


def staleness(chosen_at: int | None, trained_at: int) -> int | None:
    """Counts the updates between the weights that chose a step and those that train on it.

    Args:
        chosen_at: updates of the weights that chose the step; None if these are not of this training.
        trained_at: updates of the weights that train on the step, at least 0.

    Returns:
        At least 0; None if this training has not made the choosing weights, so that the age is unknown.
    """
    if chosen_at is None or chosen_at > trained_at:
        return None
    return trained_at - chosen_at


def leave_out_stale(
    rollouts: Sequence[Rollout], ages: Mapping[tuple[str, int], int | None], most: int, whole: bool = False
) -> tuple[list[Rollout], int]:
    """Selects the rollouts that are at most `most` updates old, with their ages, and counts the others.

    Args:
        rollouts: rollouts of any trajectories.
        ages: `staleness` by trajectory and step; a rollout without an entry was not sampled by a policy, and stays.
        most: maximum number of updates, at least 0.
        whole: whether one stale step removes the whole trajectory, as advantages over turns need all steps.
    """
    aged = [(rollout, ages.get((rollout.trajectory_id, rollout.step), 0)) for rollout in rollouts]
    broken = {rollout.trajectory_id for rollout, age in aged if whole and (age is None or age > most)}
    kept = [
        replace(rollout, age=age)
        for rollout, age in aged
        if age is not None and age <= most and rollout.trajectory_id not in broken
    ]
    return kept, len(rollouts) - len(kept)


class StreamFolder:
    """The folder of one streaming training.

    One process adds batches, and another process publishes weights.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path

    def rollouts(self, number: int) -> Path:
        """Returns the path of a batch's rollouts."""
        return self._path / f"batch-{number:05d}.parquet"

    def screenshots(self, number: int) -> Path:
        """Returns the path of a batch's screenshots."""
        return self._path / f"batch-{number:05d}.screenshots.parquet"

    def put(self, rollouts: Sequence[Rollout], pngs: Mapping[str, bytes], notes: Mapping[str, Any]) -> int:
        """Adds the next batch, with notes for the writer itself; returns the batch's number."""
        number = self.batches() + 1
        write_rollouts(self.rollouts(number), rollouts)
        write_screenshots(self.screenshots(number), pngs)
        self._mark(self._notes(number), notes)
        return number

    def batches(self) -> int:
        """Counts the batches."""
        return len(list(self._path.glob("batch-*.json")))

    def notes(self) -> list[dict[str, Any]]:
        """Reads the notes of all batches, in order."""
        return [json.loads(self._notes(number).read_text()) for number in range(1, self.batches() + 1)]

    def has(self, number: int) -> bool:
        """Checks whether a batch exists."""
        return self._notes(number).exists()

    def end(self) -> None:
        """Marks that no batch will follow."""
        self._mark(self._path / "end.json", {"batches": self.batches()})

    def ended(self) -> bool:
        """Checks whether no batch will follow."""
        return (self._path / "end.json").exists()

    def weights(self, updates: int) -> Path:
        """Returns the path of the weights' checkpoint after a number of updates."""
        return self._path / f"weights-{updates:05d}"

    def published(self) -> int:
        """Counts the updates of the newest published weights; 0 if there are none."""
        found = [folder.name.removeprefix("weights-") for folder in self._path.glob("weights-*")]
        return max((int(name) for name in found if name.isdigit()), default=0)

    def forget(self) -> None:
        """Removes all weights except the newest `KEEP`."""
        newest = self.published()
        for folder in self._path.glob("weights-*"):
            name = folder.name.removeprefix("weights-")
            if name.isdigit() and int(name) <= newest - KEEP:
                shutil.rmtree(folder, ignore_errors=True)

    def _notes(self, number: int) -> Path:
        return self._path / f"batch-{number:05d}.json"

    def _mark(self, path: Path, content: Mapping[str, Any]) -> None:
        part = path.with_name(f"{path.name}.part")
        part.write_text(json.dumps(content, sort_keys=True))
        part.replace(path)
