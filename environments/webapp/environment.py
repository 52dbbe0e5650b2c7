"""Run web applications as an environment: built applications that this process serves, and others at addresses in the
config."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import httpx

from common.process import home
from common.text import counted
from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.host import Host
from environments.registry import environments_of
from environments.sandbox import Sandbox
from environments.webapp.host import AppAddress, WebHost, built_in, host_and_port
from environments.webapp.sandbox import WebAppSandbox
from environments.webapp.tasks import OURS, TaskFile, WebInstance, entry_of, instance, read_tasks
from schemas.check import Probe
from schemas.config import Config
from schemas.config.section import Count
from schemas.failure import FlywheelError, UsageError, all_of
from schemas.tables.task import TaskEntry

ASK_S = 5.0
"""Seconds that an application at another address may take to answer the check that it is reachable."""


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

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns tasks by template, in the order of the files."""
        return {name: entry_of(file, name) for name, file in self._files.items()}

    @property
    def lineage(self) -> str:
        """Returns this project's lineage, or a user's file."""
        return "flywheel web applications"

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

    def _sandbox(self, browser: Browser, places: Mapping[str, AppAddress]) -> Sandbox:
        return WebAppSandbox(browser, self.config, (self.config.width, self.config.height), places, self.instance)

    @cached_property
    def _files(self) -> Mapping[str, TaskFile]:
        """Returns the file of each task."""
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
        key = f"environments.{self.name}.apps"
        return {name: built_in(self.folder, name, key) for name in self.served}

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
        others = f", {counted(len(origins), 'origin')}" if origins else ""
        return f"{counted(len(built), 'application')} in {self.folder}{others}"


def webapps_of(config: Config) -> WebAppEnvironment:
    """Returns the web applications of a config; all applications with tasks if it names none."""
    for one in environments_of(config):
        if isinstance(one, WebAppEnvironment):
            return one
    return WebAppEnvironment("webapp", WebAppConfig(kind="webapp"))
