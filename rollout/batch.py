"""Perform the actions of one reply in order.

The rest of a reply is not performed after an action that the environment refuses, after an action that ends the
trajectory, and after the end of the task.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from common.text import storable
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas.action import TERMINAL, Action, CallUser, Finished, Note
from schemas.failure import ActionFailure
from schemas.observation import Outcome
from schemas.refusal import Refusal


@dataclass(slots=True)
class ActionBatch:
    """The actions of one reply, at least one, and the effect of those that were tried."""

    actions: Sequence[Action]
    outcome: Outcome
    """Outcome of the task: before the reply, then after the last action that was tried."""
    screen: str
    """sha256 of the screenshot before the reply."""
    tried: int = 0
    """Number of actions that were tried, from the first; the last of them may have been refused."""
    frames: list[str] = field(default_factory=list[str])
    """sha256 of the screenshot after each action that was tried, except the last."""
    error: str | None = None
    """Reason why an action was not performed, with its place among several actions."""
    act_ms: float = 0.0
    """Milliseconds of the actions and of the verifier, without the screenshots."""

    @property
    def reached(self) -> bool:
        """Checks whether an action of the reply is for the environment, which may change its screen."""
        return not all(isinstance(action, Note) for action in self.actions)

    @property
    def last(self) -> Action:
        """The last action that was tried."""
        return self.actions[self.tried - 1]

    async def perform(self, sandbox: Sandbox, verifier: Verifier | None, observe: Callable[[], Awaitable[str]]) -> None:
        """Perform the actions until one is refused or the trajectory ends.

        Args:
            sandbox: the started sandbox.
            verifier: the task's verifier, which runs after each action if it judges each step.
            observe: records the screenshot between two actions, and returns its sha256.

        Raises:
            ActionFailure: the environment cannot perform such an action.
            TrajectoryFailure: the sandbox died or hung, or the verifier failed.
        """
        for action in self.actions:
            if self.tried:
                noted = isinstance(self.last, Note)
                self.frames.append((self.frames or [self.screen])[-1] if noted else await observe())
            self.tried += 1
            if isinstance(action, Note):
                continue  # the environment does not get it
            clock = time.perf_counter()
            try:
                await self._try(sandbox, action)
            except ActionFailure as failure:
                self.error = self._placed(failure.reason)
                raise ActionFailure(self.error) from failure
            if verifier is not None and verifier.each_step:
                self.outcome = await sandbox.verify(verifier)
            self.act_ms += (time.perf_counter() - clock) * 1000
            if self.error or self.outcome.done or self.outcome.truncated or action.type in TERMINAL:
                return

    async def _try(self, sandbox: Sandbox, action: Action) -> None:
        if isinstance(action, Finished | CallUser):
            await sandbox.conclude(action)
        elif refused := await sandbox.perform(action):
            self.error = self._placed(refused)

    def _placed(self, reason: str) -> str:
        """Add the place of the tried action, and the number of later ones, to the reason why it was not performed."""
        return Refusal(storable(reason), self.tried, len(self.actions)).text
