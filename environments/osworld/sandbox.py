"""Run an OSWorld task on one of its machines: its steps set it up, pyautogui acts, its evaluator scores."""

import asyncio
from typing import TYPE_CHECKING, Any

from common.process import theirs
from environments.openenv.mapping import decode, png_of
from environments.osworld.client import MachineUnable, VmClient
from environments.osworld.code import code_of
from environments.osworld.reading import read
from environments.osworld.scores import SCORES
from environments.osworld.setting_up import take, words_of
from environments.osworld.tasks import Metric, VmTask
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas.action import Action, CallUser, Finished
from schemas.failure import SandboxFailure, TrajectoryFailure
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask

if TYPE_CHECKING:
    from environments.osworld.environment import OsworldConfig

READY_S = 0.5
"""Seconds between two checks that a machine is up."""


class OsworldSandbox(Sandbox):
    """One task on one machine.

    Args:
        config: the section.
        url: address of the machine's server.
        token: token that the server requires, if any.
        tasks: all playable tasks, by template.
    """

    def __init__(self, config: "OsworldConfig", url: str, token: str | None, tasks: dict[str, VmTask]) -> None:
        super().__init__(config)
        self._config, self._tasks = config, tasks
        self._vm = VmClient(url, token, config.step_timeout_s)
        self._task: VmTask | None = None
        self._size = (0, 0)
        self._gave_up = False

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._task = self._tasks[task.template]
        await self._reset()
        while not await self._vm.ready():
            await asyncio.sleep(READY_S)
        await self._observe(False)  # steps may name the screen's size
        await self._set_up(self._task.steps)
        await self._observe(False)

    async def _reset(self) -> None:
        """Returns the machine to its initial state, as the config sets it."""
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
        """Takes setup steps. Before the policy has played, a step that the machine is unable to take fails the lease,
        where OSWorld may continue without it. Afterwards it is skipped, since the policy may have closed or broken the
        program it needs."""
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
            if self._size == (0, 0):  # the rollout decodes the later ones
                await asyncio.to_thread(decode, png)
            self._size = size[0], size[1]
        except ValueError as error:
            raise SandboxFailure(f"{self._vm.url}/screenshot {error}") from error
        assert self._task is not None
        return Observation(png, self._size[0], self._size[1], self._task.instruction)

    async def _perform(self, action: Action) -> str | None:
        if action.type == "wait":
            await asyncio.sleep(self._config.wait_s)
            return None
        code = code_of(action, self._size[0], self._size[1], self._config.paste)
        answer = await self._vm.execute([self._config.python, "-c", code])
        await asyncio.sleep(self._config.pause_s)
        if answer.get("returncode") in (0, None):
            return None
        rows = str(answer.get("error") or "no reason given").strip().splitlines()
        return f"pyautogui: {rows[-1][:300]}"

    async def _conclude(self, action: Finished | CallUser) -> None:
        self._gave_up = isinstance(action, CallUser)

    async def outcome(self) -> Outcome:
        """Scores the current state of the machine; it may run steps of the evaluator first.

        Raises:
            TrajectoryFailure: of boundary `verifier`, for a task whose evaluator cannot be read.
            SandboxFailure: the machine does not answer.
        """
        assert self._task is not None
        await self._set_up(self._task.after, played=True)
        if self._task.infeasible or self._gave_up:
            return Outcome(True, float(self._task.infeasible and self._gave_up))
        scores = list[float]()
        for metric in self._task.metrics:
            scores.append(await self._score(metric))
            if self._task.any_of and scores[-1] == 1.0:
                return Outcome(True, 1.0)
            if not self._task.any_of and scores[-1] == 0.0:
                return Outcome(True, 0.0)
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
        await self._vm.close()


class OsworldReward(Verifier):
    """The score of the task's own evaluator, asked once in the end."""

    reads = OsworldSandbox

    async def outcome(self, sandbox: OsworldSandbox) -> Outcome:
        """Scores the machine's current state."""
        return await sandbox.outcome()
