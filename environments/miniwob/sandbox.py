"""MiniWoB++ (Liu et al., ICLR 2018) in a browser page of its own, on a clock that only actions move.

The page's time, timers and chance are replaced before anything of it runs (`page.js`): each action takes a
quarter of a second of the page's time however long anybody thinks, so a reward depends on the seed and the actions
alone. It is the raw one, not discounted by time. Drop-down lists open inside the page, because a headless screenshot
shows no native ones: those tasks look a little different from the published MiniWoB++.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from environments.chromium.browser import Browser
from environments.chromium.page import PageKind
from environments.chromium.sandbox import BrowserSandbox
from environments.state import StatefulSandbox
from environments.verifier import Verifier
from schemas import action as act
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, SandboxFailure, TrajectoryFailure
from schemas.observation import Element, Observation, Outcome
from schemas.tables.task import GuiTask
from schemas.world import Setup, State, in_turn

WIDTH, HEIGHT = 160, 210
ACTION_MS, WAIT_MS = 250, 1000
PRACTICE = "practice"
"""The one page that is ours (`practice.html`), drawn with MiniWoB++'s own style and scripts."""


@cache
def html_folder() -> Path:
    """Where the installed MiniWoB++ keeps its pages; raises FlywheelError if it is not installed."""
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise FlywheelError("MiniWoB++ is not installed.", "Run `pip install miniwob`.")
    return Path(spec.origin).parent / "html" / "miniwob"


def page_of(template: str) -> str:
    """The address of a task's page."""
    if template == PRACTICE:
        return Path(__file__).with_name("practice.html").as_uri()
    return (html_folder() / f"{template}.html").as_uri()


@cache
def _page_kind() -> PageKind:
    ground = (html_folder().parent / "core" / "core.css").as_uri()
    return PageKind(WIDTH, HEIGHT, ground, Path(__file__).with_name("page.js").read_text())


class MiniwobSandbox(BrowserSandbox, StatefulSandbox):
    """One MiniWoB++ task in one page, or several one after the other; the screen is a task's own 160x210 pixels."""

    width, height = WIDTH, HEIGHT

    def __init__(self, browser: Browser, config: EnvironmentConfig) -> None:
        super().__init__(browser, config)
        self._instruction = ""
        self.verdict: tuple[bool, Any] = (False, 0.0)
        """What the page says after the last action: whether the task is done, and its raw reward."""
        self._seed = 0
        self._parts: list[str] = []
        self._rewards: list[float] = []

    @property
    def kind(self) -> PageKind:
        """Pages of MiniWoB++'s size, with its style and our script."""
        return _page_kind()

    @property
    def state(self) -> State:
        """Of tasks one after the other: their names, and the rewards of those that are done."""
        return {"parts": " ".join(self._parts), "rewards": list(self._rewards)}

    @property
    def over(self) -> bool:
        """Whether all of them are done, or one was not done well."""
        return len(self._rewards) == len(self._parts) or any(reward < 1.0 for reward in self._rewards)

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._seed = seed
        if task.setup is None:
            self._instruction = await self._begin(task.template)
            return
        self.setup = Setup.model_validate_json(task.setup)
        parts, rewards = self.setup.initial["parts"], self.setup.initial["rewards"]
        assert isinstance(parts, str) and isinstance(rewards, list)
        self._parts, self._rewards = parts.split(), [float(str(one)) for one in rewards]
        utterances = [await self._begin(part) for part in self._parts]
        self._instruction = in_turn(utterances)
        await self._begin(self._parts[min(len(self._rewards), len(self._parts) - 1)])

    async def _begin(self, template: str) -> str:
        """Opens a task's page and returns its instruction."""
        started = await self._open(page_of(template), f"world.__wob.start({self._seed}, notes)")
        ready, utterance, self.verdict = started
        if not ready:
            raise SandboxFailure(f"{template} does not get ready")
        return utterance

    async def _observe(self, elements: bool) -> Observation:
        png = await self._page.screenshot()
        found = await self._page.evaluate("world.__wob.elements()") if elements else ()
        return Observation(png, WIDTH, HEIGHT, self._instruction, tuple(_element(*fields) for fields in found))

    async def _react(self, action: act.Action) -> None:
        passed_ms = WAIT_MS if action.type == "wait" else ACTION_MS
        self.verdict = await self._page.evaluate(f"world.__wob.advance({passed_ms})")
        if self.setup is not None and self.verdict[0] and not self.over:
            self._rewards.append(float(self.verdict[1]))
            if not self.over:
                await self._begin(self._parts[len(self._rewards)])


class InPageReward(Verifier):
    """The page's own reward; the page alone knows when its task is over."""

    each_step = True

    async def outcome(self, sandbox: MiniwobSandbox) -> Outcome:
        """The raw reward once the task is done, 0 before; raises TrajectoryFailure if it is none."""
        done, reward = sandbox.verdict
        if not isinstance(reward, int | float) or not -1.0 <= reward <= 1.0:
            raise TrajectoryFailure("verifier", f"the page's reward is {reward!r}, not a number in [-1, 1]")
        return Outcome(done, float(reward) if done else 0.0)


def _element(
    name: str, kind: str, left: float, top: float, right: float, bottom: float, interactive: bool, value: str
) -> Element:
    return Element(name, kind, (left, top, right, bottom), interactive, value)
