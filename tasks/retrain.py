"""Train a policy from pinned data without a collection."""

import json
from dataclasses import dataclass, replace

from learning.engines.choice import optimizer_of, without_ignored
from schemas.config import Config, config_of
from schemas.failure import LakeError, UsageError
from schemas.tables.policy import PolicyVersion
from storage.lake import Lake
from tasks.openlineage import emitted
from tasks.preflight.checks import require_descent, require_held_out
from tasks.preflight.unused_keys import LAUNCHED
from tasks.prepare import first_policy
from tasks.running.boundary import boundary
from tasks.running.run import run_of
from tasks.shared.general import store_general
from tasks.shared.lease import claim
from tasks.shared.material import PolicyRecipe
from tasks.shared.policies import last_iteration, policy_row
from tasks.shared.weights import checkpoint_folder
from tasks.train.train import pins_of, train_from


@dataclass(frozen=True, slots=True)
class Pinned:
    """Recipe of a retraining, and its config as canonical JSON."""

    recipe: PolicyRecipe
    config: str


@boundary("pin")
def pin_data(config: Config, like: str | None) -> Pinned:
    """Pin the data of a retraining and claim its name. Pin the current data, or the data of an earlier policy.

    A lake without a policy, such as one that holds only an import, gets its first policy from `policy.base`.

    Raises:
        UsageError: the policy does not exist or was not trained from data, or the lake's policies have another origin
            than the config's policy.
        LakeError: files of the earlier policy's table versions were removed. The message has these versions.
    """
    lake = run_of(config, create=False).lake
    pinned = _today(config, lake) if like is None else _repeated(lake, like)
    recipe = pinned.recipe
    # a retraining that was interrupted during its evaluation added its own evaluations
    read = {table: version for table, version in recipe.pins.items() if table != "evaluations"}
    made = {"parent": recipe.parent, "iteration": recipe.iteration, "versions": read, "config": pinned.config}
    version = claim(lake, "retrained", made | ({"like": recipe.like} if recipe.like else {}))
    return replace(pinned, recipe=replace(recipe, version=version))


@boundary("train")
def train_retrained(config: Config, pinned: Pinned) -> str:
    """Train from the pinned data, register the candidate, and return its version.

    Raises:
        UsageError: the data has nothing to train on.
    """
    lake, recipe = run_of(config, create=False).lake, pinned.recipe
    if not lake.count("policies", {"policy_version": recipe.version}):  # an earlier process may have trained the policy
        made_by = config_of(json.loads(pinned.config))
        where = {key: getattr(config.train, key) for key in LAUNCHED}
        train = made_by.train.model_copy(update=where)
        made_by = made_by.model_copy(update={"lake": config.lake, "train": train})
        run = run_of(config, create=False)
        with emitted(run, "retrain", recipe.version, recipe.pins, recipe.parent) as made:
            trained = train_from(made_by, lake, recipe)
            if trained.policy is None:
                raise UsageError(
                    f"`retrain`: {trained.text}.",
                    "Accept trajectories with `flywheel trajectories decide accept`, or those of an import without "
                    "outcomes with `flywheel data import ... --demonstrations`.",
                )
            made.append(trained.policy)
    return recipe.version


def _today(config: Config, lake: Lake) -> Pinned:
    require_descent(config, lake)
    require_held_out(config, lake)
    parent, iteration = first_policy(config, lake).policy_version, last_iteration(lake)
    store_general(config, lake, iteration)
    return Pinned(PolicyRecipe("", parent, iteration, pins_of(lake), "retrained"), config.canonical())


def trained_row(lake: Lake, version: str) -> tuple[PolicyVersion, str]:
    """Return the row and the parent of a policy. Raise UsageError if the policy was not trained from data."""
    row = policy_row(lake, version)
    if row.parent is None or not row.pins:
        raise UsageError(f"{version} was not trained from data ({row.method}).", "Name a policy that was trained.")
    return row, row.parent


def _repeated(lake: Lake, like: str) -> Pinned:
    row, parent = trained_row(lake, like)
    if gone := lake.missing(row.pins):
        listed = ", ".join(f"{table} {version}" for table, version in sorted(gone.items()))
        raise LakeError(
            f"{like} cannot be made again: of its training data, {listed} does not exist any more.",
            "Retrain from today's data without `--like`.",
        )
    made_by, small = config_of(json.loads(row.config)), optimizer_of(checkpoint_folder(lake, parent)) == "muon"
    as_trained = made_by.model_copy(update={"train": without_ignored(made_by.train, small)})
    recipe = PolicyRecipe("", parent, row.iteration, row.pins, "retrained", row.policy_version)
    return Pinned(recipe, as_trained.canonical())
