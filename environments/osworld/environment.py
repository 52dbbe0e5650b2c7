"""Run OSWorld's machines as an environment: their addresses, their reset, and the folder of their tasks.

A task runs on one machine: its steps set the machine up, pyautogui performs actions, and its evaluator scores.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from common.process import theirs
from environments.environment import Environment
from environments.host import Host, NoHost
from environments.keys import keys_of
from environments.openenv.mapping import decode, png_of
from environments.osworld.client import MachineUnable, VmClient
from environments.osworld.code import code_of, names_of
from environments.osworld.scores import SCORES
from environments.osworld.tasks import Metric, TaskFiles, VmTask, read, read_tasks, take, words_of
from environments.sandbox import Sandbox
from environments.verifier import OwnOutcome
from schemas.action import Action, CallUser, Finished, MouseDown, MouseUp, Press, Release
from schemas.config.section import Count, Positive
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, Probe, SandboxFailure, TrajectoryFailure
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask, TaskEntry

ASK_S = 5.0
"""Seconds that a machine may take to answer the check that it is reachable."""


class OsworldConfig(EnvironmentConfig):
    """Machines that run OSWorld's server (docs/desktop.md)."""

    start_timeout_s: Positive = 600.0
    """Maximum seconds to set up a machine for a task."""
    step_timeout_s: Positive = 150.0
    """Maximum seconds for an action and its screenshot."""
    urls: Annotated[tuple[str, ...], Field(min_length=1)]
    """Servers of the machines, such as `http://10.0.0.7:5000`. Each runs one trajectory at a time."""
    folder: str
    """Folder of OSWorld's task files, at any depth; relative to the working directory of the command."""
    token_variable: str | None = None
    """Environment variable with the servers' token. OSWorld's own servers need none."""
    reset: Literal["command", "request", "none"]
    """How a machine returns to its initial state. `command`: by `reset_command`. `request`: by a POST to `reset_path`.
    `none`: not at all, so one trajectory's changes remain for the next."""
    reset_command: tuple[str, ...] = ()
    """Command and arguments that reset a machine, such as a revert to a snapshot; `{url}` is replaced by its
    address."""
    reset_path: str = "/flywheel/reset"
    """Path of the reset request; the default is the path of flywheel's own server."""
    max_steps: Count = 15
    """Step limit of every task; OSWorld's files have none."""
    client_password: str = "password"
    """Password of the machines' user, for tasks that use `sudo`; `osworld-public-evaluation` in OSWorld's images for
    AWS."""
    python: str = "python"
    """Python on the machines that has pyautogui."""
    paste: str = "ctrl v"
    """Keys that paste; text with characters beyond ASCII is pasted from the clipboard."""
    pause_s: Annotated[float, Field(ge=0)] = 1.0
    """Seconds between an action and the screenshot."""
    wait_s: Positive = 2.0
    """Duration of `wait`, in seconds."""

    @field_validator("urls")
    @classmethod
    def _addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"{url!r} is not an address such as http://10.0.0.7:5000")
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


READY_S = 0.5
"""Seconds between two checks whether a machine is up."""


class OsworldSandbox(Sandbox):
    """A sandbox for one task on one machine.

    Args:
        config: the section.
        url: address of the machine's server.
        token: token that the server requires, if any.
        tasks: all playable tasks, by template.
    """

    _task: VmTask

    def __init__(self, config: "OsworldConfig", url: str, token: str | None, tasks: dict[str, VmTask]) -> None:
        super().__init__(config)
        self._config, self._tasks = config, tasks
        self._vm = VmClient(url, token, config.step_timeout_s)
        self._size = (0, 0)
        self._gave_up = False
        self._held: list[Action] = []
        """Releases of the keys and buttons that are held."""

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._task = self._tasks[task.template]
        await self._reset()
        while not await self._vm.ready():
            await asyncio.sleep(READY_S)
        await self._observe(False)  # steps may use the screen's size
        await self._set_up(self._task.steps)
        await self._observe(False)

    async def _reset(self) -> None:
        if self._config.reset == "request":
            await self._vm.post(self._config.reset_path, {})
        elif self._config.reset == "command":
            command = [part.replace("{url}", self._vm.url) for part in self._config.reset_command]
            try:
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE, env=theirs(),
                )  # fmt: skip
            except OSError as error:
                raise SandboxFailure(f"`reset_command`: {command[0]}: {error.strerror}") from error
            try:
                _, complaint = await process.communicate()
            except BaseException:
                process.kill()
                raise
            if process.returncode:
                answer = complaint.decode(errors="replace").strip()[-200:]
                raise SandboxFailure(f"`reset_command` ended with {process.returncode}: {answer}")

    async def _set_up(self, steps: tuple[Any, ...], played: bool = False) -> None:
        """Performs setup steps. Before the policy acts, a step that the machine cannot perform fails the lease, while
        OSWorld may continue without it. Afterwards, such a step is skipped, since the policy may have closed or broken
        a required program."""
        words = words_of(self._config.client_password, *self._size)
        for step in steps:
            try:
                await take(self._vm, step, words)
            except MachineUnable:
                if not played:
                    raise

    async def _observe(self, elements: bool) -> Observation:
        try:
            png, *size = png_of(await self._vm.screenshot())
            if self._size == (0, 0):  # the rollout decodes later screenshots
                await asyncio.to_thread(decode, png)
            self._size = size[0], size[1]
        except ValueError as error:
            raise SandboxFailure(f"the answer of {self._vm.url}/screenshot {error}") from error
        return Observation(png, self._size[0], self._size[1], self._task.instruction)

    async def _perform(self, action: Action) -> str | None:
        if action.type == "wait":
            await asyncio.sleep(self._config.wait_s if action.seconds is None else action.seconds)
            return None
        code = code_of(action, self._size[0], self._size[1], self._config.paste)
        answer = await self._vm.execute([self._config.python, "-c", code])
        if isinstance(action, Press | MouseDown):
            self._held.append(Release(key=action.key) if isinstance(action, Press) else MouseUp(button=action.button))
        await asyncio.sleep(self._config.pause_s)
        if answer.get("returncode") in (0, None):
            return None
        return f"pyautogui: {str(answer.get('error') or 'no reason given').strip().splitlines()[-1][:300]}"

    async def _conclude(self, action: Finished | CallUser) -> None:
        self._gave_up = isinstance(action, CallUser)

    async def outcome(self) -> Outcome:
        """Scores the current state of the machine; it may run steps of the evaluator first.

        Raises:
            TrajectoryFailure: of boundary `verifier`, if the task's evaluator cannot be read.
            SandboxFailure: the machine does not answer.
        """
        await self._set_up(self._task.after, played=True)
        if self._task.infeasible or self._gave_up:
            return Outcome(True, float(self._task.infeasible and self._gave_up))
        scores = list[float]()
        for metric in self._task.metrics:
            scores.append(await self._score(metric))
            if scores[-1] == float(self._task.any_of):  # the other scores cannot change the result
                return Outcome(True, scores[-1])
        return Outcome(True, max(scores) if self._task.any_of else sum(scores) / len(scores))

    async def _score(self, metric: Metric) -> float:
        try:
            sides = [await read(self._vm, one) for one in (metric.result, metric.expected) if one]
            return float(SCORES[metric.score](*sides, **metric.options))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise TrajectoryFailure(
                "verifier", f"score {metric.score} of the task cannot be read: {error!r}"
            ) from error

    async def _stop(self) -> None:
        try:
            if self._config.reset == "none":  # the next trajectory begins on this machine as it is
                for one in dict.fromkeys(self._held):
                    code = code_of(one, self._size[0], self._size[1])
                    await self._vm.execute([self._config.python, "-c", code])
        finally:
            await self._vm.close()


class OsworldReward(OwnOutcome):
    """Returns the score of the task's own evaluator, computed once at the end."""

    each_step = False
    reads = OsworldSandbox


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
        """Returns the supported tasks of the folder."""
        return {
            template: TaskEntry(
                instruction=task.instruction, tags=("osworld", task.domain), max_steps=self.config.max_steps,
                deterministic=False,
            )
            for template, task in self._files.known.items()
        }  # fmt: skip

    @property
    def lineage(self) -> str:
        """Returns the version of OSWorld's format."""
        return f"OSWorld {Path(self.config.folder).name}"

    @property
    def hosts(self) -> int:
        """Number of machines."""
        return len(self.config.urls)

    def host(self) -> Host:
        """Returns the host of the next machine; raises FlywheelError if the token is not in the environment."""
        token, url = self.token_in(self.config.token_variable), self.config.urls[next(self._turn) % self.hosts]
        return NoHost(lambda: OsworldSandbox(self.config, url, token, self._files.known))

    def probes(self) -> Sequence[Probe]:
        """Checks which tasks are supported, and that the machines answer."""
        return Probe("osworld tasks", self._tasks), Probe("osworld machines", lambda: asyncio.run(self._answer()))

    def _tasks(self) -> str:
        if not self._files.known:
            raise FlywheelError(f"`environments.{self.name}.folder`: {self._files.summary()}.", "See docs/desktop.md.")
        return self._files.summary()

    async def _answer(self) -> str:
        sizes = set[str]()
        for url in self.config.urls:
            vm = VmClient(url, self.token_in(self.config.token_variable), ASK_S)
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
