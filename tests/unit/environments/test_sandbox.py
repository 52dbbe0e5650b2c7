"""The seam: whatever goes wrong inside of a sandbox, its trajectory fails, and nothing else."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from environments.fake import FakeSandbox, FakeVerifier
from environments.pool import SandboxPool
from environments.sandbox import Sandbox
from models.completion import Completion
from rollout.session import roll_out
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.action import Click, Finished
from schemas.context import ContextRule
from schemas.failure import ActionFailure, FlywheelError, SandboxFailure
from schemas.observation import Observation
from tests.parts import FAKE

TASK = FAKE.task("click-target")
UNFORESEEN = [
    ValueError("a number of 5,000 digits"),
    RecursionError("too deep"),
    OverflowError("too large"),
    KeyError(),
]
ASKED: dict[str, Callable[[Sandbox], Any]] = {
    "_start": lambda sandbox: sandbox.start(TASK, 2),
    "_observe": lambda sandbox: sandbox.observe(),
    "_perform": lambda sandbox: sandbox.perform(Click(x=0.5, y=0.5)),
    "_conclude": lambda sandbox: sandbox.conclude(Finished()),
    "outcome": lambda sandbox: sandbox.verify(FakeVerifier()),
}


def raising(error: Exception) -> Any:
    async def work(*_: Any) -> None:
        raise error

    return work


def broken(where: str, error: Exception) -> FakeSandbox:
    """A sandbox in which something goes wrong."""
    return type("Broken", (FakeSandbox,), {where: raising(error)})(FAKE.config)


@pytest.mark.parametrize("error", UNFORESEEN, ids=repr)
@pytest.mark.parametrize("where", ASKED)
def test_an_error_that_nobody_foresaw_is_a_failure_of_the_sandbox_that_names_it(where: str, error: Exception) -> None:
    with pytest.raises(SandboxFailure, match=type(error).__name__) as failure:
        asyncio.run(ASKED[where](broken(where, error)))
    assert failure.value.__cause__ is error


@pytest.mark.parametrize("error", [ActionFailure("no such key"), FlywheelError("bubblewrap is not installed.")])
def test_what_is_named_already_is_raised_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        asyncio.run(broken("_perform", error).perform(Click(x=0.5, y=0.5)))
    assert raised.value is error


def test_a_reason_is_short_and_can_be_stored() -> None:
    with pytest.raises(SandboxFailure) as failure:
        asyncio.run(broken("_observe", ValueError("\ud800" + "9" * 5000)).observe())
    assert len(failure.value.reason) < 500 and failure.value.reason.encode()


def test_a_box_that_cannot_be_given_back_or_given_up_raises_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        asyncio.run(broken("_stop", ValueError("it is stuck")).stop())
    assert "stop: ValueError: it is stuck" in caplog.text

    async def hangs() -> None:
        sandbox = broken("_abandon", ValueError("it is stuck"))
        sandbox._observe = lambda elements: asyncio.sleep(60)  # type: ignore[assignment, method-assign]
        sandbox._limits = FAKE.config.model_copy(update={"step_timeout_s": 0.01})
        await sandbox.observe()

    with pytest.raises(SandboxFailure, match="it is stuck"):
        asyncio.run(hangs())


class Clicks:
    """Who always clicks."""

    needs_elements, needs_hints, kind, dialect = False, False, "policy", "box_v1"

    async def act(self, context: Any) -> Completion:
        return Completion("click", actions=(Click(x=0.5, y=0.5),))


def test_a_trajectory_whose_sandbox_breaks_is_a_row_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    observe = FakeSandbox._observe

    async def breaks_once(sandbox: FakeSandbox, elements: bool) -> Observation:
        if sandbox._seed == 2:
            raise ValueError("a page that lies")
        return await observe(sandbox, elements)

    monkeypatch.setattr(FakeSandbox, "_observe", breaks_once)
    planned = [PlannedTrajectory("lake", "run", 1, TASK, seed, "policy", "p") for seed in range(1, 5)]

    async def all_of_them() -> list[FinishedTrajectory]:
        async with SandboxPool([FAKE]) as pool:
            actors: Any = [Clicks()]
            return await asyncio.gather(*(roll_out(pool, one, actors, False, ContextRule(1)) for one in planned))

    rows = [one.trajectory for one in asyncio.run(all_of_them())]
    assert [row.failure_boundary for row in rows] == [None, "sandbox", None, None]
    assert (rows[1].reward, rows[1].failure_reason) == (None, "screenshot: ValueError: a page that lies")
