"""Run tasks that consist of a single page, which gives the instruction and computes the reward.

The page's time, timers and randomness are replaced before its own scripts run (`in_page.js`): each action takes a
quarter of a second of the page's time, however long the policy takes. So a reward depends only on the seed and the
actions. Drop-down lists open within the page, because headless screenshots do not show native lists.
"""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from environments.chromium.browser import Browser
from environments.chromium.sandbox import BrowserSandbox
from environments.verifier import Verifier
from schemas import action as act
from schemas.config.sections import EnvironmentConfig
from schemas.failure import TrajectoryFailure
from schemas.observation import Outcome

ACTION_MS, WAIT_MS = 250, 1000
SCRIPT = Path(__file__).with_name("in_page.js").read_text()
"""Script that runs before the page's own scripts; the environment's own script follows."""


class InPageSandbox(BrowserSandbox):
    """One task in one page."""

    action_ms = ACTION_MS
    """Milliseconds of the page's time that an action takes."""
    wait_ms = WAIT_MS
    """Milliseconds of the page's time that `wait` takes."""

    def __init__(self, browser: Browser, config: EnvironmentConfig) -> None:
        super().__init__(browser, config)
        self._passed_ms = 0
        """Milliseconds of the page's time since the action began."""
        self.verdict: tuple[bool, Any] = (False, 0.0)
        """The page's verdict after the last action: whether the task is done, and its raw reward."""

    @abstractmethod
    async def _advance(self, passed_ms: int) -> None:
        """Lets time pass in the page and reads its verdict."""

    async def _pass_time(self, ms: int) -> None:
        """Lets time pass during a drag, and counts it, since a drag takes no longer than another action."""
        await super()._pass_time(ms)
        self._passed_ms += ms

    async def _react(self, action: act.Action) -> None:
        passed, self._passed_ms = self._passed_ms, 0
        usual_ms = self.wait_ms if action.type == "wait" else self.action_ms
        await self._advance(max(0, self._lasts_ms(action, usual_ms) - passed))


class InPageReward(Verifier):
    """Returns the page's own reward, without a discount by time; only the page knows when its task is over."""

    each_step = True
    reads: ClassVar[type] = InPageSandbox

    async def outcome(self, sandbox: InPageSandbox) -> Outcome:
        """Returns the raw reward after the task is done, and 0 before; raises TrajectoryFailure for an invalid
        reward."""
        reward = reward_of(sandbox.verdict[1])
        return Outcome(sandbox.verdict[0], reward if sandbox.verdict[0] else 0.0)


def reward_of(value: object) -> float:
    """Returns the reward that a page gives; raises TrajectoryFailure for an invalid one."""
    if not isinstance(value, int | float) or not -1.0 <= value <= 1.0:
        raise TrajectoryFailure("verifier", f"the page's reward is {written(value)}, not a number in [-1, 1]")
    return float(value)


def written(value: object) -> str:
    """Write a value of a page for a message."""
    return value if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity") else repr(value)
