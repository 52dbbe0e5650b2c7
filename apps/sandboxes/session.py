"""Map a session of the protocol to a lease of the pool: messages in, answers out, without a socket.

An episode begins with `reset`, which waits for a limited time if all sandboxes are leased, since a client may begin a
new session before its old sandbox is free. An episode ends with an answer that is `done`, which also frees its sandbox;
until then, a session keeps the sandbox over resets. Messages before or after an episode are refused. A dead sandbox is
reported as `metadata.failure` without a reward, since an outage must not look like a failure of the policy.
"""

import random
import time
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from apps.sandboxes.serving import Serving
from environments.openenv.wire import GuiState, observation_of, observed, refused
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas.action import Action, CallUser, Finished, action_of
from schemas.failure import FlywheelError, SandboxFailure, TrajectoryFailure
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask
from schemas.tables.trajectory import SPLIT_STARTS

RESETS = {"task_id", "seed", "episode_id", "elements", "split", "index"}
INVALID_JSON, UNKNOWN, INVALID = "INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR"
EXECUTION, CAPACITY, SESSION = "EXECUTION_ERROR", "CAPACITY_REACHED", "SESSION_ERROR"
Ended = Literal["done", "finished", "call_user", "truncated", "failure"]
Message = dict[str, Any]
_NOTHING = Observation(b"", 0, 0, "")


@dataclass(slots=True)
class _Episode:
    """A lease and the state of its episode."""

    name: str
    task: GuiTask
    seed: int
    sandbox: Sandbox
    elements: bool
    verifier: Verifier | None
    lease: AsyncExitStack
    """Closing the lease returns the sandbox; a second close does nothing."""
    seen: Observation = _NOTHING
    since: float = field(default_factory=time.monotonic)
    steps: int = 0
    until: float | None = None
    """Time of the episode's end."""

    @property
    def over(self) -> bool:
        """Whether the episode is over."""
        return self.until is not None


class WireSession:
    """One session, whose methods are called in turn; `close` returns the sandbox.

    Args:
        serving: tasks and sandboxes.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._episode: _Episode | None = None
        self._place: str | None = None
        """The environment of the taken sandbox."""

    async def answer(self, message: object) -> Message:
        """Answers a message; a refusal of code `CAPACITY_REACHED` ends the session."""
        fields = message if isinstance(message, dict) else {}
        kind, data = fields.get("type"), fields.get("data", {})
        if kind == "state":
            return {"type": "state", "data": self._state().model_dump()}
        if kind == "mcp":
            failed = {"code": -32601, "message": "No tools are called here: send `step`."}
            return {"type": "mcp", "data": {"jsonrpc": "2.0", "id": None, "error": failed}}
        if kind not in ("reset", "step"):
            return refused(UNKNOWN, f"Unknown message {str(kind)[:40]!r}: send reset, step, state or close.")
        if not isinstance(data, dict):
            return refused(INVALID, "`data` is not an object.", errors=[])
        try:
            asked = self._asked(data) if kind == "reset" else action_of(_without(data, "metadata"))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            errors = [{**one, "msg": one["msg"].removeprefix("Value error, ")} for one in found]
            return refused(INVALID, "Invalid action", errors=errors)
        except ValueError as error:
            return refused(INVALID, str(error), errors=[])
        return await (self._reset(*asked, data) if isinstance(asked, tuple) else self._step(asked))

    async def close(self) -> None:
        """Returns the sandbox."""
        try:
            await self._end()
        finally:
            self._give_back()

    async def _end(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            await episode.lease.aclose()

    def _give_back(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            self._serving.give_back(place)

    async def _reset(self, task: GuiTask, seed: int, data: Mapping[str, Any]) -> Message:
        await self._end()
        if not await self._taken(task.environment):
            size = self._serving.pool.sizes[task.environment]
            reason = f"All {size} sandboxes of {task.environment} are leased, and none came free in time."
            return refused(CAPACITY, reason, active_sessions=self._serving.leased[task.environment], max_sessions=size)
        try:
            episode = await self._begun(task, seed, data)
            episode.seen = await episode.sandbox.observe(episode.elements)
        except TrajectoryFailure as failure:
            await self.close()
            return refused(EXECUTION, f"No sandbox: {failure.reason}", failure=failure.boundary)
        except FlywheelError as error:  # a requirement of the machine that has disappeared since the last check
            await self.close()
            return refused(EXECUTION, f"No sandbox: {error.problem}", failure="sandbox")
        about = {"task_id": task.task_id, "seed": seed, "episode_id": episode.name, "max_steps": task.max_steps}
        return observed(observation_of(episode.seen, episode.elements), None, False, about)

    async def _taken(self, environment: str) -> bool:
        if self._place == environment:
            return True
        self._give_back()
        if await self._serving.take(environment):
            self._place = environment
        return self._place is not None

    def _asked(self, data: Mapping[str, Any]) -> tuple[GuiTask, int]:
        """Reads the task and the seed of a `reset`; raises ValueError if one is unknown."""
        if unknown := sorted(map(str, data.keys() - RESETS)):
            raise ValueError(f"`reset` takes no `{unknown[0][:40]}`: it takes {', '.join(sorted(RESETS))}")
        name = data.get("episode_id")
        if name is not None and not (isinstance(name, str) and 0 < len(name) <= 255):
            raise ValueError("`episode_id` is not a string of 1 to 255 characters")
        if not isinstance(data.get("elements", False), bool):
            raise ValueError("`elements` must be true or false")
        seed = data.get("seed")
        seed = random.randrange(SPLIT_STARTS["validation"]) if seed is None else self._serving.seed(seed)
        if "task_id" in data and data["task_id"] is not None:
            return self._serving.task(data["task_id"]), seed
        split, index = data.get("split") or "train", data.get("index")
        tasks = self._serving.of_split(str(split))
        if index is None and len(self._serving.tasks) == 1:
            return next(iter(self._serving.tasks.values())), seed
        if not tasks:
            raise ValueError(f"no task of the split {str(split)[:40]!r} is served")
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(tasks):
            some = ", ".join(list(self._serving.tasks)[:4])
            raise ValueError(
                f"`reset` names no task: send `task_id`, such as {some}; or `split` and an `index` below {len(tasks)}"
            )
        return tasks[index], seed

    async def _begun(self, task: GuiTask, seed: int, data: Mapping[str, Any]) -> _Episode:
        lease = AsyncExitStack()
        sandbox = await lease.enter_async_context(self._serving.pool.lease(task, seed))
        name = data.get("episode_id") or uuid.uuid4().hex
        elements, verifier = data.get("elements", False), verifier_of(task.verifier)
        self._episode = _Episode(name, task, seed, sandbox, elements, verifier, lease)
        return self._episode

    async def _step(self, action: Action) -> Message:
        episode = self._episode
        if episode is None or episode.over:
            why = "No episode has begun" if episode is None else "The episode is over"
            return refused(EXECUTION, f"{why}: send `reset`.")
        try:
            refusal = await _performed(episode.sandbox, action)
            episode.steps += 1
            outcome, ended = await self._judged(episode, action)
            episode.seen = await episode.sandbox.observe(episode.elements)
        except TrajectoryFailure as failure:
            return await self._failed(episode, failure)
        earned = outcome is not None and (ended is not None or not outcome.counts)
        reward = None if outcome is None else outcome.reward if earned else 0.0
        metadata: dict[str, Any] = {} if refusal is None else {"action_error": refusal}
        if ended is not None:
            await self._over(episode)
            metadata |= {"ended": ended, "truncated": ended == "truncated"}
        return observed(observation_of(episode.seen, episode.elements), reward, ended is not None, metadata)

    async def _judged(self, episode: _Episode, action: Action) -> tuple[Outcome | None, Ended | None]:
        """Runs the verifier if it is due.

        Returns:
            The outcome, and how the episode has ended; each may be None.
        """
        verifier, outcome = episode.verifier, None
        if verifier is not None and verifier.each_step:
            outcome = await episode.sandbox.verify(verifier)
        ended = _ended(episode, action, outcome)
        if ended is not None and verifier is not None and outcome is None:
            outcome = await episode.sandbox.verify(verifier)
        return outcome, ended

    async def _over(self, episode: _Episode) -> None:
        """Frees the sandbox for a waiting session, since some trainers end no session before their next batch."""
        episode.until = time.monotonic()
        await episode.lease.aclose()
        self._give_back()

    async def _failed(self, episode: _Episode, failure: TrajectoryFailure) -> Message:
        """Ends a failed episode with its last observation. An invalid action earns a reward of 0; other failures have
        no reward."""
        self._serving.pool.metrics.deaths += isinstance(failure, SandboxFailure)
        await self._over(episode)
        reward = 0.0 if failure.boundary == "action" else None
        about = {"ended": "failure", "failure": failure.boundary, "reason": failure.reason}
        return observed(observation_of(episode.seen, episode.elements), reward, True, about)

    def _state(self) -> GuiState:
        episode = self._episode
        if episode is None:
            return GuiState()
        return GuiState(
            episode_id=episode.name,
            step_count=episode.steps,
            task_id=episode.task.task_id,
            seed=episode.seed,
            environment=episode.task.environment,
            lease_s=round((episode.until or time.monotonic()) - episode.since, 3),
        )


def _without(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != name}


async def _performed(sandbox: Sandbox, action: Action) -> str | None:
    """Performs an action; returns the reason if it had no effect and the episode continues."""
    if isinstance(action, Finished | CallUser):
        await sandbox.conclude(action)
        return None
    return await sandbox.perform(action)


def _ended(episode: _Episode, action: Action, outcome: Outcome | None) -> Ended | None:
    if outcome is not None and outcome.over:
        return "done" if outcome.done else "truncated"
    if isinstance(action, Finished | CallUser):
        return action.type
    return "truncated" if episode.steps >= episode.task.max_steps else None
