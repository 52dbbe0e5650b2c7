"""Run a web application in a page: set its state, act with real input, and verify the final state."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from environments.chromium.browser import Browser
from environments.chromium.in_page import SCRIPT
from environments.chromium.page import PageKind
from environments.chromium.sandbox import BrowserSandbox
from environments.verifier import Verifier
from environments.webapp.contract import new_session
from environments.webapp.host import AppAddress
from environments.webapp.page import WebPage
from environments.webapp.tasks import WebInstance
from schemas import action as act
from schemas.config.sections import EnvironmentConfig
from schemas.failure import SandboxFailure, TrajectoryFailure
from schemas.observation import Element, Observation, Outcome
from schemas.tables.task import GuiTask
from schemas.world import State

OPENING_MS, ACTION_MS, WAIT_MS = 1000, 1000, 5000
"""The page's time that passes: an application writes its state some tenths of a second after a change."""


class WebAppSandbox(BrowserSandbox):
    """One task of one application, in a session that only its page knows.

    Args:
        browser: the browser that opens it.
        config: time limits.
        size: width and height of the screen in pixels.
        places: the address of each application.
        instance_of: returns the application and the task of a template and a seed.
    """

    page = WebPage

    def __init__(
        self,
        browser: Browser,
        config: EnvironmentConfig,
        size: tuple[int, int],
        places: Mapping[str, AppAddress],
        instance_of: Callable[[str, int], tuple[str, WebInstance]],
    ) -> None:
        super().__init__(browser, config)
        self.width, self.height = size
        self._places, self._instance_of = places, instance_of
        self._seed, self._sid = 0, ""
        self._place: AppAddress | None = None
        self._initial: State = {}
        self.instance: WebInstance | None = None
        """The task that was started in it."""

    @property
    def kind(self) -> PageKind:
        """A page whose chance is the seed's."""
        return PageKind(self.width, self.height, "", f"{_script()}\n__page.seed({self._seed});")

    @property
    def web(self) -> WebPage:
        """Its page; raises SandboxFailure if it is not started."""
        assert isinstance(self._page, WebPage)
        return self._page

    async def outcome(self) -> Outcome:
        """Scores the change of the state since the page settled, or reads the page's own reward.

        Raises:
            TrajectoryFailure: the application reports no states, or the page's reward is invalid.
        """
        if self.instance is None or self._place is None:
            raise SandboxFailure("the sandbox is not started")
        if self.instance.task.reward:
            return _read_reward(await self.web.evaluate(f"({self.instance.task.reward})"))
        _, current = await self._place.contract.states(self._sid)
        reward = self.instance.reward(self._initial, current)
        return Outcome(done=reward == 1.0, reward=reward)

    async def states(self) -> tuple[State, State]:
        """The state when the page first settled, and the current state."""
        assert self._place is not None
        return self._initial, (await self._place.contract.states(self._sid))[1]

    async def put(self, state: State) -> None:
        """Sets the state as the page itself would, to test a verifier on it; the page does not reload."""
        assert self._place is not None
        await self._place.contract.put(self._sid, state)

    async def _start(self, task: GuiTask, seed: int) -> None:
        application, self.instance = self._instance_of(task.template, seed)
        self._seed, self._instruction = seed, self.instance.instruction
        self._place, self._sid = self._places[application], new_session()
        keeps_state = not self.instance.task.reward
        if keeps_state:
            await self._place.contract.set(self._sid, self.instance.initial)
        await self._open(f"{self._place.origin}{self.instance.page}?sid={self._sid}", "1")
        await self.web.settle(OPENING_MS)
        if keeps_state:
            _, self._initial = await self._place.contract.states(self._sid)

    async def _observe(self, elements: bool) -> Observation:
        png = await self._page.screenshot()
        found: list[Any] = await self._page.evaluate("__page.elements()") if elements else []
        return Observation(png, self.width, self.height, self._instruction, tuple(_element(*one) for one in found))

    async def _react(self, action: act.Action) -> None:
        await self.web.settle(WAIT_MS if action.type == "wait" else ACTION_MS)

    async def _stop(self) -> None:
        await super()._stop()
        if self._place is not None and self._sid and self.instance and not self.instance.task.reward:
            with contextlib.suppress(SandboxFailure, asyncio.CancelledError):
                await self._place.contract.end(self._sid)


class WebAppReward(Verifier):
    """Rewards 1 as soon as the changes are those that the task wants; 0 before, so a trajectory ends with success or
    its steps."""

    each_step = True
    reads = WebAppSandbox

    async def outcome(self, sandbox: WebAppSandbox) -> Outcome:
        """Scores the application's state, or reads its page's reward."""
        return await sandbox.outcome()


@cache
def _script() -> str:
    return SCRIPT + Path(__file__).with_name("page.js").read_text()


def _read_reward(answer: Any) -> Outcome:
    if answer is None or answer is False:
        return Outcome(done=False, reward=0.0)
    if not isinstance(answer, int | float) or not -1.0 <= answer <= 1.0:
        raise TrajectoryFailure("verifier", f"the page's reward is {answer!r}, not a number in [-1, 1]")
    return Outcome(done=True, reward=float(answer))


def _element(
    name: str, kind: str, left: float, top: float, right: float, bottom: float, interactive: bool, value: str
) -> Element:
    return Element(name, kind, (left, top, right, bottom), interactive, value)
