"""Stage: rolls out the curriculum's choices and writes trajectories as they finish."""

import random
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from curation.curriculum import seeds
from curation.gates.registry import gates_of, verdicts_of
from curation.pictures import difference_hash
from models.policy import EXPLORERS
from rollout.actor import Actor
from rollout.runner import missing, roll_out_all
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.observation import Observation
from schemas.table import utc_now
from schemas.tables.curriculum import CurriculumChoice
from schemas.tables.screenshot import Screenshot
from schemas.tables.task import GuiTask
from schemas.tables.verdict import Verdict
from storage.lake import Lake
from tasks.collect.stream import roll_out_and_train
from tasks.shared.agreements import Standing
from tasks.shared.console import bar
from tasks.shared.known import Known
from tasks.shared.material import Recipe
from tasks.shared.policies import champion, version_of
from tasks.shared.run import Run
from tasks.shared.stage import stage
from tasks.shared.suite import tasks_of
from tasks.shared.weights import load_policy
from tasks.train.groups import planned_groups


@stage("collect", retries=1)
def collect_trajectories(run: Run, iteration: int) -> dict[str, Any]:
    """Rolls out what the curriculum chose and is not in the lake yet."""
    config, lake = run.config, run.lake
    drop_unfinished(lake, iteration)
    version = champion(lake).policy_version
    left = missing(plan(run, iteration, version), finished(lake, iteration))
    if config.train.stream.on:
        recipe = Recipe(version_of(iteration), version, iteration, lake.versions())
        grouped = [one for one in left if one.group_id is not None]
        policy = load_policy(config, lake, version)
        trained = roll_out_and_train(config, lake, recipe, grouped, policy, gated(run, iteration))
        numbers = _numbers(lake, iteration)
        return {**numbers, "stream": trained, "say": f"{numbers['say']}; {trained['updates']} updates meanwhile"}
    with ExitStack() as stack:
        explorer = stack.enter_context(Actor(EXPLORERS.class_of(config.collect.explorer)(), 1.0))
        actors = {"explorer": [explorer]}
        if any(one.policy != "explorer" for one in left):
            policy = stack.enter_context(Actor(load_policy(config, lake, version), config.temperature))
            actors |= {"policy": [policy], "relay": [policy, explorer]}
        sink = lambda chunk: write(lake, chunk)  # noqa: E731
        roll_out_all(config, left, lambda one: actors[one.policy], sink, bar, "collect", for_data=True)
    return _numbers(lake, iteration)


def plan(run: Run, iteration: int, version: str) -> list[PlannedTrajectory]:
    """All trajectories of an iteration, in a shuffled order that mixes tasks; the same for the same config and
    iteration."""
    config = run.config
    tasks = {task.task_id: task for task in tasks_of(config, run.lake)}
    explorer = EXPLORERS.class_of(config.collect.explorer).version
    planned: list[PlannedTrajectory] = []
    for choice in run.lake.rows(CurriculumChoice, {"iteration": iteration}):
        task = tasks[choice.task_id]
        for kind, count in choice.trajectories.items():
            if kind == "policy" and config.train.in_groups:
                planned += planned_groups(run, iteration, task, count, version)
                continue
            planned += [
                _planned(run, iteration, task, seed, kind, explorer if kind == "explorer" else version)
                for seed in seeds(config.seed, iteration, task.task_id, kind, count)
            ]
    random.Random(iteration).shuffle(planned)
    if config.train.stream.on:  # a group's trajectories follow each other, so that it is finished soon
        begins = {one.group_id: at for at, one in enumerate(planned)}
        planned.sort(key=lambda one: (begins[one.group_id], one.attempt))
    return planned


def finished(lake: Lake, iteration: int) -> dict[str, str | None]:
    """The failure boundary, or None, of every trajectory of an iteration that is in the lake."""
    rows = lake.read("trajectories", ["trajectory_id", "failure_boundary"], {"iteration": iteration}).to_pylist()
    return {row["trajectory_id"]: row["failure_boundary"] for row in rows}


def gated(run: Run, iteration: int) -> Callable[[list[FinishedTrajectory]], None]:
    """Writes finished trajectories with the gates' verdicts on them, for a trainer that does not wait for the filter:
    what goes to quarantine is in no batch. The gates know what was known as this began, and what was accepted since."""
    gates, known = gates_of(run.config.filter), Known(run.lake, iteration)
    standing = Standing(run.lake, run.config.judge)

    def sink(records: list[FinishedTrajectory]) -> None:
        verdicts: list[Verdict] = []
        for record in records:
            known.see((digest, difference_hash(seen.png)) for digest, seen in record.screenshots.items())
            probation = standing.probation(record.verdict.gate_version) if record.verdict else ""
            context = known.context(record.trajectory, record.verdict, probation)
            found = verdicts_of(gates, record.trajectory, record.steps, context, utc_now())
            known.note(record.trajectory, record.steps, found[-1])
            verdicts += found
        write(run.lake, records, verdicts)

    return sink


def write(lake: Lake, records: Iterable[FinishedTrajectory], verdicts: Iterable[Verdict] = ()) -> None:
    """Writes finished trajectories: pictures first, then steps and verdicts, then the trajectories that vouch for
    them."""
    records = list(records)
    iteration = records[0].trajectory.iteration
    pictures = {digest: picture for record in records for digest, picture in record.screenshots.items()}
    lake.append("screenshots", [_screenshot(iteration, digest, picture) for digest, picture in pictures.items()])
    lake.append("steps", [step for record in records for step in record.steps])
    lake.append("verdicts", [*(record.verdict for record in records if record.verdict), *verdicts])
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


def _planned(run: Run, iteration: int, task: GuiTask, seed: int, kind: str, version: str) -> PlannedTrajectory:
    relay_step = 1 + random.Random(seed).randrange(max(1, min(4, task.max_steps - 1))) if kind == "relay" else None
    return PlannedTrajectory(
        lake_id=run.lake.lake_id,
        run_id=run.run_id,
        iteration=iteration,
        task=task,
        seed=seed,
        policy=kind,
        policy_version=version,
        temperature=1.0 if kind == "explorer" else run.config.temperature,
        relay_step=relay_step,
    )


def _screenshot(iteration: int, digest: str, seen: Observation) -> Screenshot:
    phash = difference_hash(seen.png)
    return Screenshot(
        sha256=digest, iteration=iteration, png=seen.png, width=seen.width, height=seen.height, phash=phash
    )


def _numbers(lake: Lake, iteration: int) -> dict[str, Any]:
    rows = lake.read("trajectories", ["policy", "success", "n_steps"], {"iteration": iteration}).to_pylist()
    numbers: dict[str, Any] = {"trajectories": len(rows), "steps": sum(row["n_steps"] for row in rows)}
    for kind in sorted({row["policy"] for row in rows}):
        made = [row["success"] for row in rows if row["policy"] == kind and row["success"] is not None]
        numbers[kind] = {"trajectories": len(made), "successes": sum(made)}
    by_actor = [
        f"{kind} {numbers[kind]['successes']} of {numbers[kind]['trajectories']}"
        for kind in numbers
        if isinstance(numbers[kind], dict)
    ]
    return {**numbers, "say": f"{len(rows)} trajectories; successes: " + ", ".join(by_actor)}
