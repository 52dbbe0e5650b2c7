"""Stage `collect`: roll out the curriculum's choices, and write trajectories as they finish.

The stage plans only trajectories that are not in the lake yet, and removes incomplete ones of killed processes.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from types import MappingProxyType

from curation.curriculum import apportion, seeds
from curation.gates.registry import gates_of, verdicts_of
from curation.pictures import difference_hash
from environments.registry import left_out
from learning.algorithms.method import DataSource, method_of
from models.policy import EXPLORERS
from rollout.actor import Actor
from rollout.runner import attempts, missing, roll_out_all
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config
from schemas.failure import UsageError
from schemas.observation import Observation
from schemas.table import utc_now
from schemas.tables.curriculum import CurriculumChoice
from schemas.tables.screenshot import Screenshot
from schemas.tables.stage import PlainResult
from schemas.tables.task import GuiTask
from schemas.tables.verdict import Verdict
from storage.catalog import answers
from storage.filters import quoted
from storage.lake import Lake
from tasks.collect.stream import roll_out_and_train
from tasks.collect.stream_pool import can_teach
from tasks.running.cluster import part_task, share_out, shares_out
from tasks.running.console import bar
from tasks.running.run import Run
from tasks.running.run_status import published
from tasks.running.stage import stage
from tasks.shared.gate_facts import Known
from tasks.shared.material import PolicyRecipe
from tasks.shared.policies import champion, version_of
from tasks.shared.reviews import Standing
from tasks.shared.status import failing
from tasks.shared.suite import tasks_of
from tasks.shared.weights import load_policy
from tasks.train.groups import planned_groups


def plan(
    run: Run, iteration: int, version: str, further: Mapping[str, int] = MappingProxyType({})
) -> list[PlannedTrajectory]:
    """Return all trajectories of an iteration, in a shuffled order. The result depends only on the arguments.

    Args:
        run: the run.
        iteration: the iteration.
        version: version of the policy.
        further: number of groups beyond the curriculum's choices, by task.
    """
    config = run.config
    tasks = {task.task_id: task for task in tasks_of(config, run.lake)}
    explorer = EXPLORERS.class_of(config.collect.explorer).version
    planned: list[PlannedTrajectory] = []
    for choice in choices_of(run, iteration):
        if (task := tasks.get(choice.task_id)) is None:
            problem = f"Iteration {iteration} is to play {choice.task_id}, which is not in the suite any more."
            raise UsageError(problem, "Put it back into `suite.tasks` until the iteration is finished.")
        for kind, count in choice.trajectories.items():
            if kind == "policy" and config.train.in_groups:
                whole = count + further.get(choice.task_id, 0) * config.train.group.size
                planned += planned_groups(run, iteration, task, whole, version)
                continue
            planned += [
                _planned(run, iteration, task, seed, kind, explorer if kind == "explorer" else version)
                for seed in seeds(config.seed, iteration, task.task_id, kind, count)
            ]
    random.Random(iteration).shuffle(planned)
    if config.train.stream.on:  # the trajectories of a group are adjacent, so that the group finishes soon
        begins = {one.group_id: at for at, one in enumerate(planned)}
        planned.sort(key=lambda one: (begins[one.group_id], one.attempt))
    return planned


def choices_of(run: Run, iteration: int) -> list[CurriculumChoice]:
    """Return the curriculum's choices, without tasks of environments that are now left out."""
    chosen, out = run.lake.rows(CurriculumChoice, {"iteration": iteration}), left_out(run.config)
    return [one for one in chosen if one.task_id.partition("/")[0] not in out]


def finished(lake: Lake, iteration: int) -> dict[str, str | None]:
    """Return the failure boundary (or None) of every stored trajectory of an iteration, by id."""
    rows = lake.read("trajectories", ["trajectory_id", "failure_boundary"], {"iteration": iteration}).to_pylist()
    return {row["trajectory_id"]: row["failure_boundary"] for row in rows}


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


def write(lake: Lake, records: Iterable[FinishedTrajectory], verdicts: Iterable[Verdict] = ()) -> None:
    """Write finished trajectories: first the pictures, then steps and verdicts, last the rows of the trajectories."""
    records = list(records)
    iteration = records[0].trajectory.iteration
    pictures = {digest: picture for record in records for digest, picture in record.screenshots.items()}
    lake.append("screenshots", [_screenshot(iteration, digest, picture) for digest, picture in pictures.items()])
    lake.append("steps", [step for record in records for step in record.steps])
    lake.append("verdicts", [*(record.verdict for record in records if record.verdict), *verdicts])
    lake.append("trajectories", [record.trajectory for record in records])


def drop_unfinished(lake: Lake, iteration: int, among: Collection[str] | None = None) -> int:
    """Delete steps and verdicts that have no trajectory, and return the number of incomplete trajectories.

    Args:
        lake: the lake.
        iteration: iteration of the rows.
        among: ids of trajectories to check, if other processes write other trajectories meanwhile; all if not given.
    """
    steps = lake.read("steps", ["trajectory_id"], {"iteration": iteration})["trajectory_id"].to_pylist()
    done = set(lake.read("trajectories", ["trajectory_id"], {"iteration": iteration})["trajectory_id"].to_pylist())
    orphans = sorted((set(steps) - done) if among is None else (set(steps) & set(among)) - done)
    if orphans:
        for table in ("steps", "verdicts"):
            lake.delete(table, f"iteration = {iteration} AND trajectory_id IN ({quoted(orphans)})")
    return len(orphans)


def _screenshot(iteration: int, digest: str, seen: Observation) -> Screenshot:
    phash = difference_hash(seen.png)
    return Screenshot(
        sha256=digest, iteration=iteration, png=seen.png, width=seen.width, height=seen.height, phash=phash
    )


@stage("collect", retry=True)
def collect_trajectories(run: Run, iteration: int) -> PlainResult:
    """Roll out the curriculum's choices that are not in the lake yet."""
    config, lake = run.config, run.lake
    drop_unfinished(lake, iteration)
    version = champion(lake).policy_version
    left = missing(plan(run, iteration, version), finished(lake, iteration))
    if config.train.stream.on:
        recipe = PolicyRecipe(version_of(iteration), version, iteration, lake.versions())
        grouped = [one for one in left if one.group_id is not None]
        policy = load_policy(config, lake, version)
        trained = roll_out_and_train(config, lake, recipe, grouped, policy, gated(run, iteration))
        result = _result(lake, iteration)
        numbers = {**result.numbers, "stream": trained.model_dump()}
        return PlainResult(text=f"{result}; {trained.updates} updates meanwhile", numbers=numbers)
    _collect_missing(run, iteration, version, left, {})
    for more in refills(run, iteration, version):
        left = missing(plan(run, iteration, version, more), finished(lake, iteration))
        _collect_missing(run, iteration, version, left, more)
    return _result(lake, iteration)


def _collect_missing(
    run: Run, iteration: int, version: str, left: Sequence[PlannedTrajectory], further: Mapping[str, int]
) -> None:
    """Roll out the missing trajectories of an iteration, also on the machines of `cluster`.

    A part of `cluster` is a Prefect task that finds its finished work. `further` is the number of additional groups by
    task.
    """
    if not shares_out(run.config):
        roll_out(run.config, run.lake, left, version)
    elif left:
        given = {"config": run.config, "run_id": run.run_id, "iteration": iteration, "version": version}
        parts = [{**given, "further": dict(further), "part": part} for part in range(run.config.cluster.parts)]
        share_out(run.config, collect_part, parts, "collect, parts")


@part_task("collect-part")
def collect_part(
    config: Config, run_id: str, iteration: int, version: str, further: Mapping[str, int], part: int
) -> int:
    """Roll out the missing trajectories of one part, and return their number.

    Part k of n has the k-th, the (n+k)-th, ... trajectory of the plan. The plan mixes tasks, so parts take about
    equally long.
    """
    lake = Lake.open(config.lake, create=False)
    own = plan(Run(config, lake, run_id), iteration, version, further)[part :: config.cluster.parts]
    drop_unfinished(lake, iteration, attempts(own))
    left = missing(own, finished(lake, iteration))
    with published(lake, run_id, "collect", part):
        roll_out(config, lake, left, version)
    return len(left)


def roll_out(config: Config, lake: Lake, planned: Sequence[PlannedTrajectory], version: str) -> None:
    """Roll out trajectories in this process, and write them as they finish. `version` is the policy version."""
    with ExitStack() as stack:
        explorer = stack.enter_context(Actor(EXPLORERS.class_of(config.collect.explorer)(), 1.0))
        actors = {"explorer": [explorer]}
        if any(one.policy != "explorer" for one in planned):
            policy = stack.enter_context(Actor(load_policy(config, lake, version), config.temperature))
            actors |= {"policy": [policy], "relay": [policy, explorer]}
        sink = lambda chunk: write(lake, chunk)  # noqa: E731
        roll_out_all(config, planned, lambda one: actors[one.policy], sink, bar, "collect", for_data=True)


@dataclass(frozen=True, slots=True)
class GroupWorth:
    """Reward of one trajectory of a group, with the columns of `storage/queries/group_worth.sql`."""

    group_id: str
    attempt: int
    success: bool | None
    worth: float | None


def refills(run: Run, iteration: int, version: str) -> Iterator[Mapping[str, int]]:
    """Yield the number of further groups of each round, by task. The caller collects them before the next round.

    Further groups replace groups that cannot teach (dynamic sampling, DAPO, arXiv 2503.14476). They depend only on the
    lake's content, so an interrupted collection continues with the same groups.

    The rounds end when `train.group.groups` groups can teach, or after `train.group.refill` rounds. Methods that do not
    compare groups have no rounds.
    """
    group = run.config.train.group
    if method_of(run.config.train).source is not DataSource.GROUPS:
        return
    choices = choices_of(run, iteration)
    chosen = {one.task_id: one.policy_trajectories // group.size for one in choices if one.policy_trajectories}
    further: dict[str, int] = {}
    for _ in range(group.refill):
        lacking = group.groups - len(_teaching(run, iteration, version, further))
        if lacking <= 0:
            return
        further = {task: further.get(task, 0) + count for task, count in apportion(chosen, lacking).items()}
        yield further


def _teaching(run: Run, iteration: int, version: str, further: Mapping[str, int]) -> list[str]:
    """Return the planned groups that can teach."""
    group = run.config.train.group
    planned = {one.group_id for one in plan(run, iteration, version, further)}
    rows = answers(run.lake, GroupWorth, "group_worth", iteration=iteration, scored=group.advantage == "pass1")
    found: dict[str, dict[int, float | None]] = defaultdict(dict)
    solved = {row.group_id for row in rows if row.success}
    for row in rows:
        slot = row.attempt % group.size
        if row.group_id in planned and found[row.group_id].get(slot) is None:
            found[row.group_id][slot] = row.worth
    return [name for name, worth in found.items() if can_teach(list(worth.values()), group, name in solved)]


def gated(run: Run, iteration: int) -> Callable[[list[FinishedTrajectory]], None]:
    """Return a sink that writes finished trajectories and runs the gates on them at once, for streamed training.

    Batches contain no quarantined trajectories. The gates use facts from the start of the collection, and the
    trajectories that were accepted since then.
    """
    gates, known = gates_of(run.config.filter), Known(run.lake, iteration)
    standing = Standing(run.lake, run.config.judge)

    def sink(records: list[FinishedTrajectory]) -> None:
        verdicts: list[Verdict] = []
        for record in records:
            known.see((digest, difference_hash(seen.png)) for digest, seen in record.screenshots.items())
            probation = standing.probation(record.verdict.gate_version) if record.verdict else ""
            context = known.context(record.trajectory, record.verdict, probation)
            found = verdicts_of(gates, record.trajectory, record.steps, context, utc_now())
            known.note(record.trajectory, record.steps, found[-1].route)
            verdicts += found
        write(run.lake, records, verdicts)

    return sink


def _result(lake: Lake, iteration: int) -> PlainResult:
    rows = lake.read("trajectories", ["policy", "success", "n_steps"], {"iteration": iteration}).to_pylist()
    made = {
        kind: [row["success"] for row in rows if row["policy"] == kind and row["success"] is not None]
        for kind in sorted({row["policy"] for row in rows})
    }
    by_kind = {kind: {"trajectories": len(ended), "successes": sum(ended)} for kind, ended in made.items()}
    headline = ", ".join(f"{kind} {sum(ended)} of {len(ended)}" for kind, ended in made.items())
    steps = sum(row["n_steps"] for row in rows)
    lost = sum(row["success"] is None for row in rows)
    blameless = f"; {lost} failed for reasons other than the policy" if lost else ""
    failed = [asdict(one) for one in failing(lake, iteration)]
    text = f"{len(rows)} trajectories; successes: {headline}{blameless}"
    numbers = {"trajectories": len(rows), "steps": steps, **by_kind, "failing": failed}
    return PlainResult(text=text, numbers=numbers)
