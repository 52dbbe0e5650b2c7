"""Run the desktop of a server with OSWorld's interface: start it, replace it by a new one, and end it."""

import asyncio
import shlex
from collections.abc import Sequence
from typing import Any

from environments.desktop.boxed import AskFailed, RunningDesktop
from environments.desktop.environment import DesktopEnvironment
from environments.desktop.sandbox import DesktopReward, DesktopSandbox, begin, open_programs
from environments.desktop.tasks.task import Command
from schemas.failure import SandboxFailure
from schemas.observation import Outcome

OPENS = {
    ".txt": "mousepad", ".md": "mousepad", ".csv": "mousepad", ".json": "mousepad", ".py": "mousepad",
    ".log": "mousepad", ".png": "gpicview", ".jpg": "gpicview", ".jpeg": "gpicview", ".gif": "gpicview", "": "pcmanfm",
}  # fmt: skip
"""Program that opens a file, by the end of its name; the empty end is for folders."""


class DesktopMachine:
    """A desktop with some programs, or with a task of this project.

    Args:
        environment: environment of the desktop.
        programs: programs that are opened on a new desktop.
        task: template of the initial task; None for no task.
        seed: seed of the initial task.
    """

    def __init__(
        self, environment: DesktopEnvironment, programs: Sequence[Command], task: str | None = None, seed: int = 0
    ) -> None:
        self.environment = environment
        self._programs, self._task, self._seed = tuple(programs), task, seed
        self._sandbox: DesktopSandbox | None = None
        self._box: RunningDesktop | None = None
        self._changing = asyncio.Lock()

    @property
    def box(self) -> RunningDesktop:
        """Returns the desktop; raises SandboxFailure if it died and was not reset."""
        box = self._sandbox.box if self._sandbox is not None else self._box
        if box is None or not box.alive:
            raise SandboxFailure("the desktop is gone: ask for a fresh one at /flywheel/reset")
        return box

    async def reset(self, task: str | None = None, seed: int | None = None) -> str:
        """Replaces the desktop with a new one and returns the instruction of its task; empty without a task.

        Args:
            task: the new task, if it changes; raises ValueError for an unknown task.
            seed: seed of the task; the previous seed if not given.
        """
        if task is not None and task not in self.environment.entries:
            raise ValueError(f"there is no task {task[:60]!r}: there are {', '.join(self.environment.entries)}")
        async with self._changing:
            await self._end()
            self._task, self._seed = task or self._task, self._seed if seed is None else seed
            if self._task is None:
                self._box = await begin(self.environment.config)
                await open_programs(self._box, self._programs)
                return ""
            self._sandbox = DesktopSandbox(self.environment.config, self.environment.templates)
            await self._sandbox.start(self.environment.task(self._task), self._seed)
            return (await self._sandbox.observe()).instruction

    async def outcome(self) -> Outcome | None:
        """Returns the current outcome of the task by this project's verifier; None without a task."""
        return None if self._sandbox is None else await self._sandbox.verify(DesktopReward())

    async def close(self) -> None:
        """Ends the desktop."""
        async with self._changing:
            await self._end()

    async def _end(self) -> None:
        sandbox, box, self._sandbox, self._box = self._sandbox, self._box, None, None
        if sandbox is not None:
            await sandbox.stop()
        if box is not None:
            await box.end()

    async def windows(self) -> list[dict[str, Any]]:
        """Lists the open windows."""
        return (await self.box.ask("windows"))["windows"]

    async def window(self, name: str, by_class: bool, strict: bool) -> dict[str, Any] | None:
        """Finds the window with this title or class, in part or in full; None if there is none."""

        def called(one: dict[str, Any]) -> bool:
            texts = one["classes"] if by_class else [one["title"]]
            if strict:
                return name in texts
            return any(name.lower() in text.lower() for text in texts)

        return next((one for one in await self.windows() if called(one)), None)

    async def open(self, path: str) -> str | None:
        """Opens a file with the program for its kind, or a program; returns the reason of a failure, or None."""
        command: list[str] | None
        end = path[path.rfind(".") :].lower() if "." in path.rpartition("/")[2] else ""
        there = await self.box.ask("execute", command=["test", "-e", self._place(path)], timeout_s=10)
        if there["returncode"] == 0:
            command = [OPENS[end], self._place(path)] if end in OPENS else None
        else:
            found = await self.box.ask("execute", command=["which", path.split("/")[-1]], timeout_s=10)
            command = [path] if found["returncode"] == 0 else None
        if command is None:
            return f"Nothing here opens {path}"
        try:
            shown = (await self.box.ask("open", command=command, window_s=10))["shown"]
        except AskFailed as error:
            return str(error)
        return None if shown else f"No window of {path} within 10 s"

    def _place(self, path: str) -> str:
        return self.box.home + path[1:] if path.startswith("~") else path


def as_command(given: Any, shell: bool) -> list[str] | str:
    """Parses a command of OSWorld's clients: a list of words, or one text; raises ValueError for anything else.

    OSWorld's server passes both to Python's subprocess. In a list for a shell, the first word is the script, and the
    others are its parameters.
    """
    if isinstance(given, str):
        return given if shell else shlex.split(given)
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        raise ValueError("`command` is a list of words, or a text")
    return ["/bin/sh", "-c", *given] if shell else given
