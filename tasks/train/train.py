"""Stage: trains a candidate on the routed, pinned data, in a process of its own."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from curation.dataset import questions_of, samples_of, weigh
from environments.catalog import catalog
from learning.data.sample import write_samples, write_screenshots
from learning.job import Job
from learning.resume import sweep
from schemas.config import Config
from schemas.policy import PolicyVersion
from schemas.sample import TrainSample
from schemas.table import utc_now
from storage.catalog import ask
from storage.lake import Lake
from tasks.prepare import INITIAL
from tasks.shared.console import bar
from tasks.shared.material import Material, Recipe, pngs_of, seed_of
from tasks.shared.places import work_folder
from tasks.shared.policies import champion, checkpoint_folder, measured_ancestor, version_of
from tasks.shared.run import Run
from tasks.shared.stage import result_of, stage
from tasks.shared.trainer_process import TrainerProcess
from tasks.shared.version import code_version
from tasks.train.continual import continual_material
from tasks.train.groups import group_material
from tasks.train.ppo import ppo_material
from tasks.train.preferences import preference_material

PINNED = ("trajectories", "steps", "screenshots", "verdicts", "annotations", "evaluations", "pairs", "tasks")
"""The tables a training reads; their versions are kept with the policy."""


@stage("train", retries=1)
def train_policy(run: Run, iteration: int) -> dict[str, Any]:
    """By the configured method, from the champion's weights (after continual training, from what that made of them);
    the candidate is a row in `policies`."""
    config, lake = run.config, run.lake
    continued = lake.count("policies", {"policy_version": continued_version(iteration)}) > 0
    parent = continued_version(iteration) if continued else champion(lake)["policy_version"]
    recipe = Recipe(version_of(iteration), parent, iteration, pins_of(lake))
    streamed = (result_of(lake, iteration, "collect") or {}).get("stream") if config.train.stream.on else None
    return train_from(config, lake, recipe) if streamed is None else _register_streamed(config, lake, recipe, streamed)


@stage("ct", retries=1)
def continue_training(run: Run, iteration: int) -> dict[str, Any]:
    """Every `train.ct_every` iterations: continual training on the failed plays of all iterations, from the champion's
    weights; the supervised training goes on from what it makes."""
    config, lake = run.config, run.lake
    every = config.train.ct_every
    if not every or not iteration or iteration % every:
        return {"say": "not in this iteration"}
    train = config.train.model_copy(update={"method": "ct", "ct_every": 0})
    parent = champion(lake)["policy_version"]
    recipe = Recipe(continued_version(iteration), parent, iteration, pins_of(lake), "intermediate")
    return train_from(config.model_copy(update={"train": train}), lake, recipe)


def continued_version(iteration: int) -> str:
    """The name of the policy that continual training makes for an iteration's supervised training."""
    return f"{version_of(iteration)}-ct"


def pins_of(lake: Lake) -> dict[str, int]:
    """Today's versions of the tables that a training reads."""
    return {table: version for table, version in lake.versions().items() if table in PINNED}


def train_from(config: Config, lake: Lake, recipe: Recipe) -> dict[str, Any]:
    """Trains, stores the checkpoint, registers the policy; says so and does nothing where there is no data.

    A training of the same recipe that was cut short goes on from its last checkpoint.

    Raises:
        FlywheelError: the trainer stopped with an error; nothing was stored.
    """
    material = MATERIAL[config.train.method](config, lake, recipe)
    if material.nothing:
        return {**material.numbers, "samples": 0, "say": f"{material.nothing}, so nothing was trained"}
    folder = work_folder(lake, recipe.version)
    job = _job(config, lake, recipe, folder, material)
    sweep(job)
    metrics = {**_run(job, folder), **material.numbers}
    _register(config, lake, recipe, lake.blobs.put_directory(job.out, f"checkpoints/{recipe.version}"), metrics)
    shutil.rmtree(folder)
    pace = f"loss {metrics['loss']:.3f}, {metrics['samples_per_s']:.0f} samples/s"
    return {**metrics, "policy": recipe.version, "say": f"{material.said}, {pace}"}


def _register_streamed(config: Config, lake: Lake, recipe: Recipe, streamed: Mapping[str, Any]) -> dict[str, Any]:
    """Makes what was trained while the plays went on the candidate, now that their data has passed the gates."""
    metrics = {name: value for name, value in streamed.items() if name not in ("checkpoint", "say")}
    if not streamed["checkpoint"]:
        return {**metrics, "say": streamed["say"]}
    _register(config, lake, recipe, streamed["checkpoint"], metrics)
    shutil.rmtree(work_folder(lake, recipe.version))
    return {**metrics, "policy": recipe.version, "say": streamed["say"]}


def _register(config: Config, lake: Lake, recipe: Recipe, checkpoint: str, metrics: Mapping[str, Any]) -> None:
    row = PolicyVersion(
        policy_version=recipe.version,
        parent=recipe.parent,
        iteration=recipe.iteration,
        method=config.train.method,
        checkpoint=checkpoint,
        data_versions=json.dumps(dict(recipe.pins), sort_keys=True),
        config=config.canonical(),
        code=code_version(),
        seed=seed_of(config, recipe),
        metrics=json.dumps(metrics, sort_keys=True),
        status=recipe.status,
        created_at=utc_now(),
    )
    lake.append("policies", [row])


def supervised(config: Config, lake: Lake, recipe: Recipe) -> Material:
    """Everything accepted so far, and screens of failures that teach grounding."""
    samples = gather(config, lake, recipe)
    targets = sum(sample.action is not None for sample in samples)
    first = measured_ancestor(lake, recipe.parent) == INITIAL and config.policy.base == "tiny"
    return Material(
        screenshots=sorted({digest for sample in samples for digest in sample.screenshots}),
        write=lambda path: write_samples(path, samples),
        steps=config.train.steps_first if first else config.train.steps,
        learning_rate=config.train.learning_rate_first if first else config.train.learning_rate,
        train=config.train,
        numbers={"samples": targets, "grounding_screens": len(samples) - targets},
        said=f"{targets} steps of accepted trajectories",
        nothing="" if targets else "no accepted trajectory yet",
    )


MATERIAL: dict[str, Callable[[Config, Lake, Recipe], Material]] = {
    "sft": supervised,
    "ct": continual_material,
    "rft": supervised,
    "grpo": group_material,
    "ppo": ppo_material,
    "dpo": preference_material,
}
"""What each method trains on."""


def gather(config: Config, lake: Lake, recipe: Recipe) -> list[TrainSample]:
    """The weighed samples of the pinned data."""
    rows = ask(lake, "training_steps", recipe.pins).to_pylist()
    annotations = ask(lake, "training_annotations", recipe.pins).to_pylist()
    thoughts = {(row["trajectory_id"], row["step"]): row["thought"] for row in annotations if row["kind"] == "thought"}
    questions = questions_of([row for row in annotations if row["kind"] == "grounding"])
    trajectories = {row["trajectory_id"]: row for row in rows}
    steps: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        steps.setdefault(row["trajectory_id"], []).append(row)
    samples = samples_of(list(trajectories.values()), steps, thoughts, questions, config.policy.history_images)
    practice = {task.task_id for task in catalog(config) if task.split == "practice"}
    return weigh(samples, _success(lake, recipe), config.train.task_balance, practice, config.train.practice)


def _success(lake: Lake, recipe: Recipe) -> dict[str, float]:
    """The parent's held-out success by task, at the pinned version."""
    where = {"policy_version": measured_ancestor(lake, recipe.parent), "suite": "suite"}
    rows = lake.read("evaluations", ["task_id", "success"], where, version=recipe.pins.get("evaluations")).to_pylist()
    by_task: dict[str, list[bool]] = {}
    for row in rows:
        if row["success"] is not None:
            by_task.setdefault(row["task_id"], []).append(row["success"])
    return {task: sum(plays) / len(plays) for task, plays in by_task.items()}


def _job(config: Config, lake: Lake, recipe: Recipe, folder: Path, material: Material) -> Job:
    material.write(folder / "samples.parquet")
    found = pngs_of(lake, material.screenshots, recipe.pins["screenshots"])
    write_screenshots(folder / "screenshots.parquet", found)
    return Job(
        parent=checkpoint_folder(lake, recipe.parent),
        out=folder / "checkpoint",
        samples=folder / "samples.parquet",
        screenshots=folder / "screenshots.parquet",
        steps=material.steps,
        learning_rate=material.learning_rate,
        seed=seed_of(config, recipe),
        policy=config.policy,
        train=material.train,
    )


def _run(job: Job, folder: Path) -> dict[str, Any]:
    """Starts the trainer, shows its progress, returns its last numbers."""
    with bar() as progress, TrainerProcess(job, folder) as trainer:
        shown = progress.add_task("train", total=job.steps, said="")

        def hear(said: dict[str, Any]) -> None:
            if "step" in said:
                progress.update(shown, completed=said["step"], said=f"loss {said['loss']:.3f}")

        return trainer.listen(hear)
