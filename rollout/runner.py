"""Roll out many trajectories concurrently, judge them, and end in order at SIGINT and SIGTERM.

A judge's score is the reward of tasks without a verifier. A signal handler that raises an exception can interrupt the
event loop anywhere. If it interrupts a callback outside any task, the loop only reports the exception and continues. If
it interrupts the loop just before a callback, the callback is lost, and a task that waits for it never ends. A signal
therefore only cancels the main task, as `asyncio.run` does for SIGINT. The original handler runs after the task has
ended.

Finished trajectories are passed on in chunks. Failures of the environment, the server or the judge are kept and
retried, and do not count against the policy. If all recent trajectories of an environment failed like this, the rollout
stops instead of using up all attempts. A few failing tasks do not stop a rollout, because a single trajectory without
such a failure shows that the environment works. After a rollout, `rollout.failures` reports the failures of each task.
"""

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

from rich.progress import Progress

from environments.pool import SandboxPool
from environments.registry import environments_of
from models.judges.judge import Judge
from models.judges.registry import case_of, required_judge, verdict_of
from rollout.actor import Actor
from rollout.failures import Ended, failed_tasks, short
from rollout.session import roll_out
from rollout.threads import DaemonThreads
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config
from schemas.failure import EnvironmentDown, is_environment_failure
from schemas.tables.task import JUDGED
from schemas.tables.trajectory import Trajectory


def with_judgement(
    config: Config, judge: Judge[Any] | None, planned: PlannedTrajectory, record: FinishedTrajectory
) -> FinishedTrajectory:
    """Add the judge's verdict to a trajectory of a task without a verifier, with the score as the reward.

    A trajectory that failed because of the policy, such as a reply without an action, keeps its reward of 0 and is not
    judged. If the judge fails, the trajectory becomes an environment failure.
    """
    trajectory = record.trajectory
    if judge is None or planned.task.verifier != JUDGED or trajectory.failure_boundary is not None:
        return record
    pngs = {digest: seen.png for digest, seen in record.screenshots.items()}
    (judgement,) = judge.score([case_of(trajectory.instruction, record.steps, pngs, config.judge)], config.judge.votes)
    record.verdict = verdict_of(judge, config.judge, trajectory, judgement)
    if record.verdict is None:
        failed = {"reward": None, "success": None, "termination": "failure", "failure_boundary": "judge"}
        record.trajectory = trajectory.model_copy(update={**failed, "failure_reason": judgement.reason})
    else:
        scored = {"reward": judgement.score, "success": record.verdict.passed}
        record.trajectory = trajectory.model_copy(update=scored)
    return record


T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_until_interrupted(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result.

    Raises:
        KeyboardInterrupt: a signal cancelled the coroutine. The original handler may raise another error instead.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(coroutine)  # only the main thread receives signals
    before = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    came: list[int] = []
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        came.append(number)
        for loop, task in running:
            task.cancel()
            loop.call_soon_threadsafe(lambda: None)  # wakes up a loop that waits for events

    async def guarded() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        running.append((loop, task))
        if came:
            task.cancel()
        try:
            return await coroutine
        finally:
            running.clear()

    for number in before:
        signal.signal(number, interrupt)
    try:
        return asyncio.run(guarded())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            handler = before[signal.Signals(came[0])]
            if callable(handler):
                handler(came[0], None)
            else:
                signal.raise_signal(came[0])
            raise KeyboardInterrupt


LEAST = 20
"""Minimum number of consecutive failures that stop a rollout. With many concurrent trajectories it is twice their
number, because a host that dies ends all of its trajectories."""
TASKS = 5
"""Minimum number of distinct tasks among these failures; all tasks if there are fewer. Trajectories of one task may be
consecutive."""
NAMED = 5
"""Maximum number of tasks in the message."""
_HINTS = {
    "server": "See that `policy.server.url` answers: `flywheel doctor` asks it.",
    "judge": "See that the judge answers: `flywheel doctor` asks it.",
}


class Outage:
    """Detects that an environment stopped working, from the first attempt of each trajectory.

    Args:
        environment: name of the environment.
        tasks: number of tasks of the environment in the rollout.
        at_once: maximum number of concurrent trajectories.
    """

    def __init__(self, environment: str, tasks: int, at_once: int) -> None:
        self._environment, self._tasks = environment, min(TASKS, tasks)
        self._least = max(LEAST, 2 * at_once)
        self._since: list[Ended] = []
        """Environment failures since the last trajectory that had none."""

    def note(self, ended: Trajectory) -> None:
        """Record a trajectory that ended.

        Raises:
            EnvironmentDown: many consecutive trajectories had environment failures. The message has the tasks and the
                most frequent reason.
        """
        if not is_environment_failure(ended.failure_boundary):
            self._since.clear()
            return
        self._since.append((ended.task_id, ended.failure_boundary, ended.failure_reason))
        if len(self._since) < self._least or len({task for task, _, _ in self._since}) < self._tasks:
            return
        (boundary, reason), _ = Counter((str(where), short(why)) for _, where, why in self._since).most_common(1)[0]
        raise EnvironmentDown(
            f"The last {len(self._since)} trajectories of `{self._environment}` all failed for reasons other than the "
            f"policy ({boundary}), so this stage stops; most frequent reason: {reason}. By task: {self._counts()}.",
            f"{_HINTS.get(boundary, '`flywheel doctor` checks the requirements.')} The same command then continues.",
        )

    def _counts(self) -> str:
        found = failed_tasks(self._since)
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        return ", ".join(f"{one.task} {one.failed}" for one in found[:NAMED]) + more


POLL_S = 0.02
"""Seconds between two checks whether a waiting trajectory may start."""
CLOSE_S = 5.0
"""Maximum seconds, after a rollout fails or is cancelled, for running trajectories to end and for finished trajectories
to be passed on."""

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
    """Roll out the planned trajectories in order. After a signal, stop and pass on the finished trajectories.

    Args:
        config: config with the environments and the chunk size.
        planned: trajectories to roll out.
        actors_of: returns the actors of a trajectory.
        sink: receives finished trajectories in chunks. Another thread calls it, with one chunk at a time.
        bar: makes the progress bar, whose tasks have a field `message`.
        label: text on the progress bar.
        for_data: record the page's elements, and pass on every attempt. If false, pass on only the final attempt.
        admit: decides if a trajectory may start: True, None for not yet, or False to end the rollout. With `admit`,
            `sink` receives each finished trajectory at once instead of in whole chunks.

    Raises:
        EnvironmentDown: an environment stopped working.

    Returns:
        Total seconds for which sandboxes were leased, waits for pages and policies included.
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
    config: Config
    actors_of: ActorsOf
    judge: Judge[Any] | None
    for_data: bool
    admit: Admit | None
    advance: Callable[[], Any]
    leased_s: float = 0.0
    retried: set[str] = field(default_factory=set[str])
    """Ids of trajectories that retry an earlier attempt."""

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
        writer = asyncio.create_task(self._pass_on(finished, sink, writing))
        workers: list[asyncio.Task[None]] = []
        try:
            async with pool:
                workers += [asyncio.create_task(self._work(pool, left, finished, judging, outages)) for left in places]
                ended = asyncio.gather(*workers)
                ended.add_done_callback(lambda done: done.cancelled() or done.exception())  # avoids a log
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
        """Roll out the trajectories of one environment, starting at the end of the list.

        Retries come last, because the failed part may work again by then. With `admit`, retries come first, because
        their group waits for them.
        """
        while waiting:
            planned = waiting.pop()
            while (admitted := self.admit is None or self.admit(planned)) is None:
                await asyncio.sleep(POLL_S)
            if not admitted:
                return
            actors = self.actors_of(planned)
            policy = self.config.policy
            record = await roll_out(pool, planned, actors, self.for_data, policy.context_rule, policy.asked)
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
                # a replay may also fail because the environment is not deterministic
                outages[planned.task.environment].note(record.trajectory)

    async def _pass_on(
        self, finished: "asyncio.Queue[FinishedTrajectory | None]", sink: Sink, writing: DaemonThreads
    ) -> None:
        """Pass finished trajectories to `sink`: in whole chunks, or at once if `admit` is set."""
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


def missing(planned: Sequence[PlannedTrajectory], finished: Mapping[str, str | None]) -> list[PlannedTrajectory]:
    """Return the trajectories that are still to roll out: unfinished trajectories, and retries of environment failures.

    Args:
        planned: first attempts.
        finished: boundary of the failure, or None, by the id of each finished trajectory.
    """
    found: list[PlannedTrajectory] = []
    for one in planned:
        now: PlannedTrajectory | None = one
        while now is not None and now.trajectory_id in finished:
            now = now.retry(finished[now.trajectory_id])
        if now is not None:
            found.append(now)
    return found


def attempts(planned: Iterable[PlannedTrajectory]) -> set[str]:
    """Return the ids of trajectories and of all of their possible retries."""
    ids: set[str] = set()
    left: list[PlannedTrajectory] = [*planned]
    while left:
        ids |= {one.trajectory_id for one in left}
        left = [retry for one in left if (retry := one.retry("sandbox"))]
    return ids
