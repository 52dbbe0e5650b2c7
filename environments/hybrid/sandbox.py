"""Lease a hybrid sandbox: a page that shows the workspace, and a bubblewrap sandbox with its files and its shell.

A policy acts in two ways. On the screen, it uses clicks and keys on the page, including its terminal and editor. With
tools (`terminal`, `read_file`, `write_file`, `navigate`), the next screenshot shows the effects. The page holds no
state except the text of its fields. It reports each click, and this module performs it. Downloads and uploads are such
clicks, too, so they do not depend on the browser's download support.

The test of a policy's program, and additional cases, run in a fresh sandbox without other processes of the policy.
"""

import asyncio
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.process import memory_mb
from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig
from environments.chromium.page import PageKind
from environments.chromium.sandbox import BrowserSandbox
from environments.hybrid.bubblewrap import DISKS, EVERYTHING, WORK, Mounts, SandboxLimits, owner
from environments.hybrid.files import Files
from environments.hybrid.tasks.task import ClickOn, HybridGoal, HybridInstance, Move, Template, Trial
from environments.hybrid.terminal import TerminalSession
from environments.hybrid.web import page_of
from environments.hybrid.workspace import Workspace
from schemas import action as act
from schemas.failure import ActionFailure
from schemas.tables.task import GuiTask


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a sandbox at one time."""

    files: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """Contents by path of each file that the goal or the initial state names, and of all files if the goal removes a
    file. None for a path that is no plain file or too large. A path that is not listed does not exist."""
    whole: bool = True
    """Whether all files could be listed."""
    folders: frozenset[str] = frozenset()
    executable: frozenset[str] = frozenset()
    """Executable files among those of the goal and of the initial state."""
    uploads: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    page: str = ""
    opened: str | None = None
    answer: str | None = None
    answers: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    """The answers of a program's function to the cases of its trial, by path of the program."""


def misses(goal: HybridGoal, begun: Mapping[str, bytes], now: Snapshot) -> Iterator[str]:
    """Yields each difference between the state and the goal.

    Args:
        goal: goal of the task.
        begun: the initial files.
        now: the current state.
    """
    for path, wanted in goal.files.items():
        if wanted is None and path in now.files:
            yield f"{path} is there"
        if wanted is not None and not _same(wanted, now.files.get(path), path in goal.names):
            yield f"{path} is not as asked"
    gone = {begun[path] for path, wanted in goal.files.items() if wanted is None and path in begun}
    for path in now.files.keys() - begun.keys() - goal.files.keys():
        if now.files[path] in gone:
            yield f"{path} has the content that was to be removed"
    if gone and not now.whole:
        yield "too many files to check that it is gone"
    programs = {trial.path for trial in goal.trials}
    for path, content in begun.items():
        if path not in goal.files and path not in goal.free and path not in programs and now.files.get(path) != content:
            yield f"{path} was changed"
    for path in goal.folders:
        if path not in now.folders:
            yield f"there is no folder {path}"
    for path in goal.executable:
        if path not in now.executable:
            yield f"{path} cannot be run"
    if goal.executable:
        yield from (f"{path} can be run, too" for path in begun if path in now.executable - {*goal.executable})
    for form, wanted in goal.uploads.items():
        if not _same(wanted, now.uploads.get(form)):
            yield f"{form} did not get the expected file"
    if goal.page is not None and now.page != goal.page:
        yield f"the page is {now.page}"
    if goal.opened is not None and now.opened != goal.opened:
        yield f"{goal.opened} is not open"
    if goal.answer is not None and _plain(now.answer or "") != _plain(goal.answer):
        yield "the answer is another"
    for trial in goal.trials:
        if now.answers.get(trial.path) != tuple(answer for _, answer in trial.cases):
            yield f"{trial.path} answers wrong"


def _same(wanted: bytes | str, found: bytes | None, names: bool = False) -> bool:
    if found is None:
        return False
    if isinstance(wanted, bytes):
        return wanted == found
    try:
        lines = _lines(found.decode())
    except UnicodeDecodeError:
        return False
    return _lines(wanted) == ([line.removeprefix("/work/").removeprefix("./") for line in lines] if names else lines)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


TRIAL_S = 5.0
"""Time limit in seconds for the test and all cases together."""
_ASK = """
import importlib.util, json, sys
cases = json.load(open("/tmp/cases.json"))
sys.path.insert(0, "/work")
spec = importlib.util.spec_from_file_location("program", sys.argv[1])
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)

def plain(answer):
    if isinstance(answer, tuple):
        return {"tuple": [plain(one) for one in answer]}
    return [plain(one) for one in answer] if isinstance(answer, list) else answer

answers = [plain(getattr(program, sys.argv[2])(*case)) for case in cases]
json.dump(answers, open("/tmp/answers.json", "w"))
"""
"""Script that runs the cases. JSON writes a tuple as a list, so the script checks the type first."""


async def answers_of(trial: Trial, sources: Mapping[str, bytes], limits: SandboxLimits) -> tuple[Any, ...]:
    """Runs the program's function on the trial's cases.

    Args:
        trial: the program and its cases.
        sources: the program, the original test, and the other Python files of the folder, by path.
        limits: limits of the sandbox.

    Returns:
        The answers; empty if the test fails or a case has no answer.

    Raises:
        SandboxFailure: no sandbox starts, or it is killed.
    """
    terminal = await TerminalSession.open(limits, TRIAL_S)
    try:
        work, temporary = (Files(disk, owner()) for disk in terminal.bubblewrap.disks[:2])
        for path, content in sources.items():
            work.write(path, content)
        temporary.write("cases.json", json.dumps([case for case, _ in trial.cases]).encode())
        ask = shlex.join(("python3", "-I", "-S", "-c", _ASK, trial.path, trial.function))
        test = f"{shlex.join(('python3', trial.test))} > /dev/null && " if trial.test else ""
        ran = await terminal.run(test + ask)
        answers = json.loads(temporary.read("answers.json")) if ran.status == 0 else None
    except (ActionFailure, OSError, ValueError, RecursionError):
        return ()
    finally:
        await terminal.close()
    return tuple(answers) if isinstance(answers, list) else ()


MOST_LINKS = 8
"""Maximum length of a chain of links that is followed."""
HERE = Path(__file__).parent


class HybridSandbox(BrowserSandbox):
    """A sandbox for one task, with a page and a sandboxed shell.

    Args:
        browser: the browser that opens the page.
        config: time limits.
        size: width and height of the screen in pixels.
        templates: the available tasks, by name.
        limits: limits of the shell's sandbox.
        command_s: seconds that a command may take.
        mounts: further folders of the shell's sandbox.
    """

    _elements = "world.__workspace.elements()"
    instance: HybridInstance
    """The started task."""
    workspace: Workspace

    def __init__(
        self,
        browser: Browser,
        config: ChromiumConfig,
        size: tuple[int, int],
        templates: Mapping[str, Template],
        limits: SandboxLimits,
        command_s: float,
        mounts: Mounts = EVERYTHING,
    ) -> None:
        super().__init__(browser, config)
        self.kind = PageKind(*size, (HERE / "workspace.css").as_uri(), "")
        self._templates = templates
        self._jail_limits, self._command_s, self._mounts = limits, command_s, mounts
        self._moves: Iterator[Move] = iter(())
        self._terminal: TerminalSession | None = None
        self._disks: dict[str, Files] = {}
        """Disks by their path in the sandbox."""
        self._tried: dict[str, tuple[dict[str, bytes], tuple[Any, ...]]] = {}
        """The tried sources of each program, by its path, and its answers."""
        self.concluded: act.Finished | act.CallUser | None = None
        """The policy's final action, if it had one."""

    @property
    def memory_mb(self) -> float | None:
        """Returns the memory of the sandboxed shell's processes."""
        terminal = self._terminal  # another thread calls this, while the sandbox may end
        return None if terminal is None else memory_mb(terminal.bubblewrap.pid)

    async def snapshot(self) -> Snapshot:
        """Captures the parts of the current state that the task needs; runs each version of a program once."""
        workspace, goal, begun = self.workspace, self.instance.goal, self.instance.contents
        files, programs = workspace.files, [trial.path for trial in goal.trials]
        named = {*goal.files, *begun, *programs, *goal.folders, *goal.executable}
        others = files.paths() if None in goal.files.values() else []
        seen = {path: files.seen(path) for path in named.union(others or ())}
        contents = {path: one.content for path, one in seen.items() if one}
        for path, one in seen.items():
            if one and one.link is not None and (path not in named or isinstance(goal.files.get(path), str)):
                contents[path] = self._linked(f"{WORK}/{path}")
        for trial in goal.trials:
            if contents.get(trial.path) is None:
                self._tried.pop(trial.path, None)
                continue
            sources = self._sources(trial)
            if self._tried.get(trial.path, ({},))[0] != sources:
                self._tried[trial.path] = sources, await answers_of(trial, sources, self._jail_limits)
        return Snapshot(
            files=contents,
            whole=others is not None,
            folders=frozenset(path for path, one in seen.items() if one and one.folder),
            executable=frozenset(path for path, one in seen.items() if one and one.executable),
            uploads=workspace.uploads,
            page=workspace.page,
            opened=workspace.opened,
            answer=self.concluded.content if isinstance(self.concluded, act.Finished) else None,
            answers={path: answers for path, (_, answers) in self._tried.items()},
        )

    def _linked(self, at: str) -> bytes | None:
        """Reads the file at the end of a chain of links on the sandbox's disks; the system itself follows no link."""
        for _ in range(MOST_LINKS):
            disk = next((disk for disk in self._disks if at.startswith(f"{disk}/")), None)
            try:
                seen = self._disks[disk].seen(at.removeprefix(f"{disk}/")) if disk else None
            except OSError:  # its path is too long
                return None
            if seen is None or seen.link is None:
                return seen.content if seen else None
            at = os.path.normpath(os.path.join(os.path.dirname(at), seen.link))
        return None

    def _sources(self, trial: Trial) -> dict[str, bytes]:
        """Returns the sources of a trial: the program, the current Python files in its folder, and the original
        test."""
        files, found, names = self.workspace.files, dict[str, bytes](), {trial.path}
        with suppress(OSError):
            names |= {one.name for one in files.listed() if one.name.endswith(".py")}
        for name in names:
            with suppress(OSError, ValueError):  # the program cannot import unreadable files either
                found[name] = files.read(name)
        return found | {path: content for path, content in self.instance.contents.items() if path == trial.test}

    async def aimed(self, move: ClickOn) -> act.Click | None:
        """Returns the click on the named element; None if the screen has no such element."""
        elements = (await self.observe(elements=True)).elements
        found = next((one for one in elements if one.interactive and one.name == move.name), None)
        return None if found is None else act.Click(x=found.centre[0], y=found.centre[1])

    async def _hint(self) -> act.Action | None:
        move = next(self._moves, None)
        return await self.aimed(move) if isinstance(move, ClickOn) else move

    async def _made(self, task: GuiTask, seed: int) -> tuple[str, HybridInstance]:
        """Returns the instruction and the instance of a task."""
        return self._templates[task.template].instance(task.template, seed)

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._instruction, instance = await self._made(task, seed)
        opening = self._open((HERE / "workspace.html").as_uri(), "world.__workspace.ready()")
        shell = asyncio.ensure_future(TerminalSession.open(self._jail_limits, self._command_s, self._mounts))
        try:
            await opening
        finally:
            self._terminal = await shell  # a shell cannot be ended during its start
        opened = zip(DISKS, self._terminal.bubblewrap.disks, strict=True)
        self._disks = {name: Files(disk, owner()) for name, disk in opened}
        files = self._disks[WORK]
        for path, content in instance.contents.items():
            files.write(path, content)
        self._moves = iter(instance.script)
        self.instance, self.workspace = instance, Workspace(files, self._terminal, instance.web)
        await self._show()

    async def _perform(self, action: act.Action) -> str | None:
        space = self.workspace
        match action:
            case act.Terminal():
                error = await space.run(action.command)
            case act.ReadFile():
                error = space.read(action.path)
            case act.WriteFile():
                error = space.write(action.path, action.content)
            case act.Navigate():
                error = space.go(page_of(action.content))
            case act.NavigateBack():
                error = space.back()
            case _:
                return await super()._perform(action)
        await self._show()
        return error

    async def _react(self, action: act.Action) -> None:
        await asyncio.sleep(self._lasts_ms(action, 0) / 1000)
        for event in await self._page.evaluate("world.__workspace.events()"):
            await self.workspace.do([str(part) for part in event])
        await self._show()

    async def _conclude(self, action: act.Finished | act.CallUser) -> None:
        self.concluded = action

    async def _stop(self) -> None:
        terminal, self._terminal = self._terminal, None
        try:
            if terminal is not None:
                await terminal.close()
        finally:
            await super()._stop()

    async def _abandon(self) -> None:
        if self._terminal is not None:
            self._terminal.bubblewrap.end("its sandbox hung")
        await super()._abandon()

    async def _show(self) -> None:
        await self._page.evaluate(f"world.__workspace.show({json.dumps(self.workspace.view())})")
