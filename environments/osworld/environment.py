"""Run OSWorld's machines as an environment: their addresses, their reset, and the folder of their tasks."""

import asyncio
import itertools
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from environments.environment import Environment
from environments.host import Host, NoHost
from environments.keys import keys_of
from environments.openenv.mapping import png_of
from environments.osworld.client import VmClient
from environments.osworld.code import names_of
from environments.osworld.sandbox import OsworldSandbox
from environments.osworld.tasks import TaskFiles, read_tasks
from schemas.check import Probe
from schemas.config.section import Count, Positive
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, SandboxFailure, TrajectoryFailure
from schemas.tables.task import TaskEntry

ASK_S = 5.0
"""Seconds that a machine may take to answer the check that it is reachable."""


class OsworldConfig(EnvironmentConfig):
    """Machines that run OSWorld's server (docs/desktop.md)."""

    start_timeout_s: Positive = 600.0
    """Seconds for a machine to be set up for a task."""
    step_timeout_s: Positive = 150.0
    """Seconds for an action and its screen."""
    urls: Annotated[tuple[str, ...], Field(min_length=1)]
    """The machines' servers, such as `http://10.0.0.7:5000`: each plays one trajectory at a time."""
    folder: str
    """Folder of OSWorld's task files, at any depth; relative to the working directory of the command."""
    token_variable: str | None = None
    """The environment variable with the servers' token; OSWorld's own servers require none."""
    reset: Literal["command", "request", "none"]
    """How a machine returns to its initial state: by `reset_command`, by a POST to `reset_path`, or not at all, so that
    one trajectory's changes remain for the next."""
    reset_command: tuple[str, ...] = ()
    """A command with its arguments, such as one that reverts to a snapshot; `{url}` is the machine's address."""
    reset_path: str = "/flywheel/reset"
    """Path of a reset request; the default is our own server's."""
    max_steps: Count = 15
    """Step limit of every task, since the files have none."""
    client_password: str = "password"
    """The password of the machines' user, which tasks give to `sudo`; `osworld-public-evaluation` in OSWorld's images
    for AWS."""
    python: str = "python"
    """The machines' Python that has pyautogui."""
    paste: str = "ctrl v"
    """The keys that paste; text beyond ASCII goes through the clipboard."""
    pause_s: Annotated[float, Field(ge=0)] = 1.0
    """Seconds to wait after an action before the screenshot."""
    wait_s: Positive = 2.0
    """Seconds that `wait` takes."""

    @field_validator("urls")
    @classmethod
    def _addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"{url!r} is no address like http://10.0.0.7:5000")
        if len(set(urls)) < len(urls):
            raise ValueError("an address is there twice, and a machine plays one trajectory at a time")
        return urls

    @model_validator(mode="after")
    def _whole(self) -> "OsworldConfig":
        if (self.reset == "command") != bool(self.reset_command):
            raise ValueError("reset_command is for reset = 'command', which needs one")
        try:
            names_of(keys_of(self.paste))
        except TrajectoryFailure as error:
            raise ValueError(f"paste: {error.reason}") from error
        return self


class OsworldEnvironment(Environment[OsworldConfig]):
    """The tasks of a folder, on the machines that the config names."""

    section = OsworldConfig
    verifier = "osworld"
    sandbox_class = OsworldSandbox
    lists_elements = False

    def __init__(self, name: str, config: OsworldConfig) -> None:
        super().__init__(name, config)
        self._turn = itertools.count()

    @cached_property
    def _files(self) -> TaskFiles:
        return read_tasks(Path(self.config.folder).expanduser(), f"environments.{self.name}.folder")

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """The supported tasks of the folder."""
        return {
            template: TaskEntry(
                instruction=task.instruction, tags=("osworld", task.domain), max_steps=self.config.max_steps,
                deterministic=False,
            )
            for template, task in self._files.known.items()
        }  # fmt: skip

    @property
    def lineage(self) -> str:
        """OSWorld's format."""
        return f"OSWorld {Path(self.config.folder).name}"

    @property
    def hosts(self) -> int:
        """Machines."""
        return len(self.config.urls)

    @property
    def sandboxes(self) -> int:
        """One in each."""
        return 1

    def host(self) -> Host:
        """The next machine; raises FlywheelError if the token is not in the environment."""
        token, url = self._token(), self.config.urls[next(self._turn) % self.hosts]
        return NoHost(lambda: OsworldSandbox(self.config, url, token, self._files.known))

    def probes(self) -> Sequence[Probe]:
        """Checks which tasks are supported, and that the machines answer."""
        return Probe("osworld tasks", self._tasks), Probe("osworld machines", lambda: asyncio.run(self._answer()))

    def _token(self) -> str | None:
        if (variable := self.config.token_variable) is None:
            return None
        if not (token := os.environ.get(variable)):
            raise FlywheelError(f"`environments.{self.name}.token_variable`: {variable} holds no token.", "Set it.")
        return token

    def _tasks(self) -> str:
        if not self._files.known:
            raise FlywheelError(f"`environments.{self.name}.folder`: {self._files.summary()}.", "See docs/desktop.md.")
        return self._files.summary()

    async def _answer(self) -> str:
        sizes = set[str]()
        for url in self.config.urls:
            vm = VmClient(url, self._token(), ASK_S)
            try:
                _, width, height = png_of(await vm.screenshot())
            except (SandboxFailure, ValueError) as error:
                reason = error.reason if isinstance(error, SandboxFailure) else f"{url}/screenshot {error}"
                raise FlywheelError(
                    f"`environments.{self.name}.urls`: {reason}.", "Start the machine, or correct the address."
                ) from error
            finally:
                await vm.close()
            sizes.add(f"{width} x {height}")
        return f"{len(self.config.urls)} answer, with {' and '.join(sorted(sizes))} pixels"
