"""Policies by version: which one is champion, what a new one is registered as, and the model behind a version."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.families.family import ModelFamily
from models.families.registry import family_of
from models.tiny.layout import TRAINING
from models.vlm import VlmPolicy
from schemas.config import Config
from schemas.failure import CheckpointError
from schemas.table import utc_now
from schemas.tables.policy import Kind, PolicyVersion, Status
from storage.lake import Lake
from tasks.shared.console import err
from tasks.shared.masters import read_masters
from tasks.shared.places import cache_folder
from tasks.shared.version import code_version

STATUS: dict[Kind, Status] = {"initial": "champion", "intermediate": "intermediate"}
"""What a new policy of a kind is, where it is not a candidate."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a policy comes from."""

    version: str
    kind: Kind
    method: str
    parent: str | None
    iteration: int
    pins: Mapping[str, int] = field(default_factory=dict)
    """The versions of the tables that it was made from."""


def register(
    lake: Lake, config: Config, origin: Origin, checkpoint: str, metrics: Mapping[str, Any], seed: int
) -> None:
    """Adds a policy's row; the lake's first one is champion, and any other that is not intermediate a candidate."""
    row = PolicyVersion(
        policy_version=origin.version,
        kind=origin.kind,
        parent=origin.parent,
        iteration=origin.iteration,
        method=origin.method,
        checkpoint=checkpoint,
        data_versions=json.dumps(dict(origin.pins), sort_keys=True),
        config=config.canonical(),
        code=code_version(),
        seed=seed,
        metrics=json.dumps(metrics, sort_keys=True),
        status=STATUS.get(origin.kind, "candidate"),
        created_at=utc_now(),
    )
    lake.append("policies", [row])


def champion(lake: Lake) -> dict[str, Any]:
    """The row of the policy that now plays.

    Raises:
        CheckpointError: the lake has no policy yet.
    """
    rows = lake.read("policies", where={"status": "champion"}).to_pylist()
    if not rows:
        raise CheckpointError(f"The lake {lake.uri} has no champion yet.", "`flywheel run` makes the first policy.")
    return max(rows, key=lambda row: row["created_at"])


def policy_row(lake: Lake, version: str) -> dict[str, Any]:
    """The row of a policy version; `champion` names the one that now plays.

    Raises:
        CheckpointError: there is no such version; names those there are.
    """
    if version == "champion":
        return champion(lake)
    rows = lake.read("policies").to_pylist()
    found = next((row for row in rows if row["policy_version"] == version), None)
    if found is None:
        known = ", ".join(sorted(row["policy_version"] for row in rows)) or "none"
        raise CheckpointError(f"There is no policy `{version}` in {lake.uri}.", f"There are: {known}.")
    return found


def measured_ancestor(lake: Lake, version: str) -> str:
    """The policy that this one stands for in comparisons: itself, or, of an intermediate one, whose weights it had."""
    row = policy_row(lake, version)
    while row["kind"] == "intermediate":
        row = policy_row(lake, row["parent"])
    return row["policy_version"]


def origin_of(lake: Lake) -> dict[str, Any] | None:
    """The policy without a parent that the champion descends from; None before the first policy."""
    rows = {row["policy_version"]: row for row in lake.read("policies").to_pylist()}
    reigning = [row for row in rows.values() if row["status"] == "champion"]
    row = max(reigning, key=lambda row: row["created_at"], default=None)
    while row is not None and row["parent"] in rows:
        row = rows[row["parent"]]
    return row


def candidate_of(lake: Lake, iteration: int) -> dict[str, Any] | None:
    """The policy that this iteration trained, or None if it trained none."""
    return made_in(lake, iteration, "iteration")


def made_in(lake: Lake, iteration: int, kind: Kind) -> dict[str, Any] | None:
    """The policy of a kind that an iteration made, or None."""
    rows = lake.read("policies", where={"iteration": iteration, "kind": kind}).to_pylist()
    return rows[0] if rows else None


def version_of(iteration: int) -> str:
    """The name of the policy that an iteration trains."""
    return f"policy-{iteration:04d}"


def last_iteration(lake: Lake) -> int:
    """The latest iteration that has trajectories; 0 if there is none."""
    iterations = lake.read("trajectories", ["iteration"])["iteration"].to_pylist()
    return max(iterations, default=0)


def checkpoint_folder(lake: Lake, version: str, to_train: bool = False) -> Path:
    """A local folder with the checkpoint of a version, fetched from the lake if need be.

    What only its next training needs is fetched if it is `to_train`, and nobody sweeps it before that has ended.
    """
    row = policy_row(lake, version)
    without = () if to_train else (f"{TRAINING}/",)
    if to_train:
        read_masters(lake, row["policy_version"])
        if TRAINING in lake.blobs.dropped(row["checkpoint"]):
            err().print(f"{row['policy_version']} has no fp32 weights any more: training begins from its rounded ones")
    return lake.blobs.get_directory(row["checkpoint"], cache_folder(lake) / row["policy_version"], without)


def load_policy(config: Config, lake: Lake, version: str) -> VlmPolicy:
    """The policy of a version."""
    row = policy_row(lake, version)
    return VlmPolicy(checkpoint_folder(lake, version), config.policy, version=row["policy_version"])


def policy_family(config: Config, lake: Lake, version: str) -> ModelFamily:
    """The family of a version that is to be trained, which says how it writes what it is to learn."""
    return family_of(config.policy, checkpoint_folder(lake, version, to_train=True))
