"""Who plays: a policy (or the explorer) behind the call that a session makes."""

from models.policy import Context, Policy, Reply
from rollout.batching import BatchedPolicy
from schemas.failure import ServerFailure
from schemas.observation import Observation, Turn


class BatchedActor:
    """A policy at one temperature, its steps batched over all plays that run at the same time."""

    def __init__(self, name: str, policy: Policy, temperature: float) -> None:
        self.name = name
        self.version = policy.version
        self.dialect = policy.dialect
        self.needs_elements = policy.needs_elements
        self._temperature = temperature
        self._batched = BatchedPolicy(policy)

    async def choose(self, instruction: str, turns: tuple[Turn, ...], observation: Observation, seed: int) -> Reply:
        """The policy's reply; raises `ServerFailure` where the server that runs it gave none."""
        reply = await self._batched.act(Context(instruction, turns, observation, seed), self._temperature)
        if reply.failure:
            raise ServerFailure(reply.failure)
        return reply

    def close(self) -> None:
        """Lets the policy's threads go."""
        self._batched.close()
