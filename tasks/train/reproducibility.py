"""Compute digests of training sets. Equal digests mean that two training sets are equal, byte by byte."""

import hashlib
import json
from collections.abc import Mapping

from common.text import counted
from learning.data.sample import read_screenshots
from learning.job import Job
from schemas.failure import FlywheelError
from schemas.tables.forgotten import Forgotten
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe
from tasks.shared.policies import policy_row


def digests_of(job: Job) -> dict[str, str]:
    """Return a digest of the samples in the trainer's form, and a digest of their pictures that ignores the order.

    The digest of the pictures is computed from their sha256, which `write_pictures` has checked.
    """
    with job.samples.open("rb") as samples:
        found = {"samples": hashlib.file_digest(samples, "sha256").hexdigest()}
    names = sorted(read_screenshots(job.screenshots))
    return {**found, "pictures": hashlib.sha256("\n".join(names).encode()).hexdigest()}


def require_same(lake: Lake, recipe: PolicyRecipe, found: Mapping[str, str]) -> None:
    """Refuse to repeat a training if the training set differs from the original training set.

    Raises:
        FlywheelError: the training sets differ. The message has the differences.
    """
    assert recipe.like is not None
    kept = policy_row(lake, recipe.like).training_set
    before: dict[str, str] = json.loads(kept or "{}")
    if differing := [name for name, digest in found.items() if before.get(name, digest) != digest]:
        gone = sum(recipe.like in row.policies for row in lake.rows(Forgotten))
        why = f"; {counted(gone, 'trajectory', 'trajectories')} that it learned from were forgotten" if gone else ""
        raise FlywheelError(
            f"The training set of {recipe.like} cannot be made again: its {' and its '.join(differing)} are not those "
            f"that it was trained on{why}.",
            "Retrain from today's data without `--like`.",
        )
