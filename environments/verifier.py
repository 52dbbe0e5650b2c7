"""Define the interface between a sandbox and a reward: a task names its verifier, which reads the sandbox's state.

A verifier is one object for all sandboxes, made without arguments, so it keeps no state between two calls.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from schemas.observation import Outcome


class Verifier(ABC):
    """State of a sandbox to reward."""

    each_step: ClassVar[bool] = False
    """Whether it must be asked after every step, since only it knows that the task is over. Otherwise it is asked once,
    when the policy finishes or the steps are used up."""

    reads: ClassVar[type] = object
    """The class of sandboxes that it can read; a task of an environment with others is refused."""

    @abstractmethod
    async def outcome(self, sandbox: Any) -> Outcome:
        """Scores the current state of a sandbox of its own environment.

        Raises:
            TrajectoryFailure: of boundary `verifier`, if the state allows no verdict.
            SandboxFailure: the sandbox died.
        """
