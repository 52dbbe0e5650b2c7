"""Run slow calls of an event loop in daemon threads, which do not delay the end of the process.

A call hangs if a server, a judge or a store does not answer. A cancelled rollout does not wait for such a call. Threads
of `asyncio.to_thread` and `ThreadPoolExecutor` are unsuitable, because Python waits for them at exit without a limit.
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
    """A fixed number of threads that run until `close`. A network keeps its own threads for each thread that runs
    it."""

    def __init__(self, count: int, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """Run a call in a thread and return its result. If the caller is cancelled, a started call continues
        unobserved."""
        job: Future[T] = Future()
        self._calls.put((job, partial(call, *args)))
        return await asyncio.wrap_future(job)

    def close(self, wait_s: float = 0.0) -> None:
        """End the threads after their current calls, and wait up to `wait_s` seconds for their end."""
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
            except BaseException as error:  # the waiting task raises it
                job.set_exception(error)
            else:
                job.set_result(result)
            del item, job, call  # frees memory while the thread waits
