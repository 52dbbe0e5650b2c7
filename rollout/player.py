"""Plays many plays at once over the pool, hands finished ones on in chunks, plays environment failures again."""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence

from rich.progress import Progress

from environments.pool import SandboxPool
from environments.registry import environments_of
from models.judges.registry import required_judge
from rollout.judging import with_judgement
from rollout.session import Actor, Play, Record, play
from schemas.config import Config
from schemas.failure import is_environment_failure
from schemas.task import JUDGED
from schemas.trajectory import trajectory_id

LOOK_S = 0.02
"""How often a play that has to wait for its begin is asked for again."""
ATTEMPTS = 3
"""How often one play is tried before its environment failure stands."""

Cast = Callable[[Play], Sequence[Actor]]
Sink = Callable[[list[Record]], None]
Admit = Callable[[Play], bool | None]


def play_all(
    config: Config,
    plays: Sequence[Play],
    cast: Cast,
    sink: Sink,
    bar: Callable[[], Progress],
    label: str,
    for_data: bool = False,
    admit: Admit | None = None,
) -> float:
    """Plays all of `plays`, in order.

    Args:
        config: environment and chunk size are read from it.
        plays: what to play.
        cast: who plays a play.
        sink: takes finished plays in chunks, from another thread, one chunk at a time.
        bar: makes the progress bar, whose tasks have a field `said`.
        label: the word on it.
        for_data: record the page's elements too, and hand on every attempt; else only the attempt that stands.
        admit: whether a play may begin: None for not yet, False to end the playing. Somebody waits for what is finished
            then, so `sink` gets it at once, without waiting for a whole chunk.

    Returns:
        Seconds in which sandboxes were leased, summed over them: in these each waits for its page or its policy.
    """
    return asyncio.run(_play_all(config, plays, cast, sink, label, for_data, admit, bar)) if plays else 0.0


async def _play_all(
    config: Config,
    plays: Sequence[Play],
    cast: Cast,
    sink: Sink,
    label: str,
    for_data: bool,
    admit: Admit | None,
    bar: Callable[[], Progress],
) -> float:
    leased_s = 0.0
    waiting: dict[str, list[Play]] = {}
    for one in reversed(plays):
        waiting.setdefault(one.task.environment, []).append(one)
    finished: asyncio.Queue[Record | None] = asyncio.Queue()
    judge = required_judge(config.judge) if any(one.task.verifier == JUDGED for one in plays) else None
    pool = SandboxPool(environments_of(config, (one.task for one in plays)))
    await pool.start()
    writer = asyncio.create_task(_write(finished, sink, None if admit else config.collect.chunk))
    try:
        with bar() as progress:
            shown = progress.add_task(label, total=len(plays), said="")

            async def worker(left: list[Play]) -> None:
                nonlocal leased_s
                while left and not writer.done():
                    one = left.pop()
                    if admit is not None and not await _begins(one, admit, writer):
                        return
                    record = await play(pool, one, cast(one), for_data, config.policy.history_images)
                    leased_s += record.trajectory.wall_s
                    record = await asyncio.to_thread(with_judgement, config, judge, one, record)
                    again = _again(one, record)
                    if again is None:
                        progress.advance(shown)
                    else:
                        left.append(again)
                    if again is None or for_data:
                        finished.put_nowait(record)

            await asyncio.gather(
                *(worker(left) for name, left in waiting.items() for _ in range(min(pool.sizes[name], len(left))))
            )
    finally:
        finished.put_nowait(None)
        await pool.close()
    await writer
    return leased_s


async def _begins(one: Play, admit: Admit, writer: "asyncio.Task[None]") -> bool:
    """Waits until a play may begin, or until it never will."""
    while (answer := admit(one)) is None and not writer.done():
        await asyncio.sleep(LOOK_S)
    return bool(answer)


async def _write(finished: "asyncio.Queue[Record | None]", sink: Sink, chunk: int | None) -> None:
    """Hands finished plays on: so many at once, or whatever is there if no number is given."""
    open_chunk: list[Record] = []
    while True:
        record = await finished.get()
        if record is not None:
            open_chunk.append(record)
        full = finished.empty() if chunk is None else len(open_chunk) >= chunk
        if open_chunk and (record is None or full):
            await asyncio.to_thread(sink, open_chunk)
            open_chunk = []
        if record is None:
            return


def left_of(plays: Sequence[Play], finished: Mapping[str, str | None]) -> list[Play]:
    """What is still to be played: what is not finished, and the next attempts where an environment failed.

    Args:
        plays: first attempts.
        finished: the failure boundary, or None, of every trajectory that is in the lake.
    """
    left = []
    for one in plays:
        now: Play | None = one
        while now is not None and now.trajectory_id in finished:
            now = _next(now) if is_environment_failure(finished[now.trajectory_id]) else None
        if now is not None:
            left.append(now)
    return left


def _again(one: Play, record: Record) -> Play | None:
    return _next(one) if is_environment_failure(record.trajectory.failure_boundary) else None


def _next(one: Play) -> Play | None:
    """The next attempt at a play; None if this was the last."""
    attempt = one.attempt + one.stride
    if attempt >= ATTEMPTS * one.stride:
        return None
    identity = trajectory_id(
        one.run_id, one.iteration, one.task.task_id, one.seed, one.policy, one.policy_version, attempt
    )
    return dataclasses.replace(one, trajectory_id=identity, attempt=attempt)
