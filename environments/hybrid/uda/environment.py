"""Play task bundles in the form of UDA-Gym in a hybrid workspace: a shell, an editor and a list of files.

The bundle, its order and its verdict are those of the kind `uda` (`environments.desktop.uda`). A workspace has no
display and no services: a bundle whose setup names `DISPLAY`, leaves a program running or needs root is refused with
the file or field. `/tmp_workspace` is the workspace's folder `/work`.

The check runs in a fresh sandbox with copies of the policy's files, so no process of the policy sees `gt/`. A link of
the policy is copied as the file that it leads to, before `gt/` is there.
"""

import asyncio
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, cast

from pydantic import Field

from environments.chromium.browser import Browser
from environments.desktop.uda.bundles import (
    CHECK,
    EXEC,
    HIDDEN,
    META,
    SETUP,
    TRUTH,
    UdaBundle,
    entries_of,
    read_uda_bundles,
)
from environments.desktop.uda.verdict import NO_VERDICT, PYTHON_SAFE, STATE, WORKSPACE, Proofs, no_verdict, score_of
from environments.hybrid.bubblewrap import DISKS, WORK, Mounts, SandboxLimits, owner
from environments.hybrid.environment import HybridConfig, HybridEnvironment
from environments.hybrid.files import Files
from environments.hybrid.sandbox import HERE, HybridSandbox
from environments.hybrid.tasks.task import HybridGoal, HybridInstance
from environments.hybrid.terminal import Ran, TerminalSession
from environments.hybrid.workspace import Workspace
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas.config.section import Count, Positive
from schemas.failure import ActionFailure, Probe, SandboxFailure, TrajectoryFailure, UsageError
from schemas.observation import Outcome
from schemas.tables.task import GuiTask, TaskEntry

ON_A_DESKTOP = 'Play it with `kind = "uda"`, on a desktop.'
HIDDEN_AT, SETUP_AT, CHECK_AT, STATE_AT = (f".uda_{name}" for name in ("hidden", "setup", "check", "state"))
ERRORS = "errors.txt"
"""File in `/tmp` with the standard error of a script."""
MOUNTS = Mounts(links=((WORK, WORKSPACE),))
_DISPLAY = re.compile(r"^[^#\n]*\bDISPLAY\b", re.MULTILINE)


class UdaHybridConfig(HybridConfig):
    """Task bundles in the form of UDA-Gym, in a workspace with a shell (docs/uda-gym.md)."""

    bundles: str = ""
    """Folder of bundles, or one bundle."""
    max_steps: Count = 50
    """Maximum steps of a trajectory."""
    disk_mib: Annotated[int, Field(ge=4)] = 256
    """Maximum size in MiB of the files of a bundle and of those that a shell writes, in memory."""
    start_timeout_s: Positive = 300.0
    """Maximum seconds that a sandbox may take to start a task, the setup included."""
    step_timeout_s: Positive = 300.0
    """Maximum seconds that a sandbox may take for an action, a screenshot or the check."""


@dataclass(frozen=True, slots=True)
class UdaWorkspace:
    """A sandbox in which a bundle's setup has run.

    Args:
        terminal: its shell. files: its folder. state: files that the setup leaves for the check.
    """

    terminal: TerminalSession
    files: Files
    state: Mapping[str, tuple[bytes, int]]

    @classmethod
    async def start(cls, bundle: UdaBundle, limits: SandboxLimits, command_s: float) -> "UdaWorkspace":
        """Runs the setup, and removes what is not for the policy; raises SandboxFailure with the reason."""
        terminal = await TerminalSession.open(limits, bundle.timeout_s, MOUNTS)
        try:
            files, temporary = (Files(disk, owner()) for disk in terminal.bubblewrap.disks[:2])
            _put(files, "", bundle.files(EXEC))
            _put(files, HIDDEN_AT, bundle.files(HIDDEN))
            _put(files, SETUP_AT, {SETUP: (bundle.script(SETUP), 0o755)})
            files.make_folder(STATE_AT)
            files.make_folder("results")
            ran = await _script(terminal, f"{SETUP_AT}/{SETUP}")
            if ran.status != 0:
                ended = f"exits with {ran.status}" if ran.status is not None else ran.note
                raise SandboxFailure(f"{bundle.bundle_id}: {SETUP} {ended}: {_tail(ran, temporary)}")
            if len(terminal.bubblewrap.pids()) > 3:  # bubblewrap's first process and the two shells
                problem = f"{bundle.folder / SETUP} leaves a program running, and the check would not reach it."
                raise UsageError(f"{bundle.bundle_id}: {problem}", ON_A_DESKTOP)
            state = _all_of(files, STATE_AT)
            with suppress(OSError):
                temporary.remove(ERRORS)
            removed = " ".join(f"{WORK}/{one}" for one in (HIDDEN_AT, SETUP_AT, STATE_AT))
            gone = await terminal.run(f"chmod -R u+rwX {removed} 2>/dev/null; rm -rf {removed}; cd {WORK}")
            left = [one for one in files.paths() or () if one.startswith(".uda_")]
            if gone.status != 0 or left:
                raise SandboxFailure(f"{bundle.bundle_id}: {left[0] if left else SETUP} is still there after {SETUP}")
            terminal.command_s = command_s
        except ActionFailure as error:
            await terminal.close()
            raise SandboxFailure(f"{bundle.bundle_id}: {SETUP}: {error.reason}") from error
        except BaseException:
            await terminal.close()
            raise
        return cls(terminal, files, state)

    async def score(self, bundle: UdaBundle, limits: SandboxLimits) -> float:
        """Runs the check on copies of the files, in a fresh sandbox.

        Returns:
            The score, from 0 to 1.

        Raises:
            TrajectoryFailure: of boundary `verifier`, if the check has no verdict.
        """
        found = _all_of(self.files, "")
        terminal = await TerminalSession.open(limits, bundle.timeout_s, MOUNTS)
        try:
            files, temporary = (Files(disk, owner()) for disk in terminal.bubblewrap.disks[:2])
            files.make_folder("results")
            files.make_folder(STATE_AT)
            for folder in self.files.paths() or ():
                if _is_of_policy(folder) and (seen := self.files.seen(folder)) is not None and seen.folder:
                    files.make_folder(folder)
            _put(files, "", {name: one for name, one in found.items() if _is_of_policy(name)})
            _put(files, STATE_AT, self.state)
            _put(files, TRUTH, bundle.files(TRUTH))
            _put(files, CHECK_AT, {CHECK: (bundle.script(CHECK), 0o755)})
            ran = await _script(terminal, f"{CHECK_AT}/{CHECK}")
            if ran.status is None:
                raise no_verdict(ran.note)
            if ran.status:
                raise no_verdict(f"it exits with {ran.status}: {_tail(ran, temporary)}")
            return score_of(ran.output)
        except ActionFailure as error:
            raise no_verdict(error.reason) from error
        finally:
            await terminal.close()


def _is_of_policy(path: str) -> bool:
    """Whether a path is neither in the folder of the truth nor in one of this module."""
    return path.partition("/")[0] != TRUTH and not path.startswith(".uda_")


def _put(files: Files, folder: str, contents: Mapping[str, tuple[bytes, int]]) -> None:
    for name, (content, mode) in contents.items():
        try:
            files.write(f"{folder}/{name}".lstrip("/"), content, mode)
        except OSError as error:
            raise SandboxFailure(f"the files do not fit: {name}: {error}") from error


def _all_of(files: Files, folder: str) -> dict[str, tuple[bytes, int]]:
    """Returns content and mode of the files below a folder, by path; links as the files that they lead to.

    Raises:
        TrajectoryFailure: of boundary `policy`, if there are too many to list.
    """
    paths = files.paths()
    if paths is None:
        raise ActionFailure("it has too many files, or folders that are too deep")
    found = dict[str, tuple[bytes, int]]()
    for path in paths:
        if folder and not path.startswith(f"{folder}/"):
            continue
        one = _at(files, path)
        if one is not None:
            found[path.removeprefix(f"{folder}/") if folder else path] = one
    return found


MOST_LINKS = 8
"""Maximum length of a chain of links that is followed."""


def _at(files: Files, path: str) -> tuple[bytes, int] | None:
    """Returns content and mode of a file, also at the end of a chain of links in the workspace; None for no file."""
    for _ in range(MOST_LINKS):
        try:
            seen = files.seen(path)
        except OSError:
            return None
        if seen is None or seen.link is None:
            return None if seen is None or seen.content is None else (seen.content, 0o755 if seen.executable else 0o644)
        target = seen.link if seen.link.startswith("/") else f"{WORK}/{Path(path).parent}/{seen.link}"
        target = re.sub(rf"^{WORKSPACE}(?=/|$)", WORK, target)
        if not target.startswith(f"{WORK}/") or ".." in target.split("/"):
            return None
        path = str(Path(target).relative_to(WORK))
    return None


async def _script(terminal: TerminalSession, path: str) -> Ran:
    """Runs a script of the bundle; its standard error goes to `ERRORS`."""
    variables = shlex.join((*PYTHON_SAFE, f"UDA_GYM_HARNESS_STATE_DIR={WORKSPACE}/{STATE}"))
    return await terminal.run(f"cd {WORKSPACE}; env {variables} bash {WORKSPACE}/{path} 2>/tmp/{ERRORS}")


def _tail(ran: Ran, temporary: Files) -> str:
    """Returns the end of what a script wrote, its errors first."""
    errors = ""
    with suppress(OSError, ValueError):
        errors = temporary.read(ERRORS).decode(errors="replace").strip()
    return (errors or ran.output.strip())[-200:] or "no output"


class UdaHybridSandbox(HybridSandbox):
    """One bundle in a workspace.

    Args:
        browser: the browser that opens the page. environment: the environment.
    """

    def __init__(self, browser: Browser, environment: "UdaHybridEnvironment") -> None:
        config = environment.settings
        super().__init__(browser, config, config.size, {}, config.limits, config.command_s, MOUNTS)
        self._environment = environment
        self._started: tuple[UdaBundle, UdaWorkspace] | None = None

    async def _start(self, task: GuiTask, seed: int) -> None:
        bundle, settings = self._environment.bundles[task.template], self._environment.settings
        await self._environment.proofs.once(bundle.bundle_id, lambda: self._environment.prove(bundle))
        self._instruction = bundle.instruction
        self.instance = HybridInstance((), HybridGoal(), ())
        opening = self._open((HERE / "workspace.html").as_uri(), "world.__workspace.ready()")
        setting_up = asyncio.ensure_future(UdaWorkspace.start(bundle, settings.limits, settings.command_s))
        try:
            await opening
        finally:
            space = await setting_up  # a shell cannot be ended during its start
            self._terminal = space.terminal
        self._started = bundle, space
        opened = zip(DISKS, space.terminal.bubblewrap.disks, strict=True)
        self._disks = {name: Files(disk, owner()) for name, disk in opened}
        self.workspace = Workspace(space.files, space.terminal, self.instance.web)
        await self._show()

    async def score(self) -> float:
        """Returns the check's score; raises TrajectoryFailure without a verdict, and SandboxFailure before a start."""
        if self._started is None:
            raise SandboxFailure("the sandbox is not started")
        bundle, space = self._started
        return await space.score(bundle, self._environment.settings.limits)


class UdaHybridReward(Verifier):
    """Rewards the score of a bundle's check."""

    reads: ClassVar[type] = UdaHybridSandbox

    async def outcome(self, sandbox: UdaHybridSandbox) -> Outcome:
        """Runs the check."""
        return Outcome(done=True, reward=await sandbox.score())


class UdaHybridEnvironment(HybridEnvironment):
    """Tasks of bundles."""

    section = UdaHybridConfig
    verifier = "uda-hybrid"
    sandbox_class = UdaHybridSandbox
    origin = None

    @property
    def settings(self) -> UdaHybridConfig:
        """Returns the section."""
        return cast(UdaHybridConfig, self.config)

    @cached_property
    def proofs(self) -> Proofs:
        """Returns the proofs of the bundles, which all sandboxes share."""
        return Proofs()

    @cached_property
    def bundles(self) -> Mapping[str, UdaBundle]:
        """Returns the bundles by their ids; raises UsageError for an incomplete one, or one that needs a desktop."""
        key = f"environments.{self.name}.bundles"
        found = read_uda_bundles(self.settings.bundles, key)
        for bundle in found.values():
            _require_no_desktop(bundle, key)
        return found

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns an entry for each bundle."""
        return entries_of(self.bundles, "hybrid", self.settings.max_steps)

    @property
    def lineage(self) -> str:
        """Returns the origin of the tasks."""
        return f"uda-gym {Path(self.settings.bundles).name}"

    def sandbox(self, browser: Browser) -> Sandbox:
        """Makes a sandbox with a page and a sandboxed shell."""
        return UdaHybridSandbox(browser, self)

    def probes(self) -> Sequence[Probe]:
        """Checks the isolation, the bundles and the browser."""
        isolation, *others = super().probes()
        return (isolation, Probe("bundles", lambda: f"{len(self.bundles)} bundles"), *others)

    async def prove(self, bundle: UdaBundle) -> None:
        """Checks that the untouched start of a bundle has a score below 1; raises UsageError, or SandboxFailure."""
        key, limits = f"environments.{self.name}.bundles", self.settings.limits
        space = await UdaWorkspace.start(bundle, limits, self.settings.command_s)
        try:
            score = await space.score(bundle, limits)
        except TrajectoryFailure as error:
            if error.boundary != "verifier":
                raise
            problem = f"`{key}`: {bundle.folder / CHECK} has {NO_VERDICT} on the untouched start: {error.reason}."
            raise UsageError(problem, "Make it print a score and exit with 0, or move the bundle away.") from error
        finally:
            await space.terminal.close()
        if score >= 1:
            problem = f"`{key}`: {bundle.folder / CHECK} scores {score:g} on the untouched start."
            raise UsageError(problem, "Make the check fail before the task is done, or move the bundle away.")


def _require_no_desktop(bundle: UdaBundle, key: str) -> None:
    """Raises UsageError for a bundle that needs what a workspace lacks, with its file or field."""
    for name in (SETUP, CHECK):
        text = bundle.script(name).decode(errors="replace")
        if (found := _DISPLAY.search(text)) is not None:
            line = text.count("\n", 0, found.end()) + 1
            problem = f"line {line} names DISPLAY, and a workspace has no display"
            raise UsageError(f"`{key}`: {bundle.folder / name}: {problem}.", ON_A_DESKTOP)
    if bundle.profile.endswith("root"):
        problem = f"`runtime.profile` is {bundle.profile!r}, and scripts in a workspace have no root"
        raise UsageError(f"`{key}`: {bundle.folder / META}: {problem}.", "Move the bundle away.")
