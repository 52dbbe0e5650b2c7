"""Run an event loop that ends in order at SIGINT and SIGTERM.

A signal handler that raises an exception can interrupt the event loop anywhere. If it interrupts a callback outside any
task, the loop only reports the exception and continues. If it interrupts the loop just before a callback, the callback
is lost, and a task that waits for it never ends. A signal therefore only cancels the main task, as `asyncio.run` does
for SIGINT. The original handler runs after the task has ended.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

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
