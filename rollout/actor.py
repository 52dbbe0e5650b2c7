"""An actor: a policy at one temperature, as all trajectories that run at the same time ask it.

Requests that arrive while a batch is being answered form the next batch, so the batch grows with the load by itself and
a lone request never waits for company. A policy with `max_concurrency` gets each request by itself instead, so that a
slow answer holds up its own trajectory only.
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
"""How long a batch is waited for that is under way when the actor is closed; a server is not waited for."""


class Acts(Protocol):
    """Whoever can be asked for one step at a time."""

    kind: str
    dialect: str
    needs_elements: bool

    async def act(self, context: Context) -> Completion:
        """What it does; raises TrajectoryFailure where it can do nothing."""
        ...


class Actor:
    """Answers one step at a time, whoever asks.

    Args:
        policy: who acts at first; kind, dialect and what must be shown stay its own.
        temperature: 0 is greedy.
        newer: asked before each batch for a policy with newer weights, or None; trajectories that are under way go on
            under these.
    """

    def __init__(
        self, policy: Policy, temperature: float = 0.0, newer: Callable[[], Policy | None] | None = None
    ) -> None:
        self.kind: str = policy.kind
        self.dialect, self.needs_elements = policy.dialect, policy.needs_elements
        self._policy, self._temperature, self._newer = policy, temperature, newer
        self._batch = 1 if policy.max_concurrency else MAX_BATCH
        self._free = max(1, policy.max_concurrency)
        self._close_s = 0.0 if policy.max_concurrency else CLOSE_S
        self._waiting: list[tuple[Context, asyncio.Future[Completion]]] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._begun: Policy | None = None
        self._renewing = threading.Lock()
        self._threads = DaemonThreads(self._free, "policy")

    def __enter__(self) -> "Actor":
        return self

    def __exit__(self, *_: Any) -> None:
        """Lets the policy's threads go."""
        self._threads.close(self._close_s)

    async def act(self, context: Context) -> Completion:
        """The policy's completion, which names its version; raises `ServerFailure` where the policy's server failed."""
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
        """Answers batch after batch until nobody waits."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
                batch = [(context, answer) for context, answer in batch if not answer.done()]
                try:
                    completions = await self._threads.run(self._act, [context for context, _ in batch])
                except Exception as error:
                    if len(batch) > 1 and not isinstance(error, FlywheelError):
                        await self._each_alone(batch)
                        continue
                    for _, answer in batch:
                        if not answer.done():
                            answer.set_exception(error)
                    continue
                for (_, answer), completion in zip(batch, completions, strict=True):
                    if not answer.done():
                        answer.set_result(completion)
        finally:
            self._free += 1

    async def _each_alone(self, batch: Sequence[tuple[Context, asyncio.Future[Completion]]]) -> None:
        """Asks for each of a batch that failed by itself, so that one context fails none but its own trajectory."""
        for context, answer in batch:
            try:
                (completion,) = await self._threads.run(self._act, [context])
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
                continue
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
