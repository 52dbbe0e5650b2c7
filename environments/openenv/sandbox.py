"""Run an episode on an OpenEnv server as a sandbox: each step's answer has the screen, the reward and the end."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from environments.openenv.client import CAPACITY, INVALID, OpenEnvSession, ServerLost, ServerRefused, StepResponse
from environments.openenv.mapping import decode, filled, found, picture_of, values_of
from environments.sandbox import Sandbox
from environments.verifier import OwnOutcome
from schemas.action import Action, CallUser, Finished, UseTool
from schemas.failure import ActionFailure, SandboxFailure, TrajectoryFailure
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask

if TYPE_CHECKING:
    from environments.openenv.foreign import ForeignConfig

AGAIN_S = 0.2
"""Seconds between two requests to a server without a free session."""
WAITED = 0.9
"""Share of `start_timeout_s` for which a free session is awaited."""


class OpenEnvSandbox(Sandbox):
    """A sandbox for one episode in its own session, which ends with the lease.

    Args:
        config: the section, which defines how messages are read and written.
        session: makes a new session at each call.
    """

    has_tools = True

    def __init__(self, config: "ForeignConfig", session: Callable[[], OpenEnvSession]) -> None:
        super().__init__(config)
        if config.actions:
            self.can = f"the environment takes {', '.join(config.actions)}"
        self._config, self._session = config, session
        self._client = session()
        self._answer: StepResponse | None = None
        self._seen = Observation(b"", 0, 0, "")
        self._instruction = ""
        self._takes = frozenset[str]()
        self._rewards = 0.0

    async def outcome(self) -> Outcome:
        """Returns the outcome in the last answer; raises TrajectoryFailure of boundary `verifier` for an invalid
        reward."""
        answer = self._answer
        assert answer is not None
        summed = self._config.rewards == "summed"
        if answer.done and answer.reward is None and not summed:
            raise TrajectoryFailure("verifier", "the episode is done, and its `reward` is null")
        reward = (self._rewards if summed else answer.reward or 0.0) / self._config.full_reward
        if not -1.0 <= reward <= 1.0:
            problem = f"a reward of {reward:g}, and rewards are in [-1, 1] (`full_reward` is the reward of a success)"
            raise TrajectoryFailure("verifier", problem)
        truncated = answer.done and found(_data(answer), self._config.truncated) is True
        ended_by_us = answer.metadata.get("ended") in ("finished", "call_user")
        return Outcome(answer.done and not truncated and not ended_by_us, reward, truncated)

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._instruction, self._takes = task.instruction, self._config.takes(task.template)
        await self._take("reset", await self._begun(self._config.reset_of(task.template, seed)))
        assert self._answer is not None
        if self._answer.done:
            raise SandboxFailure("the reset already ended the episode: `done` is true")

    async def _begun(self, fields: dict[str, Any]) -> StepResponse:
        """Returns the answer to a reset in a new session; retries while the server has no free session."""
        until = asyncio.get_running_loop().time() + WAITED * self._config.start_timeout_s
        while True:
            try:
                await self._client.open()
                return await self._client.reset(fields)
            except ServerLost as error:
                raise SandboxFailure(str(error)) from error
            except ServerRefused as error:
                if error.code != CAPACITY or asyncio.get_running_loop().time() + AGAIN_S > until:
                    raise SandboxFailure(f"{self._client.place} refuses the reset: {error}") from error
            await self._client.close()
            await asyncio.sleep(AGAIN_S)
            self._client = self._session()

    async def _observe(self, elements: bool) -> Observation:
        return self._seen

    async def _perform(self, action: Action) -> str | None:
        if self._answer is not None and self._answer.done:
            return None  # a judge scores this task, and the screen stays
        try:
            answer = await self._sent(action)
        except ActionFailure as failure:
            if not isinstance(action, UseTool):
                raise
            return failure.reason
        await self._take(action.type, answer)
        assert self._answer is not None
        refused = found(_data(self._answer), self._config.action_error)
        return str(refused)[:400] if refused else None

    async def _conclude(self, action: Finished | CallUser) -> None:
        over = self._answer is not None and self._answer.done
        if not over and (not self._config.actions or action.type in self._config.actions):
            await self._take(action.type, await self._sent(action))

    async def _sent(self, action: Action) -> StepResponse:
        try:
            return await self._client.step(self._written(action))
        except ServerLost as error:
            raise SandboxFailure(str(error)) from error
        except ServerRefused as error:
            if error.code == INVALID:
                what = f"tool {action.name[:80]!r}" if isinstance(action, UseTool) else f"such {action.type}"
                raise ActionFailure(f"the environment takes no {what}: {error.message}"[:400]) from error
            raise SandboxFailure(f"{self._client.place} refuses {action.type}: {error}") from error

    def _written(self, action: Action) -> dict[str, Any]:
        if not self._config.actions:
            return action.model_dump()
        template = self._config.actions.get(action.type)
        if template is None and isinstance(action, UseTool):
            raise ActionFailure(f"there is no tool {action.name[:80]!r}: {self.can}")
        if template is None:
            key = "`environments.NAME.actions` has no message for it"
            raise ActionFailure(f"this environment cannot perform {action.type}: {key}")
        return filled(template, values_of(action, self._seen.width, self._seen.height))

    async def _take(self, what: str, answer: StepResponse) -> None:
        """Processes an answer; raises TrajectoryFailure if the answer reports a failure or its screen cannot be
        read."""
        if (boundary := answer.metadata.get("failure")) is not None:
            raise _failure(str(boundary), str(answer.metadata.get("reason") or "no reason given")[:400])
        shown = found(answer.observation, self._config.screenshot)
        if what == "tool" and shown is None:  # a tool's answer may have no screen, and the last one stays
            self._answer, self._rewards = answer, self._rewards + (answer.reward or 0.0)
            return
        try:
            png, width, height = picture_of(shown)
            if what == "reset" or answer.done:  # the rollout decodes the other screens
                await asyncio.to_thread(decode, png)
        except ValueError as error:
            has = ", ".join(sorted(answer.observation)[:12]) or "nothing"
            where = f"the answer to {what}: its `{self._config.screenshot}`"
            raise SandboxFailure(f"{where} {error}; the observation has {has}") from error
        instruction = found(answer.observation, self._config.instruction)
        if isinstance(instruction, str) and instruction:
            self._instruction = instruction
        self._answer, self._rewards = answer, self._rewards + (answer.reward or 0.0)
        self._seen = Observation(png, width, height, self._instruction, takes=self._takes)

    async def _stop(self) -> None:
        await self._client.close()

    async def _abandon(self) -> None:
        self._client.drop()


class OpenEnvReward(OwnOutcome):
    """Returns the reward of the server's last answer to a step."""

    reads = OpenEnvSandbox


def _data(answer: StepResponse) -> dict[str, Any]:
    """Returns an answer's observation with its metadata, for dotted paths."""
    return {**answer.observation, "metadata": answer.metadata}


def _failure(boundary: str, reason: str) -> TrajectoryFailure:
    """Converts a server's failure: the boundaries `action` and `verifier` stay, and any other becomes `sandbox`."""
    if boundary == "action":
        return ActionFailure(reason)
    return TrajectoryFailure("verifier", reason) if boundary == "verifier" else SandboxFailure(reason)
