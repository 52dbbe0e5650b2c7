"""The seam between a sandbox and a reward: a task names its verifier, which reads the reward from the sandbox's state.

A verifier is one object for all sandboxes, made without arguments, so it keeps nothing between two calls.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from schemas.observation import Outcome


class Verifier(ABC):
    """State of a sandbox to reward."""

    each_step: ClassVar[bool] = False
    """Whether it must be asked after every step, since only it knows that the task is over. Else it is asked once, when
    the policy says that it is done or the steps are used up."""

    reads: ClassVar[type] = object
    """The class of sandboxes that it can read; a task of an environment with others is refused."""

    @abstractmethod
    async def outcome(self, sandbox: Any) -> Outcome:
        """What the sandbox, one of its own environment, has come to.

        Raises:
            TrajectoryFailure: of boundary `verifier`, if there is no telling.
            SandboxFailure: the sandbox died.
        """
