"""Retraining from pinned data: the same training, measuring and promoting, with nothing collected."""

import json
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.config import Config, config_of
from schemas.failure import UsageError
from tasks.evaluate import measure_suites
from tasks.promote import challenge
from tasks.shared.material import Recipe
from tasks.shared.policies import champion, last_iteration, load_policy, policy_row
from tasks.shared.run import run_of
from tasks.train.train import pins_of, train_from


@task(name="pin", cache_policy=NO_CACHE)
def pin_data(config: Config, like: str | None) -> dict[str, Any]:
    """What a retraining reads: today's data and champion, or what an earlier policy was made from."""
    lake = run_of(config, create=False).lake
    number = sum(
        row.startswith("retrained-") for row in lake.read("policies", ["policy_version"])["policy_version"].to_pylist()
    )
    pins: dict[str, Any] = {"version": f"retrained-{number:04d}", "iteration": last_iteration(lake)}
    if like is None:
        return {
            **pins,
            "parent": champion(lake)["policy_version"],
            "versions": pins_of(lake),
            "config": config.canonical(),
        }
    row = policy_row(lake, like)
    if row["data_versions"] == "{}":
        raise UsageError(f"{like} was not trained from data ({row['method']}).", "Name a policy that was trained.")
    return {
        **pins,
        "iteration": row["iteration"],
        "parent": row["parent"],
        "versions": json.loads(row["data_versions"]),
        "config": row["config"],
    }


@task(name="retrain", cache_policy=NO_CACHE)
def train_retrained(config: Config, pins: dict[str, Any]) -> str:
    """Trains from the pins and registers the candidate; returns its version."""
    lake = run_of(config, create=False).lake
    made_by = config_of(json.loads(pins["config"]))
    recipe = Recipe(pins["version"], pins["parent"], pins["iteration"], pins["versions"])
    train_from(made_by.model_copy(update={"lake": config.lake}), lake, recipe)
    return recipe.version


@task(name="evaluate-retrained", cache_policy=NO_CACHE)
def evaluate_retrained(config: Config, version: str) -> dict[str, Any]:
    """The retrained policy on both suites' held-out seeds."""
    lake = run_of(config, create=False).lake
    iteration = policy_row(lake, version)["iteration"]
    return measure_suites(config, lake, load_policy(config, lake, version), iteration)


@task(name="challenge", cache_policy=NO_CACHE)
def challenge_champion(config: Config, version: str) -> dict[str, Any]:
    """Promotes the retrained policy if it is not worse than the champion."""
    lake = run_of(config, create=False).lake
    return challenge(config, lake, policy_row(lake, version))
