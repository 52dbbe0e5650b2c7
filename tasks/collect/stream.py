"""Roll out and train at the same time in the stage `collect` (`train.stream.on`), with a trainer process.

Sandboxes do not wait for the trainer. The trainer reads finished groups as batches from the pool. Running trajectories
continue with newer weights when they exist. A trajectory is stored in the lake before it is trained on. If a process is
killed, a new start rolls out the missing trajectories and continues the training from the last weights.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from environments.registry import environments_of, size_of
from learning.algorithms.method import method_of
from learning.data.stream import StreamFolder, weights_name
from learning.engines.choice import optimizer_of
from learning.job import Job, TrainerReport, sweep
from models.policy import Policy
from models.vlm import VlmPolicy
from rollout.actor import Actor
from rollout.runner import POLL_S, roll_out_all
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config
from storage.lake import Lake
from tasks.collect.stream_pool import StreamPool
from tasks.launching.trainer_process import TrainerProcess
from tasks.running.console import bar
from tasks.shared.material import PolicyRecipe, seed_of
from tasks.shared.paths import work_folder
from tasks.shared.weights import checkpoint_folder
from tasks.train.recorded import Recorder, keep_profile
from tasks.train.supervised import Streamed

NOTHING = "nothing to learn from: all advantages are 0 in each group, so nothing was trained"
Write = Callable[[list[FinishedTrajectory]], None]


def roll_out_and_train(
    config: Config,
    lake: Lake,
    recipe: PolicyRecipe,
    planned: Sequence[PlannedTrajectory],
    policy: VlmPolicy,
    write: Write,
) -> Streamed:
    """Roll out the rest of an iteration while a trainer learns from finished trajectories.

    Args:
        config: the resolved config.
        lake: the lake for all results.
        recipe: version and parent of the candidate.
        planned: trajectories that are not in the lake yet.
        policy: the parent policy, which acts until newer weights exist.
        write: writes finished trajectories to the lake.

    Raises:
        FlywheelError: the trainer stopped with an error or died. The lake has all finished trajectories.
    """
    work = work_folder(lake, recipe.version)
    folder = StreamFolder(work / "stream")
    pool = StreamPool(config, lake, recipe, folder)
    job = _job(config, lake, recipe, folder, work)
    clock = time.perf_counter()
    with (
        Recorder(config, lake, recipe) as recorder,
        ThreadPoolExecutor(1, "trainer") as thread,
        TrainerProcess(job, work) as trainer,
    ):
        training = thread.submit(trainer.listen, lambda message: _hear(pool, recorder, message))
        pool.feed()
        with Actor(policy, config.temperature, newer_weights(policy, recipe, folder)) as actor:
            leased_s = _roll_out(config, planned, actor, pool, training, write)
        if not training.done():
            _end(pool, folder, training)
        if not folder.batches() and not training.done():
            return Streamed(**pool.numbers(), checkpoint="", say=NOTHING)
        trained = training.result()
    metrics: dict[str, Any] = {
        **trained.metrics,
        **pool.numbers(),
        "learning_rate": job.learning_rate,
        "trainer_idle": trained.waited_s / max(trained.seconds, 1e-9),
    }
    if planned:
        sandboxes = size_of(environments_of(config, (one.task for one in planned)))
        metrics["sandbox_idle"] = 1 - leased_s / (sandboxes * (time.perf_counter() - clock))
    checkpoint = lake.blobs.put_directory(job.out, f"checkpoints/{recipe.version}")
    metrics |= keep_profile(lake, job, recipe.version)
    return Streamed(**metrics, checkpoint=checkpoint, say=_sentence(config, metrics))


def _roll_out(
    config: Config,
    planned: Sequence[PlannedTrajectory],
    actor: Actor,
    pool: StreamPool,
    training: Future[TrainerReport],
    write: Write,
) -> float:
    """Roll out trajectories that the pool admits, until the trainer ends. Return the seconds of leased sandboxes."""

    def sink(records: list[FinishedTrajectory]) -> None:
        write(records)
        pool.finished([record.trajectory for record in records])

    def admit(one: PlannedTrajectory) -> bool | None:
        return False if training.done() else pool.may_begin(one)

    return roll_out_all(config, planned, lambda _: [actor], sink, bar, "collect", True, admit)


def _hear(pool: StreamPool, recorder: Recorder, message: TrainerReport) -> None:
    recorder.hear(message)
    if message.published is not None:
        pool.published(message.published)
        pool.feed()


def _end(pool: StreamPool, folder: StreamFolder, training: Future[TrainerReport]) -> None:
    """Pass on the remaining groups, in small batches if necessary, and mark the end of the stream."""
    pool.close()
    while pool.feed(least=1) and not training.done():
        time.sleep(POLL_S)
    if folder.batches() and not training.done():
        folder.end()


def newer_weights(policy: VlmPolicy, recipe: PolicyRecipe, folder: StreamFolder) -> Callable[[], Policy | None]:
    """Return a function that takes the newest published weights, or returns None if the policy has them already."""
    updates = 0

    def newer() -> Policy | None:
        nonlocal updates, policy
        found = folder.published()
        if found <= updates:
            return None
        updates = found
        policy = policy.renewed(folder.weights(updates), weights_name(recipe.version, recipe.parent, updates))
        return policy

    return newer


def _job(config: Config, lake: Lake, recipe: PolicyRecipe, folder: StreamFolder, work: Path) -> Job:
    parent = checkpoint_folder(lake, recipe.parent, to_train=True)
    schedule = method_of(config.train).schedule(config.train, 1, optimizer_of(parent))
    job = Job(
        parent=parent,
        out=work / "checkpoint",
        samples=folder.rollouts(1),
        screenshots=folder.screenshots(1),
        steps=1,
        learning_rate=schedule.learning_rate,
        seed=seed_of(config, recipe),
        stream=work / "stream",
        policy=config.policy,
        train=schedule.train.model_copy(update={"warmup": 0, "decay": 0.0}),
    )
    if folder.batches():
        sweep(job)
    else:
        shutil.rmtree(job.out, ignore_errors=True)
    return job


def _sentence(config: Config, metrics: Mapping[str, Any]) -> str:
    idle = f", sandboxes idle {metrics['sandbox_idle']:.0%}" if "sandbox_idle" in metrics else ""
    return (
        f"{metrics['samples']} steps of {metrics['informative']} of {metrics['groups']} groups in {metrics['updates']} "
        f"batches while collecting{idle}, trainer idle {metrics['trainer_idle']:.0%}; "
        f"age mean {metrics['age_mean']:.1f}, most {metrics['age_max']} updates, {metrics['stale']} steps left out as "
        f"older than {config.train.stream.stale}; mismatch {metrics['mismatch']:.3f} nats, loss {metrics['loss']:.3f}"
    )
