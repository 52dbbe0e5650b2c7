"""Play the script of a hybrid task's instance, which shows that the task can be solved.

The reward of a hybrid task is 1 as soon as its whole goal holds, and 0 if the policy ends before.
"""

from typing import ClassVar

from environments.hybrid.sandbox import HybridSandbox, misses
from environments.hybrid.tasks.task import ClickOn
from environments.verifier import Verifier
from schemas.action import Finished
from schemas.failure import TrajectoryFailure
from schemas.observation import Outcome


class HybridReward(Verifier):
    """Scores the files, the uploads and the answer, and never a claim of the policy or a page."""

    each_step = True
    reads: ClassVar[type] = HybridSandbox

    async def outcome(self, sandbox: HybridSandbox) -> Outcome:
        """Scores the current state of the sandbox."""
        instance = sandbox.instance
        reached = not any(True for _ in misses(instance.goal, instance.contents, await sandbox.snapshot()))
        return Outcome(done=reached or sandbox.concluded is not None, reward=float(reached))


REWARD = HybridReward()


async def solve(sandbox: HybridSandbox, reward: Verifier = REWARD) -> Outcome:
    """Plays the script until the task is done, and returns the outcome.

    Args:
        sandbox: the sandbox of a started task.
        reward: the task's verifier; it runs after each move only if it must (`each_step`).

    Raises:
        TrajectoryFailure: of boundary `policy`, if a move finds no target, or has no effect.
    """
    outcome = await sandbox.verify(reward) if reward.each_step else None
    for move in sandbox.instance.script:
        if outcome and outcome.done:
            break
        if isinstance(move, Finished):
            await sandbox.conclude(move)
        else:
            action = await sandbox.aimed(move) if isinstance(move, ClickOn) else move
            if action is None:
                raise TrajectoryFailure("policy", f"no element can be clicked for {move}")
            if error := await sandbox.perform(action):
                raise TrajectoryFailure("policy", error)
        outcome = await sandbox.verify(reward) if reward.each_step else None
    return outcome or await sandbox.verify(reward)
