"""Play task bundles in the form of UDA-Gym on a desktop: a setup, a policy on the screen, and a check of the results.

The order of a trajectory is: `exec/` and `hidden/` are copied, `setup.sh` runs, `hidden/` is removed and proved gone,
the policy acts, the programs that it started end, `gt/` is copied, `check.sh` runs. A check that ends with an error,
or without a finite score, is no verdict, and never 0. Before the first trajectory of a bundle, a desktop of its own
proves that the untouched start scores less than 1.
"""

import base64
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from environments.desktop.boxed import AskFailed, RunningDesktop
from environments.desktop.environment import DesktopConfig, DesktopEnvironment, require_programs
from environments.desktop.isolation import require_walls
from environments.desktop.sandbox import FIRST_REST_S, DesktopSandbox, begin, open_programs
from environments.desktop.tasks.task import DesktopTask
from environments.desktop.uda.bundles import CHECK, EXEC, HIDDEN, SETUP, TRUTH, UdaBundle, entries_of, read_uda_bundles
from environments.desktop.uda.verdict import NO_VERDICT, PYTHON_SAFE, WORKSPACE, Proofs, no_verdict, score_of
from environments.host import Host, NoHost
from environments.verifier import Verifier
from schemas.config.section import Count, Positive
from schemas.failure import SandboxFailure, TrajectoryFailure, UsageError
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask, TaskEntry

HIDDEN_AT, SETUP_AT, CHECK_AT, STATE_AT = (f"{WORKSPACE}/.uda_{name}" for name in ("hidden", "setup", "check", "state"))
PACKED = f"{WORKSPACE}/.uda_state.tar"
COMMAND_S = 20.0
"""Time limit of a short command in the desktop, in seconds."""
_SAFE = (*PYTHON_SAFE, f"UDA_GYM_HARNESS_STATE_DIR={STATE_AT}")


class UdaConfig(DesktopConfig):
    """Task bundles in the form of UDA-Gym, on a desktop (docs/uda-gym.md)."""

    bundles: str = ""
    """Folder of bundles, or one bundle."""
    workspace_mb: Count = 256
    """Size of the bundle's folder in the desktop, in MB."""
    max_steps: Count = 50
    """Maximum steps of a trajectory."""
    terminal: bool = True
    """Open a terminal in the bundle's folder after the setup."""
    start_timeout_s: Positive = 300.0
    """Maximum seconds that a sandbox may take to start a task, the setup included."""
    step_timeout_s: Positive = 300.0
    """Maximum seconds that a sandbox may take for an action, a screenshot or the check."""


class UdaTrial:
    """A desktop on which a bundle's setup has run.

    Args:
        box: the desktop. bundle: the bundle.
    """

    def __init__(self, box: RunningDesktop, bundle: UdaBundle) -> None:
        self._box, self._bundle = box, bundle
        self._state = b""
        self._before: frozenset[int] = frozenset()

    @classmethod
    async def start(cls, box: RunningDesktop, bundle: UdaBundle) -> "UdaTrial":
        """Runs the setup, and removes what is not for the policy; raises SandboxFailure with the reason."""
        trial = cls(box, bundle)
        await trial._put(WORKSPACE, bundle.files(EXEC))
        await trial._put(HIDDEN_AT, bundle.files(HIDDEN))
        await trial._put(SETUP_AT, {SETUP: (bundle.script(SETUP), 0o755)})
        await trial._run(["mkdir", "-p", STATE_AT, f"{WORKSPACE}/results"])
        done = await trial._script(f"{SETUP_AT}/{SETUP}")
        if done.get("timed_out") or done["returncode"]:
            ended = "takes too long" if done.get("timed_out") else f"exits with {done['returncode']}"
            raise SandboxFailure(f"{bundle.bundle_id}: {SETUP} {ended}: {_tail(done)}")
        await trial._run(["tar", "-cf", PACKED, "-C", STATE_AT, "."])
        _, trial._state = await box.content("read", path=PACKED)
        await trial._conceal()
        await box.ask("rest", rest_s=FIRST_REST_S)
        trial._before = frozenset(await trial._processes())
        return trial

    async def _conceal(self) -> None:
        """Removes the setup, the hidden files and the harness's state, and checks that no program keeps them open."""
        await self._remove(HIDDEN_AT, SETUP_AT, STATE_AT, PACKED)
        left = await self._run(["find", WORKSPACE, "-maxdepth", "1", "-name", ".uda_*"])
        kept = await self._run(
            ["sh", "-c", f"readlink /proc/[0-9]*/fd/* /proc/[0-9]*/cwd 2>/dev/null | grep -F {WORKSPACE}/.uda_ || true"]
        )
        if left["stdout"].strip() or kept["stdout"].strip():
            names = sorted({*left["stdout"].split(), *kept["stdout"].splitlines()})
            raise SandboxFailure(f"{self._bundle.bundle_id}: {names[0]} is still there after {SETUP}")

    async def score(self) -> float:
        """Ends the programs that the policy started, and runs the check.

        Returns:
            The score, from 0 to 1.

        Raises:
            TrajectoryFailure: of boundary `verifier`, if the check has no verdict.
        """
        started = sorted({*await self._processes()} - self._before)
        if started:
            await self._run(["sh", "-c", f"kill -9 {' '.join(map(str, started))} 2>/dev/null; true"])
        await self._remove(f"{WORKSPACE}/{TRUTH}", CHECK_AT, STATE_AT, PACKED)
        await self._put(WORKSPACE, {PACKED.rpartition("/")[2]: (self._state, 0o600)})
        await self._run(["sh", "-c", f"mkdir -p {STATE_AT} && tar -xf {PACKED} -C {STATE_AT}"])
        await self._run(["find", WORKSPACE, "-xtype", "l", "-delete"])  # a link to the truth would equal it
        await self._put(f"{WORKSPACE}/{TRUTH}", self._bundle.files(TRUTH))
        await self._put(CHECK_AT, {CHECK: (self._bundle.script(CHECK), 0o755)})
        done = await self._script(f"{CHECK_AT}/{CHECK}")
        await self._remove(f"{WORKSPACE}/{TRUTH}", CHECK_AT, STATE_AT, PACKED)
        if done.get("timed_out"):
            raise no_verdict(f"it takes longer than {self._bundle.timeout_s:g} s")
        if done["returncode"]:
            raise no_verdict(f"it exits with {done['returncode']}: {_tail(done)}")
        return score_of(done["stdout"])

    async def _remove(self, *paths: str) -> None:
        """Removes files and folders, also those that their modes protect."""
        named = " ".join(paths)
        await self._run(["sh", "-c", f"chmod -R u+rwX {named} 2>/dev/null; rm -rf {named}"])

    async def _script(self, path: str) -> dict[str, Any]:
        return await self._run(["env", *_SAFE, "bash", path], self._bundle.timeout_s)

    async def _run(self, command: list[str], timeout_s: float = COMMAND_S) -> dict[str, Any]:
        try:
            return await self._box.ask("execute", command=command, timeout_s=timeout_s, cwd=WORKSPACE)
        except AskFailed as error:
            raise SandboxFailure(f"{self._bundle.bundle_id}: {command[0]}: {error}") from error

    async def _put(self, folder: str, files: Mapping[str, tuple[bytes, int]]) -> None:
        """Writes files below a folder of the desktop."""
        listed = [
            {"path": f"{folder}/{name}", "content": base64.b64encode(content).decode(), "mode": mode}
            for name, (content, mode) in files.items()
        ]
        try:
            await self._box.ask("set_out", files=[{"path": f"{folder}/"}, *listed])
        except AskFailed as error:
            raise SandboxFailure(f"{self._bundle.bundle_id}: the files do not fit: {error}") from error

    async def _processes(self) -> list[int]:
        done = await self._run(["sh", "-c", "ls /proc | grep '^[0-9]'"])
        return [int(one) for one in done["stdout"].split()]


def _tail(done: Mapping[str, Any]) -> str:
    return (str(done.get("stderr", "")).strip() or str(done.get("stdout", "")).strip())[-200:] or "no output"


class UdaSandbox(DesktopSandbox):
    """One bundle on one desktop.

    Args:
        environment: the environment. proofs: proofs of its bundles, which all sandboxes of a host share.
    """

    def __init__(self, environment: "UdaEnvironment", proofs: Proofs) -> None:
        super().__init__(environment.settings, {})
        self._environment, self._proofs = environment, proofs
        self._trial: UdaTrial | None = None
        self._text = ""

    async def _start(self, task: GuiTask, seed: int) -> None:
        bundle, settings = self._environment.bundles[task.template], self._environment.settings
        await self._proofs.once(bundle.bundle_id, lambda: self._environment.prove(bundle))
        self._text = bundle.instruction
        self._opened = await begin(settings, {WORKSPACE: settings.workspace_mb})
        self._trial = await UdaTrial.start(self._opened, bundle)
        if settings.terminal:
            terminal = ("xterm", "-title", "Terminal", "-e", "sh", "-c", f"cd {WORKSPACE}; exec bash")
            await open_programs(self._opened, (terminal,))

    async def _observe(self, elements: bool) -> Observation:
        shown, png = await self.box.content("look")
        return Observation(png, shown["width"], shown["height"], self._text)

    async def score(self) -> float:
        """Returns the check's score; raises TrajectoryFailure without a verdict, and SandboxFailure before a start."""
        if self._trial is None:
            raise SandboxFailure("the sandbox is not started")
        return await self._trial.score()


class UdaEnvironment(DesktopEnvironment):
    """Tasks of bundles."""

    section = UdaConfig
    verifier = "uda"
    sandbox_class = UdaSandbox
    origin = None

    @property
    def settings(self) -> UdaConfig:
        """Returns the section."""
        return cast(UdaConfig, self.config)

    @cached_property
    def bundles(self) -> Mapping[str, UdaBundle]:
        """Returns the bundles by their ids; raises UsageError for an incomplete one."""
        key = f"environments.{self.name}.bundles"
        return read_uda_bundles(self.settings.bundles, key)

    @property
    def templates(self) -> Mapping[str, DesktopTask]:
        """Returns no templates: a bundle is one task without variants."""
        return {}

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns an entry for each bundle."""
        return entries_of(self.bundles, "desktop", self.settings.max_steps)

    @property
    def lineage(self) -> str:
        """Returns the origin of the tasks."""
        return f"uda-gym {Path(self.settings.bundles).name}"

    def host(self) -> Host:
        """Returns a host without a process; raises UsageError if desktops have no namespaces."""
        require_programs()
        if self.settings.isolation != "namespaces":
            raise UsageError(
                f"`environments.{self.name}.isolation` is none: bundles run scripts, and write to {WORKSPACE}.",
                "Set it to namespaces.",
            )
        require_walls()
        proofs = Proofs()
        return NoHost(lambda: UdaSandbox(self, proofs))

    async def prove(self, bundle: UdaBundle) -> None:
        """Checks that the untouched start of a bundle has a score below 1; raises UsageError, or SandboxFailure."""
        key = f"environments.{self.name}.bundles"
        box = await begin(self.settings, {WORKSPACE: self.settings.workspace_mb})
        try:
            trial = await UdaTrial.start(box, bundle)
            score = await trial.score()
        except TrajectoryFailure as error:
            if error.boundary != "verifier":
                raise
            problem = f"`{key}`: {bundle.folder / CHECK} has {NO_VERDICT} on the untouched start: {error.reason}."
            raise UsageError(problem, "Make it print a score and exit with 0, or move the bundle away.") from error
        finally:
            await box.end()
        if score >= 1:
            problem = f"`{key}`: {bundle.folder / CHECK} scores {score:g} on the untouched start."
            raise UsageError(problem, "Make the check fail before the task is done, or move the bundle away.")


class UdaReward(Verifier):
    """Rewards the score of a bundle's check."""

    reads = UdaSandbox

    async def outcome(self, sandbox: UdaSandbox) -> Outcome:
        """Runs the check."""
        return Outcome(done=True, reward=await sandbox.score())
