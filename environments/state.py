"""Sandboxes whose state is JSON that can be set and read, and the verifier that compares it with a task's checks."""

from abc import abstractmethod

from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas.failure import TrajectoryFailure
from schemas.observation import Outcome
from schemas.world import Setup, State, score


class StatefulSandbox(Sandbox):
    """A sandbox that a `Setup` brings to its initial state."""

    setup: Setup | None = None
    """Of the task that was started in it; None where it has a reward of its own."""

    @property
    @abstractmethod
    def state(self) -> State:
        """The state now."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether nothing can change it any more."""


class StateReward(Verifier):
    """1 as soon as all checks hold, 0 once nothing can change any more."""

    each_step = True
    reads = StatefulSandbox

    async def outcome(self, sandbox: StatefulSandbox) -> Outcome:
        """From the state alone."""
        if sandbox.setup is None:
            raise TrajectoryFailure("verifier", "the task names no checks on the sandbox's state")
        reward = score(sandbox.setup.checks, sandbox.state)
        return Outcome(done=reward == 1.0 or sandbox.over, reward=reward)
