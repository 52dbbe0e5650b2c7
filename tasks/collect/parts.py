"""Collect in parts on several machines. Each part is a Prefect task that finds its finished work."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack

from models.policy import EXPLORERS
from rollout.actor import Actor
from rollout.runner import missing, roll_out_all
from rollout.trajectory import PlannedTrajectory
from schemas.config import Config
from storage.lake import Lake
from tasks.collect.plan import finished, plan
from tasks.collect.records import drop_unfinished, write
from tasks.running.cluster import part_task, share_out
from tasks.running.console import bar
from tasks.running.run import Run
from tasks.running.run_status import published
from tasks.shared.weights import load_policy


def collect_in_parts(run: Run, iteration: int, version: str, further: Mapping[str, int]) -> int:
    """Roll out the missing trajectories of an iteration on the machines of `cluster`, and return their number.

    `further` is the number of additional groups by task.
    """
    given = {"config": run.config, "run_id": run.run_id, "iteration": iteration, "version": version}
    given |= {"further": dict(further)}
    parts = [{**given, "part": part} for part in range(run.config.cluster.parts)]
    return sum(share_out(run.config, collect_part, parts, "collect, parts"))


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


def attempts(planned: Iterable[PlannedTrajectory]) -> set[str]:
    """Return the ids of trajectories and of all of their possible retries."""
    ids: set[str] = set()
    for one in planned:
        now: PlannedTrajectory | None = one
        while now is not None:
            ids.add(now.trajectory_id)
            now = now.retry("sandbox")
    return ids
