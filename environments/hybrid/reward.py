"""Reward a hybrid task: 1 as soon as its whole goal holds, 0 once the policy has ended before that."""

from typing import ClassVar

from environments.hybrid.sandbox import HybridSandbox
from environments.hybrid.snapshot import misses
from environments.verifier import Verifier
from schemas.observation import Outcome


class HybridReward(Verifier):
    """Scores the files, the uploads and the answer; never a claim of the policy or a page about a reward."""

    each_step = True
    reads: ClassVar[type] = HybridSandbox

    async def outcome(self, sandbox: HybridSandbox) -> Outcome:
        """Scores the current state of the sandbox."""
        instance = sandbox.instance
        reached = not any(True for _ in misses(instance.goal, instance.contents, await sandbox.snapshot()))
        return Outcome(done=reached or sandbox.concluded is not None, reward=float(reached))
