"""Run slow calls for an event loop in threads that never keep the process from ending.

A server, a judge or a store that does not answer makes such a call hang; a cancelled rollout does not wait for it.
Python waits at exit for the threads of `asyncio.to_thread` and of `ThreadPoolExecutor`, however long that takes.
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
    """A fixed number of threads that live until `close`: a network's own threads belong to the thread that runs it."""

    def __init__(self, count: int, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """Run a call in a thread and return its result; a cancelled call that has begun continues unobserved."""
        job: Future[T] = Future()
        self._calls.put((job, partial(call, *args)))
        return await asyncio.wrap_future(job)

    def close(self, wait_s: float = 0.0) -> None:
        """End the threads after their calls, and wait up to `wait_s` seconds for that."""
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
            del item, job, call  # a thread that waits holds nothing
