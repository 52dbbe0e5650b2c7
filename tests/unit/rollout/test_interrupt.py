"""A signal ends an event loop wherever it arrives, also where Python throws an exception away."""

import asyncio
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from rollout.runner import run_until_interrupted

LATE_S = 3.0


class Thing:
    """Something that is thrown away while the loop runs."""


class Stopped(Exception):
    """What the handler that was there before raises, as Prefect's does."""


@pytest.fixture
def raising() -> Iterator[None]:
    """A handler of SIGTERM that raises wherever it is called."""

    def raise_stopped(_: int, __: FrameType | None) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, raise_stopped)
    yield
    signal.signal(signal.SIGTERM, before)


def in_a_weakref_callback(thing: Thing) -> None:
    keep.append(weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM)))


def in_a_finalizer(thing: Thing) -> None:
    weakref.finalize(thing, signal.raise_signal, signal.SIGTERM)


keep: list[weakref.ref[Thing]] = []


@pytest.mark.usefixtures("raising")
@pytest.mark.parametrize("watch", [in_a_weakref_callback, in_a_finalizer])
def test_a_signal_that_arrives_where_exceptions_are_lost_ends_the_loop_all_the_same(
    watch: Callable[[Thing], None],
) -> None:
    given_back: list[str] = []

    async def busy() -> None:
        thing = Thing()
        watch(thing)
        try:
            del thing  # the signal comes now
            await asyncio.sleep(LATE_S)
        finally:
            given_back.append("sandbox")

    began = time.monotonic()
    with pytest.raises(Stopped):
        run_until_interrupted(busy())
    assert time.monotonic() - began < LATE_S and given_back == ["sandbox"]


@pytest.mark.usefixtures("raising")
def test_what_the_loop_waits_for_in_a_callback_is_cancelled_and_the_handlers_are_as_before() -> None:
    async def waiting() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, signal.raise_signal, signal.SIGTERM)  # in a callback that is no task's
        await asyncio.gather(*(asyncio.sleep(LATE_S) for _ in range(20)))

    before = signal.getsignal(signal.SIGTERM)
    began = time.monotonic()
    with pytest.raises(Stopped):
        run_until_interrupted(waiting())
    assert time.monotonic() - began < LATE_S and signal.getsignal(signal.SIGTERM) is before
