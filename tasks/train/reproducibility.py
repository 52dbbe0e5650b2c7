"""Digests of a policy's training set: equal ones mean the same training set, byte for byte."""

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
    """Return digests of the samples as the trainer reads them, and of their pictures, independent of the order.

    The pictures' digest is of their names, which `write_pictures` has checked to match their bytes.
    """
    with job.samples.open("rb") as samples:
        found = {"samples": hashlib.file_digest(samples, "sha256").hexdigest()}
    names = sorted(read_screenshots(job.screenshots))
    return {**found, "pictures": hashlib.sha256("\n".join(names).encode()).hexdigest()}


def require_same(lake: Lake, recipe: PolicyRecipe, found: Mapping[str, str]) -> None:
    """Refuse to train on another set than that of the policy whose training is repeated.

    Raises:
        FlywheelError: the message has the differences.
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
