"""Select the data of supervised and continual training, from all iterations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from environments.catalog import catalog
from learning.algorithms.method import Schedule
from schemas.config import Config
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe, TrainingMaterial, seed_of
from tasks.shared.policies import measured_ancestor
from tasks.train.mixture import MixturePart, perception_part, write_mixture


def supervised(config: Config, lake: Lake, recipe: PolicyRecipe) -> TrainingMaterial:
    """Return all accepted data, screens of failures for grounding, and perception data."""
    weighed = weighed_targets(config, lake, measured_ancestor(lake, recipe.parent).policy_version, recipe.pins)
    usable = weighed["grounding"].filter(weighed["weight"].is_valid()).to_numpy()
    screens, targets = int(usable.sum()), int((~usable).sum())
    share = config.train.perception
    perceived = perception_part(lake, recipe.pins, share)
    steps = MixturePart(weighed, "training_samples", 1 - share, steps=True, parameters=_reported(config))
    numbers = {"samples": targets, "grounding_screens": screens}
    summary = f"{targets} steps of accepted trajectories"
    if share:
        numbers |= {"perception": perceived.usable}
        summary += f", {perceived.usable} perception samples"
    return TrainingMaterial(
        write=_writer(config, lake, recipe, [steps, perceived]),
        samples=targets + screens + (perceived.usable if share else 0),
        numbers=numbers,
        summary=summary,
        nothing="" if targets else "no accepted trajectory yet",
    )


def weighed_targets(
    config: Config, lake: Lake, measured: str = "", versions: Mapping[str, int] | None = None
) -> pa.Table:
    """Return every step that can be imitated, with its weight from `storage/queries/training_weights.sql`.

    Args:
        config: config of the training.
        lake: the lake.
        measured: policy whose success rates weigh the tasks; if empty, every task counts as not measured.
        versions: versions of the tables; the current versions if not given.
    """
    return ask(
        lake,
        "training_weights",
        versions,
        history_images=config.policy.history_images,
        measured=measured,
        balance=config.train.task_balance,
        floor=config.train.task_floor,
        grounding_share=config.train.grounding_share,
        practice=[task.task_id for task in catalog(config) if task.split == "practice"],
        practice_share=config.train.practice,
        prefixes=config.filter.prefixes,
        corrections=config.filter.corrections,
    )


def continual_material(config: Config, lake: Lake, recipe: PolicyRecipe) -> TrainingMaterial:
    """Return data of the failed trajectories of all iterations, and perception data.

    The data of a failed trajectory is relabelled samples, or the trajectory's own steps (`train.ct.form`).
    """
    ct = config.train.ct
    failed, kinds = (_relabelled if ct.form == "relabelled" else _trajectories)(config, lake, recipe)
    perceived = perception_part(lake, recipe.pins, ct.perception)
    if ct.perception:
        kinds |= {"perception": perceived.usable}
    parts = [part for part in (failed, perceived) if part.share]
    samples = sum(part.usable for part in parts)
    return TrainingMaterial(
        write=_writer(config, lake, recipe, parts),
        samples=samples,
        numbers={"samples": samples, "kinds": kinds},
        summary=", ".join(f"{kind} {count}" for kind, count in kinds.items()),
        nothing="" if samples else "no failed trajectory shows anything yet",
    )


def _relabelled(config: Config, lake: Lake, recipe: PolicyRecipe) -> tuple[MixturePart, dict[str, int]]:
    """Return relabelled samples of failed trajectories, and their number by kind."""
    weighed = ask(lake, "continual_weights", recipe.pins)
    counts = Counter("grounding" if kind == "step" else kind for kind in weighed["kind"].to_pylist())
    return MixturePart(weighed, "continual_samples", 1 - config.train.ct.perception), dict(sorted(counts.items()))


def _trajectories(config: Config, lake: Lake, recipe: PolicyRecipe) -> tuple[MixturePart, dict[str, int]]:
    """Return the own steps of failed trajectories as targets."""
    weighed = ask(lake, "continual_step_weights", recipe.pins)
    part = MixturePart(
        weighed,
        "training_samples",
        1 - config.train.ct.perception,
        steps=True,
        parameters=_reported(config),
    )
    return part, {"failed_steps": part.usable}


def _reported(config: Config) -> Mapping[str, int | float | bool]:
    """Return the numbers of a step's context settings: screens and thoughts."""
    return {
        "history_images": config.policy.history_images,
        "thoughts": config.policy.thoughts,
        "without": config.think.keep_without,
    }


def _writer(config: Config, lake: Lake, recipe: PolicyRecipe, parts: Sequence[MixturePart]) -> Any:
    def write(path: Path, schedule: Schedule) -> set[str]:
        return write_mixture(path, parts, schedule.positions, seed_of(config, recipe), lake, recipe.pins)

    return write
