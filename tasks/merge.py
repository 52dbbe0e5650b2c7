"""Merge policies with a common origin into one policy, and search the weights by held-out success."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from learning.algorithms.merging import check_alike, check_shares, grid, merge_checkpoints
from models.vlm import VlmPolicy
from schemas.config import Config
from schemas.failure import CheckpointError, UsageError
from schemas.tables.trajectory import SPLIT_STARTS
from storage.lake import Lake
from tasks.measure import measured
from tasks.running.boundary import boundary
from tasks.running.console import err
from tasks.running.run import run_of
from tasks.shared.lease import claim
from tasks.shared.paths import work_folder
from tasks.shared.policies import PolicyRecipe, ancestry, last_iteration, policies, policy_row, register
from tasks.shared.weights import checkpoint_folder

SEARCH_START = SPLIT_STARTS["validation"] + 500_000
"""First held-out seed of the search. A promotion uses other seeds, so its test stays fair."""


@dataclass(frozen=True, slots=True)
class TriedWeights:
    """Weights and their success on the seeds of the search."""

    shares: tuple[float, ...]
    success: float | None


def check_named(lake: Lake, named: Sequence[str], shares: Sequence[float] | None) -> tuple[list[str], str]:
    """Return the versions of the policies to merge, and their common origin. Their weights are not read.

    Raises:
        UsageError: a policy is unknown, there are fewer than two policies, or the sum of the shares is not 1.
        CheckpointError: the policies have no common origin.
    """
    names = [policy_row(lake, name).policy_version for name in named]
    if len(set(names)) < 2:
        raise UsageError("Merging needs at least two different policies.", "Name them one after the other.")
    origin = common_origin(lake, names)
    if shares is not None:
        check_shares(shares, len(names))
    return names, origin


@boundary("merge")
def merge_policies(config: Config, named: list[str], shares: list[float] | None, parts: int) -> str:
    """Interpolate the weights of policies, register the result as a candidate, and return its version.

    Args:
        config: config with the suite, and the seeds per task for each point of the search.
        named: versions of the policies, at least two.
        shares: one share per policy; searched if not given.
        parts: grid of the search: shares are multiples of 1 / parts.

    Raises:
        UsageError: a policy is unknown, there are fewer than two policies, or the sum of the shares is not 1.
        CheckpointError: the policies cannot be merged.
    """
    lake = run_of(config, create=False).lake
    names, origin = check_named(lake, named, shares)
    folders = [checkpoint_folder(lake, name) for name in names]
    check_alike(folders)
    version = claim(
        lake, "merged", {"policies": names, "weights": shares, "parts": parts, "config": config.canonical()}
    )
    if lake.count("policies", {"policy_version": version}):
        return version  # an earlier process merged the policies and was killed
    folder = work_folder(lake, version)
    tried = [TriedWeights(tuple(shares), None)] if shares else _search(config, folders, parts, folder / "tried")
    best = max(tried, key=lambda one: (one.success or 0.0, -max(one.shares)))  # among equals, the most even weights
    merged = folder / "merged"
    shutil.rmtree(merged, ignore_errors=True)
    merge_checkpoints(folders, best.shares, merged)
    metrics = {
        "merged": dict(zip(names, best.shares, strict=True)),
        "search": [{"weights": one.shares, "success": one.success} for one in tried],
    }
    checkpoint = lake.blobs.put_directory(merged, f"checkpoints/{version}")
    recipe = PolicyRecipe(version, origin, last_iteration(lake), {}, "merged")
    register(lake, config, recipe, "merge", checkpoint, metrics, config.seed)
    shutil.rmtree(folder)
    return version


def common_origin(lake: Lake, names: Sequence[str]) -> str:
    """Return the nearest trained policy that all of the named policies descend from.

    Raises:
        CheckpointError: there is none, so an interpolation of the weights would not work.
    """
    known = policies(lake)
    chains = [ancestry(known, name) for name in names]
    origin = next((name for name in chains[0] if all(name in chain for chain in chains)), None)
    if origin is None or known[origin].method == "random":
        raise CheckpointError(
            f"{', '.join(names)} were not trained from one trained start ({origin or 'no common parent'}).",
            "Merge policies that `flywheel lineage` leads back to the same trained policy.",
        )
    return origin


def _search(config: Config, folders: Sequence[Path], parts: int, out: Path) -> list[TriedWeights]:
    seeds = (SEARCH_START, SEARCH_START + config.evaluate.seeds)
    tried = []
    for shares in grid(len(folders), parts):
        shutil.rmtree(out, ignore_errors=True)
        merge_checkpoints(folders, shares, out)
        success = measured(config, VlmPolicy(out, config.policy), None, seeds).rates.success
        tried.append(TriedWeights(shares, success))
        listed = ", ".join(f"{share:.2f}" for share in shares)
        err().print(f"{'merge':>12}  weights {listed}: success {success if success is None else f'{success:.3f}'}")
    shutil.rmtree(out, ignore_errors=True)
    return tried
