"""Define sandboxes whose state is JSON that can be set and read, and a verifier of a task's checks on it."""

from abc import abstractmethod

from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas.failure import TrajectoryFailure
from schemas.observation import Outcome
from schemas.world import Setup, State, score


class StatefulSandbox(Sandbox):
    """A sandbox whose initial state a `Setup` sets."""

    setup: Setup | None = None
    """Setup of the started task; None if it has a reward of its own."""

    @property
    @abstractmethod
    def state(self) -> State:
        """Returns the current state."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """Returns whether the state is final."""


class StateReward(Verifier):
    """Rewards 1 as soon as all checks hold, 0 once the state is final."""

    each_step = True
    reads = StatefulSandbox

    async def outcome(self, sandbox: StatefulSandbox) -> Outcome:
        """Scores only the state."""
        if sandbox.setup is None:
            raise TrajectoryFailure("verifier", "the task names no checks on the sandbox's state")
        reward = score(sandbox.setup.checks, sandbox.state)
        return Outcome(done=reward == 1.0 or sandbox.over, reward=reward)
