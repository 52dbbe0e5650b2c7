"""Run an event loop that SIGINT and SIGTERM end in order.

A signal handler that raises does so wherever the loop happens to be. Inside a callback that belongs to no task, the
loop reports the exception and continues. Between the moment the loop takes a callback from the queue and the call, the
callback is lost, and its waiter waits for ever, cancellation included. So a signal only cancels the running task, as
`asyncio.run` does for SIGINT alone, and the original handler runs after that task has ended.
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
        KeyboardInterrupt: a signal came and the coroutine has ended; the original handler may raise another error.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(coroutine)  # signals are delivered elsewhere
    before = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    came: list[int] = []
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        came.append(number)
        for loop, task in running:
            task.cancel()
            loop.call_soon_threadsafe(lambda: None)  # it may be waiting for something to happen

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
