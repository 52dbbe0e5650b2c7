"""Define the interface between a sandbox and a reward: a task names its verifier, which reads the sandbox's state.

A verifier is one object for all sandboxes, made without arguments, so it keeps no state between two calls.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from schemas.observation import Outcome


class Verifier(ABC):
    """Computes a reward from a sandbox's state."""

    each_step: ClassVar[bool] = False
    """Whether the verifier must run after every step, since only the verifier knows that the task is over. Otherwise,
    it runs once, when the policy finishes or the steps are used up."""

    reads: ClassVar[type] = object
    """Class of sandboxes that the verifier can read; tasks with other sandboxes are refused."""

    @abstractmethod
    async def outcome(self, sandbox: Any) -> Outcome:
        """Scores the current state of a sandbox of its own environment.

        Raises:
            TrajectoryFailure: of boundary `verifier`, if the state allows no verdict.
            SandboxFailure: the sandbox died.
        """


class OwnOutcome(Verifier):
    """Returns the outcome that the sandbox's own method `outcome` computes after every step."""

    each_step = True

    async def outcome(self, sandbox: Any) -> Outcome:
        """Returns the sandbox's outcome."""
        return await sandbox.outcome()
