"""Roll out many trajectories at the same time over the pool, hand them on in chunks and retry failed sandboxes.

Stop a rollout when nothing works any more in one of its environments.

Failures blamed on the environment, the server or the judge are kept and retried; they do not count against the policy.
Where nothing works, the rollout would use up all attempts. A few bad tasks do not stop the others: one success shows
that the environment is up. The end of the rollout reports how each task fails (`rollout.failures`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.progress import Progress

from environments.pool import SandboxPool
from environments.registry import environments_of
from models.judges.judge import Judge
from models.judges.registry import required_judge
from rollout.actor import Actor
from rollout.failures import Ended, failed_tasks, short
from rollout.interrupt import run_until_interrupted
from rollout.judging import with_judgement
from rollout.session import roll_out
from rollout.threads import DaemonThreads
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config
from schemas.failure import EnvironmentDown, is_environment_failure
from schemas.tables.task import JUDGED
from schemas.tables.trajectory import Trajectory

LEAST = 20
"""Minimum number of consecutive failures, or twice the number under way if that is more: one host that dies takes
all its trajectories with it."""
TASKS = 5
"""Minimum number of distinct tasks among them (or all, if fewer): one task's trajectories may follow each other."""
NAMED = 5
"""Maximum number of tasks that the message names."""
_HINTS = {
    "server": "See that `policy.server.url` answers: `flywheel doctor` asks it.",
    "judge": "See that the judge answers: `flywheel doctor` asks it.",
}


class Outage:
    """Detects that no trajectory of an environment works any more, from each one's first attempt in a rollout.

    Args:
        environment: its name.
        tasks: number of its tasks in the rollout.
        at_once: number of trajectories at the same time.
    """

    def __init__(self, environment: str, tasks: int, at_once: int) -> None:
        self._environment, self._tasks = environment, min(TASKS, tasks)
        self._least = max(LEAST, 2 * at_once)
        self._since: list[Ended] = []
        """Failures since the last success."""

    def note(self, ended: Trajectory) -> None:
        """Record a trajectory that ended.

        Raises:
            EnvironmentDown: this one and all since the last success failed for reasons other than the policy; the
                message
                has the tasks and the most frequent reason.
        """
        if not is_environment_failure(ended.failure_boundary):
            self._since.clear()
            return
        self._since.append((ended.task_id, ended.failure_boundary, ended.failure_reason))
        if len(self._since) < self._least or len({task for task, _, _ in self._since}) < self._tasks:
            return
        (boundary, reason), _ = Counter((str(where), short(why)) for _, where, why in self._since).most_common(1)[0]
        raise EnvironmentDown(
            f"The last {len(self._since)} trajectories of `{self._environment}` all failed, not for the policy's fault "
            f"({boundary}), so this stage stops; most frequent reason: {reason}. By task: {self._counts()}.",
            f"{_HINTS.get(boundary, '`flywheel doctor` checks the requirements.')} The same command then goes on.",
        )

    def _counts(self) -> str:
        found = failed_tasks(self._since)
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        return ", ".join(f"{one.task} {one.failed}" for one in found[:NAMED]) + more


POLL_S = 0.02
"""Seconds between two checks whether a waiting trajectory may begin."""
CLOSE_S = 5.0
"""Seconds for trajectories under way to end, and for finished ones to be handed on, when the rollout is cancelled or
fails."""

ActorsOf = Callable[[PlannedTrajectory], Sequence[Actor]]
Sink = Callable[[list[FinishedTrajectory]], None]
Admit = Callable[[PlannedTrajectory], bool | None]


def roll_out_all(
    config: Config,
    planned: Sequence[PlannedTrajectory],
    actors_of: ActorsOf,
    sink: Sink,
    bar: Callable[[], Progress],
    label: str,
    for_data: bool = False,
    admit: Admit | None = None,
) -> float:
    """Roll out all of `planned`, in order. A signal ends the rollout in order and hands on the finished trajectories.

    Args:
        config: provides environments and chunk size.
        planned: trajectories to roll out.
        actors_of: returns the actors of a trajectory.
        sink: takes finished trajectories in chunks, from another thread, one chunk at a time.
        bar: makes the progress bar, whose tasks have a field `message`.
        label: text on the bar.
        for_data: record the page's elements too, and hand on every attempt; else only the final attempt.
        admit: whether a trajectory may begin: True, None for not yet, False to end the rollout. With `admit`, `sink`
            gets each finished trajectory at once instead of in whole chunks.

    Raises:
        EnvironmentDown: nothing works any more in one environment, for reasons other than the policy.

    Returns:
        Seconds for which sandboxes were leased, summed over them, including their waits for page and policy.
    """
    if not planned:
        return 0.0
    judge = required_judge(config.judge) if any(one.task.verifier == JUDGED for one in planned) else None
    with bar() as progress:
        shown = progress.add_task(label, total=len(planned), message="")
        run = _Run(config, actors_of, judge, for_data, admit, lambda: progress.advance(shown))
        return run_until_interrupted(run.run(planned, sink))


@dataclass(slots=True)
class _Run:
    """A rollout under way."""

    config: Config
    actors_of: ActorsOf
    judge: Judge[Any] | None
    for_data: bool
    admit: Admit | None
    advance: Callable[[], Any]
    leased_s: float = 0.0
    retried: set[str] = field(default_factory=set[str])
    """Ids of further attempts."""

    async def run(self, planned: Sequence[PlannedTrajectory], sink: Sink) -> float:
        waiting: dict[str, list[PlannedTrajectory]] = {}
        for one in reversed(planned):
            waiting.setdefault(one.task.environment, []).append(one)
        finished: asyncio.Queue[FinishedTrajectory | None] = asyncio.Queue()
        pool = SandboxPool(environments_of(self.config, (one.task for one in planned)))
        places = [left for name, left in waiting.items() for _ in range(min(pool.sizes[name], len(left)))]
        outages = {
            name: Outage(name, len({one.task.task_id for one in left}), pool.sizes[name])
            for name, left in waiting.items()
        }
        judging = DaemonThreads(len(places) if self.judge else 0, "judge")
        writing = DaemonThreads(1, "write")
        writer = asyncio.create_task(self._hand_on(finished, sink, writing))
        workers: list[asyncio.Task[None]] = []
        try:
            async with pool:
                workers += [asyncio.create_task(self._work(pool, left, finished, judging, outages)) for left in places]
                ended = asyncio.gather(*workers)
                ended.add_done_callback(lambda done: done.cancelled() or done.exception())  # it is heard below, or not
                try:
                    await asyncio.wait((ended, writer), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for worker in workers:
                        worker.cancel()
            if not writer.done():
                ended.result()
                finished.put_nowait(None)
            await writer
        finally:
            finished.put_nowait(None)
            if left := [task for task in (*workers, writer) if not task.done()]:
                await asyncio.wait(left, timeout=CLOSE_S)
            judging.close()
            writing.close()
        return self.leased_s

    async def _work(
        self,
        pool: SandboxPool,
        waiting: list[PlannedTrajectory],
        finished: "asyncio.Queue[FinishedTrajectory | None]",
        judging: DaemonThreads,
        outages: Mapping[str, Outage],
    ) -> None:
        """Roll out the trajectories of one environment from the end of the list.

        Further attempts go last, when the failed part may work again; with `admit` they go soon, as their group waits.
        """
        while waiting:
            planned = waiting.pop()
            if self.admit is not None and not await _admitted(planned, self.admit):
                return
            actors = self.actors_of(planned)
            policy = self.config.policy
            record = await roll_out(pool, planned, actors, self.for_data, policy.history_images, policy.asked)
            self.leased_s += record.trajectory.wall_s
            if self.judge is not None:
                record = await judging.run(with_judgement, self.config, self.judge, planned, record)
            again = planned.retry(record.trajectory.failure_boundary)
            if again is None:
                self.advance()
            else:
                waiting.insert(len(waiting) if self.admit else 0, again)
                self.retried.add(again.trajectory_id)
            if again is None or self.for_data:
                finished.put_nowait(record)
            if planned.beginning is None and planned.trajectory_id not in self.retried:
                # a replay may also fail since the environment does not repeat itself
                outages[planned.task.environment].note(record.trajectory)

    async def _hand_on(
        self, finished: "asyncio.Queue[FinishedTrajectory | None]", sink: Sink, writing: DaemonThreads
    ) -> None:
        """Hand on finished trajectories: in whole chunks, or as soon as they are there where `admit` is set."""
        chunk: list[FinishedTrajectory] = []
        while True:
            record = await finished.get()
            if record is not None:
                chunk.append(record)
            full = finished.empty() if self.admit else len(chunk) >= self.config.collect.chunk
            if chunk and (record is None or full):
                await writing.run(sink, chunk)
                chunk = []
            if record is None:
                return


async def _admitted(planned: PlannedTrajectory, admit: Admit) -> bool:
    """Wait until a trajectory may begin, or until it never will."""
    while (answer := admit(planned)) is None:
        await asyncio.sleep(POLL_S)
    return answer


def missing(planned: Sequence[PlannedTrajectory], finished: Mapping[str, str | None]) -> list[PlannedTrajectory]:
    """Return the trajectories still to roll out: unfinished ones, and next attempts after environment failures.

    Args:
        planned: first attempts.
        finished: failure boundary, or None, by id of every trajectory in the lake.
    """
    found: list[PlannedTrajectory] = []
    for one in planned:
        now: PlannedTrajectory | None = one
        while now is not None and now.trajectory_id in finished:
            now = now.retry(finished[now.trajectory_id])
        if now is not None:
            found.append(now)
    return found
