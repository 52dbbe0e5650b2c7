"""Stages `train` and `ct`: train a candidate in a separate process, from pinned table versions."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from common.text import counted
from learning.algorithms.method import DataSource, method_of
from learning.data.sample import read_screenshots
from learning.engines.choice import optimizer_of
from learning.job import Job, TrainerReport, sweep
from models.serving.served import make_room
from schemas.config import Config
from schemas.failure import FlywheelError
from schemas.tables.forgotten import Forgotten
from schemas.tables.stage import PlainResult, StageResult
from storage.lake import Lake
from tasks.launching.trainer_process import TrainerProcess
from tasks.running.console import bar
from tasks.running.run import Run
from tasks.running.stage import result_of, stage
from tasks.shared.general import store_general
from tasks.shared.material import PolicyRecipe, TrainingMaterial, seed_of, write_pictures
from tasks.shared.paths import work_folder
from tasks.shared.policies import begins, champion, made_in, measured_ancestor, policy_row, register, version_of
from tasks.shared.reviews import settle
from tasks.shared.training_ledger import read_by, watches
from tasks.shared.weights import checkpoint_folder
from tasks.train.groups import group_material, ppo_material
from tasks.train.preferences import preference_material
from tasks.train.recorded import Recorder, keep_profile
from tasks.train.scores import reply_material
from tasks.train.supervised import Streamed, TrainResult, continual_material, supervised

PINNED = ("trajectories", "steps", "screenshots", "verdicts", "annotations", "evaluations", "pairs", "tasks", "reviews")
"""Tables that a training reads. Their versions are stored with the policy."""


@stage("train", retry=True)
def train_policy(run: Run, iteration: int) -> TrainResult:
    """Train a candidate by the configured method, and add its row to `policies`.

    The training starts from the champion's weights, or from the weights of the iteration's continual training.
    """
    config, lake = run.config, run.lake
    store_general(config, lake, iteration)
    parent = (made_in(lake, iteration, "intermediate") or champion(lake)).policy_version
    recipe = PolicyRecipe(version_of(iteration), parent, iteration, pins_of(lake))
    streamed = (result_of(lake, iteration, "collect") or {}).get("stream") if config.train.stream.on else None
    if streamed is None:
        return train_from(config, lake, recipe)
    return _register_streamed(config, lake, recipe, Streamed.model_validate(streamed))


@stage("ct", retry=True)
def continue_training(run: Run, iteration: int) -> StageResult:
    """Every `train.ct_every` iterations, run continual training on the failed trajectories of all iterations.

    Continual training starts from the champion's weights, and the supervised training starts from its result.
    """
    config, lake = run.config, run.lake
    every = config.train.ct_every
    if not every or not iteration or iteration % every:
        return PlainResult(text="not in this iteration")
    train = config.train.model_copy(update={"method": "ct", "ct_every": 0})
    store_general(config, lake, iteration)
    parent = champion(lake).policy_version
    recipe = PolicyRecipe(f"{version_of(iteration)}-ct", parent, iteration, pins_of(lake), "intermediate")
    return train_from(config.model_copy(update={"train": train}), lake, recipe)


def pins_of(lake: Lake) -> dict[str, int]:
    """Write missing effects of reviewers' decisions, then return the versions of the tables that a training reads."""
    settle(lake)
    return {table: version for table, version in lake.versions().items() if table in PINNED}


def train_from(config: Config, lake: Lake, recipe: PolicyRecipe) -> TrainResult:
    """Train a policy, store its checkpoint, and register it. Without data, return a result without a policy.

    An interrupted training of the same recipe continues from its last checkpoint.

    Raises:
        FlywheelError: the trainer stopped with an error, or its data was forgotten meanwhile. Nothing was stored.
    """
    read = read_for(config, lake, recipe)
    require_kept(lake, read)
    source = method_of(config.train).source
    material = (MATERIAL[source] if isinstance(source, DataSource) else source)(config, lake, recipe)
    if material.nothing:
        text = f"{material.nothing}, so nothing was trained"
        return TrainResult(text=text, numbers={**material.numbers, "samples": 0})
    folder = work_folder(lake, recipe.version)
    job = job_of(config, lake, recipe, folder, material)
    learned = digests_of(job)
    if recipe.like is not None:
        require_same(lake, recipe, learned)
    sweep(job)
    with Recorder(config, lake, recipe) as recorder:
        trained = _run(job, folder, recorder)
    metrics = {**trained.metrics, **material.numbers, "learning_rate": job.learning_rate}
    try:
        require_kept(lake, read)
    except FlywheelError:
        shutil.rmtree(folder)
        raise
    checkpoint = lake.blobs.put_directory(job.out, f"checkpoints/{recipe.version}")
    metrics |= keep_profile(lake, job, recipe.version)
    training_set, seed = json.dumps(learned, sort_keys=True), seed_of(config, recipe)
    register(lake, config, recipe, config.train.method, checkpoint, metrics, seed, training_set)
    shutil.rmtree(folder)
    pace = f"learning rate {job.learning_rate:g}, loss {trained.loss:.3f}, {trained.samples_per_s:.0f} samples/s"
    return TrainResult(text=f"{material.summary}, {pace}", numbers=metrics, policy=recipe.version)


def read_for(config: Config, lake: Lake, recipe: PolicyRecipe) -> set[str]:
    """Return the ids of the trajectories whose data a training reads."""
    train = config.train
    perceives, seen = bool(train.ct.perception or train.ct.video), watches(train.method, train.model_dump())
    return read_by(lake, train.method, recipe.iteration, recipe.pins, perceives, seen)


def require_kept(lake: Lake, read: set[str]) -> None:
    """Refuse to continue a training whose data was forgotten or is being forgotten.

    Raises:
        FlywheelError: there is such data. The message has the id of a trajectory.
    """
    gone = sorted(read.intersection(lake.read("forgotten", ["trajectory_id"])["trajectory_id"].to_pylist()))
    if gone:
        raise FlywheelError(
            f"{counted(len(gone), 'trajectory', 'trajectories')} that this training reads were forgotten meanwhile, "
            f"{gone[0]} for one; no policy is made.",
            f"Let `flywheel forget {gone[0]}` end, then train again.",
        )


def digests_of(job: Job) -> dict[str, str]:
    """Return a digest of the samples in the trainer's form, and a digest of their pictures that ignores the order.

    Equal digests mean that two training sets are equal, byte by byte. The digest of the pictures is computed from their
    sha256, which `write_pictures` has checked.
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


def _register_streamed(config: Config, lake: Lake, recipe: PolicyRecipe, streamed: Streamed) -> TrainResult:
    """Register the policy that was trained during collection as the candidate."""
    if not streamed.checkpoint:
        return TrainResult(text=streamed.say, numbers=streamed.metrics)
    seed = seed_of(config, recipe)
    register(lake, config, recipe, config.train.method, streamed.checkpoint, streamed.metrics, seed)
    shutil.rmtree(work_folder(lake, recipe.version))
    return TrainResult(text=streamed.say, numbers=streamed.metrics, policy=recipe.version)


MATERIAL: dict[DataSource, Callable[[Config, Lake, PolicyRecipe], TrainingMaterial]] = {
    DataSource.ACCEPTED: supervised,
    DataSource.FAILURES: continual_material,
    DataSource.GROUPS: group_material,
    DataSource.TRAJECTORIES: ppo_material,
    DataSource.PAIRS: preference_material,
    DataSource.REPLIES: reply_material,
}
"""Functions that read the training data of a method from the lake, by data source."""


def job_of(config: Config, lake: Lake, recipe: PolicyRecipe, folder: Path, material: TrainingMaterial) -> Job:
    """Prepare the training of a recipe, and write its samples and pictures to a folder."""
    parent = checkpoint_folder(lake, recipe.parent, to_train=True)
    ancestor = measured_ancestor(lake, recipe.parent)
    draws = material.draws or material.samples
    schedule = method_of(config.train).schedule(
        config.train, draws, optimizer_of(parent), begins(ancestor), ancestor.method == "random"
    )
    samples, screenshots = folder / "samples.arrow", folder / "screenshots.arrow"
    write_pictures(screenshots, lake, material.write(samples, schedule), recipe.pins["screenshots"])
    return Job(
        parent=parent,
        out=folder / "checkpoint",
        samples=samples,
        screenshots=screenshots,
        steps=schedule.steps,
        learning_rate=schedule.learning_rate,
        seed=seed_of(config, recipe),
        policy=config.policy,
        train=schedule.train,
    )


def _run(job: Job, folder: Path, recorder: Recorder) -> TrainerReport:
    """Run the trainer with a progress bar, and return the sum of its messages. Free the policy server's memory
    first."""
    make_room(job.policy.server)
    with bar() as progress, TrainerProcess(job, folder) as trainer:
        shown = progress.add_task("train", total=job.steps, message="")

        def hear(message: TrainerReport) -> None:
            recorder.hear(message)
            if message.step is not None:
                progress.update(shown, completed=message.step, message=f"loss {message.loss:.3f}")

        return trainer.listen(hear)
