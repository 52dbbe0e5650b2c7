"""Stage: plays the curriculum's choices and writes trajectories as they finish."""

import json
import random
from collections.abc import Iterable
from typing import Any

from curation.curriculum import seeds
from curation.pictures import average_hash
from environments.catalog import catalog
from models.explorer import Explorer
from rollout.actors import BatchedActor
from rollout.player import left_of, play_all
from rollout.session import Actor, Play, Record
from schemas.config import Config
from schemas.screenshot import Screenshot
from schemas.task import GuiTask
from schemas.trajectory import trajectory_id
from storage.lake import Lake
from tasks.collect.stream import play_and_train
from tasks.shared.console import bar
from tasks.shared.material import Recipe
from tasks.shared.policies import champion, load_policy, version_of
from tasks.shared.run import Run
from tasks.shared.stage import stage
from tasks.train.groups import group_plays


@stage("collect", retries=1)
def collect_trajectories(run: Run, iteration: int) -> dict[str, Any]:
    """Plays what the curriculum chose and is not in the lake yet."""
    config, lake = run.config, run.lake
    drop_unfinished(lake, iteration)
    version = champion(lake)["policy_version"]
    plays = planned(config, lake, iteration, version)
    left = left_of(plays, finished(lake, iteration))
    if config.train.stream.on:
        recipe = Recipe(version_of(iteration), version, iteration, lake.versions())
        grouped = [one for one in left if one.group_id is not None]
        policy = load_policy(config, lake, version)
        trained = play_and_train(config, lake, recipe, grouped, policy, lambda chunk: write(lake, chunk))
        numbers = _numbers(lake, iteration)
        return {**numbers, "stream": trained, "say": f"{numbers['say']}; {trained['updates']} updates meanwhile"}
    explorer = BatchedActor("explorer", Explorer(), 1.0)
    cast: dict[str, list[Actor]] = {"explorer": [explorer]}
    actors = [explorer]
    if any(one.policy != "explorer" for one in left):
        policy = BatchedActor("policy", load_policy(config, lake, version), config.temperature)
        cast |= {"policy": [policy], "relay": [policy, explorer]}
        actors.append(policy)
    try:
        play_all(
            config, left, lambda one: cast[one.policy], lambda chunk: write(lake, chunk), bar, "collect", for_data=True
        )
    finally:
        for actor in actors:
            actor.close()
    return _numbers(lake, iteration)


def planned(config: Config, lake: Lake, iteration: int, version: str) -> list[Play]:
    """All plays of an iteration, in a shuffled order that mixes tasks; the same for the same config and iteration."""
    tasks = {task.task_id: task for task in catalog(config)}
    plays: list[Play] = []
    for choice in lake.read("curriculum", where={"iteration": iteration}).to_pylist():
        task = tasks[choice["task_id"]]
        for kind in ("explorer", "policy", "relay"):
            played_by = version if kind != "explorer" else Explorer.version
            count = choice[f"{kind}_trajectories"]
            if kind == "policy" and config.train.in_groups:
                plays += group_plays(config, lake, iteration, task, count, version)
                continue
            plays += [
                _play(config, lake, iteration, task, seed, kind, played_by)
                for seed in seeds(config.seed, iteration, task.task_id, kind, count)
            ]
    random.Random(iteration).shuffle(plays)
    if config.train.stream.on:  # a group's plays follow each other, so that it is finished soon
        begins = {one.group_id: at for at, one in enumerate(plays)}
        plays.sort(key=lambda one: (begins[one.group_id], one.attempt))
    return plays


def finished(lake: Lake, iteration: int) -> dict[str, str | None]:
    """The failure boundary, or None, of every trajectory of an iteration that is in the lake."""
    rows = lake.read("trajectories", ["trajectory_id", "failure_boundary"], {"iteration": iteration}).to_pylist()
    return {row["trajectory_id"]: row["failure_boundary"] for row in rows}


def write(lake: Lake, records: Iterable[Record]) -> None:
    """Writes finished plays: pictures first, then steps, then the trajectories that vouch for them."""
    records = list(records)
    iteration = records[0].trajectory.iteration
    pictures = {digest: picture for record in records for digest, picture in record.screenshots.items()}
    lake.append("screenshots", [_screenshot(iteration, digest, *picture) for digest, picture in pictures.items()])
    lake.append("steps", [step for record in records for step in record.steps])
    lake.append("verdicts", [record.verdict for record in records if record.verdict])
    lake.append("trajectories", [record.trajectory for record in records])


def drop_unfinished(lake: Lake, iteration: int) -> int:
    """Deletes steps and verdicts whose trajectory was never written: a kill fell before it. Returns how many."""
    steps = lake.read("steps", ["trajectory_id"], {"iteration": iteration})["trajectory_id"].to_pylist()
    done = set(lake.read("trajectories", ["trajectory_id"], {"iteration": iteration})["trajectory_id"].to_pylist())
    orphans = sorted(set(steps) - done)
    if orphans:
        names = ", ".join(f"'{name}'" for name in orphans)
        for table in ("steps", "verdicts"):
            lake.delete(table, f"iteration = {iteration} AND trajectory_id IN ({names})")
    return len(orphans)


def _play(config: Config, lake: Lake, iteration: int, task: GuiTask, seed: int, kind: str, version: str) -> Play:
    relay_step = 1 + random.Random(seed).randrange(max(1, min(4, task.max_steps - 1))) if kind == "relay" else None
    sampling = {"temperature": config.collect.temperature if kind != "explorer" else 1.0, "relay_step": relay_step}
    return Play(
        trajectory_id=trajectory_id(lake.lake_id, iteration, task.task_id, seed, kind, version, 0),
        iteration=iteration,
        run_id=lake.lake_id,
        task=task,
        seed=seed,
        attempt=0,
        policy=kind,
        policy_version=version,
        relay_step=relay_step,
        sampling=json.dumps(sampling, sort_keys=True),
    )


def _screenshot(iteration: int, digest: str, png: bytes, width: int, height: int) -> Screenshot:
    return Screenshot(sha256=digest, iteration=iteration, png=png, width=width, height=height, phash=average_hash(png))


def _numbers(lake: Lake, iteration: int) -> dict[str, Any]:
    rows = lake.read("trajectories", ["policy", "success", "n_steps"], {"iteration": iteration}).to_pylist()
    numbers: dict[str, Any] = {"trajectories": len(rows), "steps": sum(row["n_steps"] for row in rows)}
    for kind in sorted({row["policy"] for row in rows}):
        played = [row["success"] for row in rows if row["policy"] == kind and row["success"] is not None]
        numbers[kind] = {"trajectories": len(played), "successes": sum(played)}
    said = [
        f"{kind} {numbers[kind]['successes']} of {numbers[kind]['trajectories']}"
        for kind in numbers
        if isinstance(numbers[kind], dict)
    ]
    return {**numbers, "say": f"{len(rows)} trajectories; successes: " + ", ".join(said)}
