"""Threads that run slow calls for an event loop and never keep the process from ending.

What hangs here is a server, a judge or a store that does not answer: a cancelled rollout does not wait for it. The
threads of `asyncio.to_thread` and of `ThreadPoolExecutor` are waited for at exit, however long that takes.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThreads:
    """So many threads, which live until `close`: a network's own threads belong to the one that runs it."""

    def __init__(self, count: int, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """What the call returns or raises; a cancelled one that has begun goes on, and nobody hears of it."""
        job: Future[T] = Future()
        self._calls.put((job, partial(call, *args)))
        return await asyncio.wrap_future(job)

    def close(self, wait_s: float = 0.0) -> None:
        """Ends the threads when their calls are through, and waits so long for that."""
        for _ in self._threads:
            self._calls.put(None)
        end = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            job, call = item
            if not job.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # whoever waits raises it
                job.set_exception(error)
            else:
                job.set_result(result)
            del item, job, call  # a thread that waits holds nothing
