"""Define an actor: one policy at one temperature, shared by concurrent trajectories.

Requests that arrive while the policy answers a batch form the next batch. The batch therefore grows with the load, and
a single request does not wait. A policy with `max_concurrency` gets each request separately, so a slow answer delays
only one trajectory.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from models.completion import Completion
from models.policy import Context, Policy
from rollout.threads import DaemonThreads
from schemas.failure import FlywheelError, ServerFailure

MAX_BATCH = 64
CLOSE_S = 5.0
"""Maximum seconds to wait for a running batch when the actor closes. The actor does not wait for a server."""


class Acts(Protocol):
    """Interface of an actor that chooses one step at a time."""

    kind: str
    dialect: str
    needs_elements: bool
    needs_hints: bool

    async def act(self, context: Context) -> Completion:
        """Choose a step for a context; raise TrajectoryFailure if the actor cannot."""
        ...


class Actor:
    """Batches requests of concurrent trajectories into calls of one policy.

    Args:
        policy: the first policy. The actor keeps its kind, dialect and needs.
        temperature: sampling temperature; 0 is greedy.
        newer: called before each batch. It returns a policy with newer weights or None. Running trajectories continue
            with the newer policy.
    """

    def __init__(
        self, policy: Policy, temperature: float = 0.0, newer: Callable[[], Policy | None] | None = None
    ) -> None:
        self.kind: str = policy.kind
        self.dialect, self.needs_elements = policy.dialect, policy.needs_elements
        self.needs_hints = policy.needs_hints
        self._policy, self._temperature, self._newer = policy, temperature, newer
        self._batch = 1 if policy.max_concurrency else MAX_BATCH
        self._free = max(1, policy.max_concurrency)
        self._close_s = 0.0 if policy.remote else CLOSE_S
        self._waiting: list[tuple[Context, asyncio.Future[Completion]]] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._begun: Policy | None = None
        self._renewing = threading.Lock()
        self._threads = DaemonThreads(self._free, "policy")

    def __enter__(self) -> "Actor":
        return self

    def __exit__(self, *_: Any) -> None:
        """Stop the policy's threads."""
        self._threads.close(self._close_s)

    async def act(self, context: Context) -> Completion:
        """Return the policy's completion with its version. Raise `ServerFailure` if the policy's server failed."""
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((context, answer))
        if self._free:
            self._free -= 1
            task = asyncio.create_task(self._serve())
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        completion = await answer
        if completion.failure:
            raise ServerFailure(completion.failure)
        return completion

    async def _serve(self) -> None:
        """Answer requests in batches until no request waits."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
                await self._answer([(context, answer) for context, answer in batch if not answer.done()])
        finally:
            self._free += 1

    async def _answer(self, batch: Sequence[tuple[Context, asyncio.Future[Completion]]]) -> None:
        """Ask the policy about a batch; if this fails, ask about each context separately, so that a context fails only
        its trajectory."""
        try:
            completions = await self._threads.run(self._act, [context for context, _ in batch])
            answered = list(zip(batch, completions, strict=True))
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, FlywheelError):
                for one in batch:
                    await self._answer([one])
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
        else:
            for (_, answer), completion in answered:
                if not answer.done():
                    answer.set_result(completion)

    def _act(self, contexts: Sequence[Context]) -> list[Completion]:
        with self._renewing:
            if self._newer is not None:
                self._policy = self._newer() or self._policy
                if self._policy is not self._begun:
                    self._policy.begin()
                    self._begun = self._policy
            policy = self._policy
        completions = policy.act(contexts, self._temperature)
        return [one if one.version else replace(one, version=policy.version) for one in completions]
