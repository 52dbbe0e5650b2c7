"""Run web applications as an environment: built applications that this process serves, and others at addresses in the
config.

A sandbox runs an application in a page: it sets the state, acts with real input, and verifies the final state.
Applications store data in cookies and in the browser's storage. So each lease has its own context, which is discarded
with the lease. The page is navigated like a user's page, since applications read their address.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from common.process import home
from common.text import counted
from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.chromium.in_page import SCRIPT as IN_PAGE
from environments.chromium.in_page import reward_of
from environments.chromium.page import Page, PageKind, ScriptFailure
from environments.chromium.sandbox import BrowserSandbox
from environments.host import Host
from environments.registry import environments_of
from environments.sandbox import Sandbox
from environments.verifier import OwnOutcome
from environments.webapp.host import Contract, WebHost, built_in, host_and_port, new_session
from environments.webapp.tasks import OURS, TaskFile, WebInstance, entry_of, instance, read_tasks
from schemas import action as act
from schemas.config import Config
from schemas.config.section import Count
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, Probe, SandboxFailure, UsageError, all_of
from schemas.observation import Outcome
from schemas.tables.task import GuiTask, TaskEntry
from schemas.world import State

ASK_S = 5.0
"""Seconds that an application at another address may take to answer the check that it is reachable."""
OPENING_MS, ACTION_MS, WAIT_MS = 1000, 1000, 5000
"""Milliseconds of the page's time that pass at each point; an application writes its state some tenths of a second
after a change."""
SCRIPT = IN_PAGE + Path(__file__).with_name("page.js").read_text()
"""Script that runs before every document of a `WebPage`."""


class WebPage(Page):
    """A whole page at an address, in its own browser context; `PageKind.ground` is unused."""

    _context: str

    @classmethod
    async def _made(cls, browser: Browser, kind: PageKind) -> "WebPage":
        made = await browser.connection.send("Target.createBrowserContext", {"disposeOnDetach": True})
        page = await cls._attached(browser, kind, browserContextId=made["browserContextId"])
        page._context = made["browserContextId"]
        await asyncio.gather(
            page.send("Page.enable"),
            page.send("Emulation.setTimezoneOverride", timezoneId="UTC"),
            page.send("Emulation.setLocaleOverride", locale="en-US"),
            page.send("Page.addScriptToEvaluateOnNewDocument", source=kind.script),
        )
        return page

    async def open(self, url: str, start: str, before: str = "null") -> Any:
        """Opens an address and evaluates the expression `start` in its page. Only the script of the page's kind runs
        before the document."""
        self._drawn = False
        answer = await self.send("Page.navigate", url=url)
        if "errorText" in answer:
            raise SandboxFailure(f"{url.partition('?')[0]}: {answer['errorText']}")
        return await self.evaluate(start)

    async def settle(self, ms: int) -> None:
        """Lets the page's time pass until it settles, including navigations to other documents."""
        while True:
            try:
                await self.evaluate(f"__page.settle({ms})")
                return
            except ScriptFailure:
                raise
            except SandboxFailure:
                if not self._browser.alive:
                    raise
                await self.evaluate("1")  # raises if the page has ended instead of navigated
                await asyncio.sleep(0.02)

    async def release(self) -> None:
        """Discards the page, so that no other trajectory uses it."""
        await self.close()

    async def close(self) -> None:
        """Closes the page and discards its context."""
        await super().close()
        with contextlib.suppress(SandboxFailure):
            await self._browser.connection.send("Target.disposeBrowserContext", {"browserContextId": self._context})


class WebAppSandbox(BrowserSandbox):
    """A sandbox for one task of an application, in a session that only its page knows.

    Args:
        browser: the browser that opens it.
        config: time limits.
        size: width and height of the screen in pixels.
        places: the contract of each application.
        instance_of: returns the application and the task of a template and a seed.
    """

    page = WebPage
    _elements = "__page.elements()"
    instance: WebInstance
    """The started task."""
    _place: Contract

    def __init__(
        self,
        browser: Browser,
        config: EnvironmentConfig,
        size: tuple[int, int],
        places: Mapping[str, Contract],
        instance_of: Callable[[str, int], tuple[str, WebInstance]],
    ) -> None:
        super().__init__(browser, config)
        self._size, self._places, self._instance_of = size, places, instance_of
        self._sid, self._keeps_state = "", False
        self._initial: State = {}

    @property
    def web(self) -> WebPage:
        """Returns the page; raises SandboxFailure before the start."""
        assert isinstance(self._page, WebPage)
        return self._page

    async def outcome(self) -> Outcome:
        """Scores the change of the state since the page settled, or reads the page's own reward.

        Raises:
            TrajectoryFailure: the application reports no states, or the page's reward is invalid.
        """
        if self.instance.task.reward:
            answer = await self.web.evaluate(f"({self.instance.task.reward})")
            done = answer is not None and answer is not False
            return Outcome(done, reward_of(answer) if done else 0.0)
        _, current = await self._place.states(self._sid)
        reward = self.instance.reward(self._initial, current)
        return Outcome(done=reward == 1.0, reward=reward)

    async def states(self) -> tuple[State, State]:
        """Returns the state when the page first settled, and the current state."""
        return self._initial, (await self._place.states(self._sid))[1]

    async def put(self, state: State) -> None:
        """Sets the state as the page itself would, to test a verifier on it; the page does not reload."""
        await self._place.put(self._sid, state)

    async def _start(self, task: GuiTask, seed: int) -> None:
        application, self.instance = self._instance_of(task.template, seed)
        self._instruction = self.instance.instruction
        self.kind = PageKind(*self._size, "", f"{SCRIPT}\n__page.seed({seed});")
        self._place, self._sid = self._places[application], new_session()
        self._keeps_state = not self.instance.task.reward
        if self._keeps_state:
            await self._place.set(self._sid, self.instance.initial)
        await self._open(f"{self._place.origin}{self.instance.page}?sid={self._sid}", "1")
        await self.web.settle(OPENING_MS)
        if self._keeps_state:
            _, self._initial = await self._place.states(self._sid)

    async def _react(self, action: act.Action) -> None:
        await self.web.settle(self._lasts_ms(action, WAIT_MS if action.type == "wait" else ACTION_MS))

    async def _stop(self) -> None:
        await super()._stop()
        if self._keeps_state:
            with contextlib.suppress(SandboxFailure, asyncio.CancelledError):
                await self._place.end(self._sid)


class WebAppReward(OwnOutcome):
    """Rewards 1 as soon as the changes are the wanted ones, and 0 before, so a trajectory ends with success or at its
    step limit."""

    reads = WebAppSandbox


class WebAppConfig(ChromiumConfig):
    """Web applications (docs/webapps.md)."""

    width: Count = 1280
    """Width of the screen, in pixels."""
    height: Count = 720
    """Height of the screen, in pixels."""
    folder: str = ""
    """Folder of the built applications, a subfolder for each; if not set, `webapps` of the work folder."""
    apps: tuple[str, ...] = ()
    """Applications of CUA-Gym-Hub to use; all with tasks if neither this nor `origins` nor `tasks` is set."""
    origins: dict[str, str] = {}  # noqa: RUF012  (pydantic copies it)
    """Addresses of applications on other servers, by name: `http://127.0.0.1:3000`. A page can reach these addresses
    only."""
    tasks: tuple[str, ...] = ()
    """Files of your own tasks, added to the built-in tasks."""


class WebAppEnvironment(ChromiumEnvironment[WebAppConfig]):
    """The tasks of the applications that are used."""

    section = WebAppConfig
    verifier = "webapp"
    sandbox_class = WebAppSandbox
    origin = "flywheel web applications"

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns tasks by template, in the order of the files."""
        return {name: entry_of(file, name) for name, file in self._files.items()}

    @property
    def applications(self) -> list[str]:
        """Names of the used applications."""
        return list(dict.fromkeys(file.application for file in self._files.values()))

    @property
    def served(self) -> list[str]:
        """Lists the applications that this process serves, and that must be built."""
        return [name for name in self.applications if name not in self.config.origins]

    @property
    def folder(self) -> Path:
        """Folder of the built applications."""
        return Path(self.config.folder).expanduser().absolute() if self.config.folder else home() / "webapps"

    def sandbox(self, browser: Browser) -> Sandbox:
        """A sandbox without served applications; a host's own sandboxes have their addresses."""
        return self._sandbox(browser, {})

    def host(self) -> Host:
        """Makes the host of a browser that can only reach these applications; raises FlywheelError if one was not
        built."""
        return WebHost(self._path(), self._sandbox, self._built(), self._origins())

    def probes(self) -> Sequence[Probe]:
        """Checks that applications are built, that applications at other addresses answer, and that there is a
        browser."""
        answer = (Probe("origins answer", self._asked),) if self.config.origins else ()
        return (Probe("web applications", self._examined), *answer, *super().probes())

    def instance(self, template: str, seed: int) -> tuple[str, WebInstance]:
        """Returns the application of a task, and the task with a seed."""
        file = self._files[template]
        return file.application, instance(file, template, seed)

    def _sandbox(self, browser: Browser, places: Mapping[str, Contract]) -> Sandbox:
        return WebAppSandbox(browser, self.config, (self.config.width, self.config.height), places, self.instance)

    @cached_property
    def _files(self) -> Mapping[str, TaskFile]:
        key = f"environments.{self.name}.tasks"
        given = [read_tasks(Path(one).expanduser().absolute(), key) for one in self.config.tasks]
        theirs = {file.application for file in given} | self.config.origins.keys()
        ours = [read_tasks(path) for path in sorted(OURS.glob("*.toml"))]
        wanted = set(self.config.apps) | theirs or {one.application for one in ours}
        if unknown := sorted(set(self.config.apps) - {one.application for one in (*ours, *given)}):
            known = ", ".join(one.application for one in ours)
            raise UsageError(
                f"`environments.{self.name}.apps`: there are no tasks for {unknown[0]}.",
                f"There are for {known}; name a file of your own in `environments.{self.name}.tasks`.",
            )
        found: dict[str, TaskFile] = {}
        for file in (*(one for one in ours if one.application in wanted), *given):
            for name in file.tasks:
                if name in found:
                    raise UsageError(
                        f"`environments.{self.name}.tasks`: two files have a task `{name}`.", "Rename one."
                    )
                found[name] = file
        return found

    def _built(self) -> Mapping[str, Path]:
        return {name: built_in(self.folder, name, f"environments.{self.name}.apps") for name in self.served}

    def _origins(self) -> Mapping[str, tuple[str, str]]:
        key = f"environments.{self.name}.origins"
        return {
            name: (url.rstrip("/"), host_and_port(url, f"{key}.{name}")) for name, url in self.config.origins.items()
        }

    def _asked(self) -> str:
        wrong = list[FlywheelError]()
        for name, (url, _) in self._origins().items():
            try:
                httpx.get(url, timeout=ASK_S, trust_env=False)
            except httpx.HTTPError as error:
                wrong.append(
                    FlywheelError(
                        f"`environments.{self.name}.origins.{name}`: {url} does not answer: {error}.",
                        "Start the application, or correct the address.",
                    )
                )
        if wrong:
            raise all_of(wrong)
        return f"{counted(len(self.config.origins), 'address', 'addresses')}"

    def _examined(self) -> str:
        if not self._files:
            raise FlywheelError(f"`environments.{self.name}` has no tasks.", "Name a file in its `tasks`.")
        origins, built = self._origins(), self._built()
        others = [counted(len(origins), "origin")] if origins else []
        return ", ".join([f"{counted(len(built), 'application')} in {self.folder}", *others])


def webapps_of(config: Config) -> WebAppEnvironment:
    """Returns the web applications of a config; all applications with tasks if it names none."""
    for one in environments_of(config):
        if isinstance(one, WebAppEnvironment):
            return one
    return WebAppEnvironment("webapp", WebAppConfig(kind="webapp"))
