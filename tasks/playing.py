"""Plays many plays at once over the pool, hands finished ones on in chunks, plays environment failures again."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence

from environments.pool import SandboxPool
from environments.session import Actor, Play, Record, play
from schemas.config import Config
from schemas.failure import is_environment_failure
from schemas.trajectory import trajectory_id
from tasks.console import bar

ATTEMPTS = 3
"""How often one play is tried before its environment failure stands."""

Cast = Callable[[Play], Sequence[Actor]]
Sink = Callable[[list[Record]], None]


def play_all(config: Config, plays: Sequence[Play], cast: Cast, sink: Sink, label: str, for_data: bool = False) -> None:
    """Plays all of `plays`.

    Args:
        config: environment and chunk size are read from it.
        plays: what to play.
        cast: who plays a play.
        sink: takes finished plays in chunks, from another thread, one chunk at a time.
        label: the word on the progress bar.
        for_data: record the page's elements too, and hand on every attempt; else only the attempt that stands.
    """
    if plays:
        asyncio.run(_play_all(config, plays, cast, sink, label, for_data))


async def _play_all(config: Config, plays: Sequence[Play], cast: Cast, sink: Sink, label: str, for_data: bool) -> None:
    waiting = list(reversed(plays))
    finished: asyncio.Queue[Record | None] = asyncio.Queue()
    pool = SandboxPool(config.environment)
    await pool.start()
    writer = asyncio.create_task(_write(finished, sink, config.collect.chunk))
    try:
        with bar() as progress:
            shown = progress.add_task(label, total=len(plays), said="")

            async def worker() -> None:
                while waiting and not writer.done():
                    one = waiting.pop()
                    record = await play(pool, one, cast(one), for_data, config.policy.history_images)
                    again = _again(one, record)
                    if again is None:
                        progress.advance(shown)
                    else:
                        waiting.append(again)
                    if again is None or for_data:
                        finished.put_nowait(record)

            await asyncio.gather(*(worker() for _ in range(min(pool.size, len(plays)))))
    finally:
        finished.put_nowait(None)
        await pool.close()
    await writer


async def _write(finished: "asyncio.Queue[Record | None]", sink: Sink, chunk: int) -> None:
    open_chunk: list[Record] = []
    while True:
        record = await finished.get()
        if record is not None:
            open_chunk.append(record)
        if open_chunk and (record is None or len(open_chunk) >= chunk):
            await asyncio.to_thread(sink, open_chunk)
            open_chunk = []
        if record is None:
            return


def _again(one: Play, record: Record) -> Play | None:
    attempt = one.attempt + one.stride
    if not is_environment_failure(record.trajectory.failure_boundary) or attempt >= ATTEMPTS * one.stride:
        return None
    identity = trajectory_id(
        one.run_id, one.iteration, one.task.task_id, one.seed, one.policy, one.policy_version, attempt
    )
    return dataclasses.replace(one, trajectory_id=identity, attempt=attempt)
