"""A trajectory before it is rolled out, and after."""

import hashlib
import json
from dataclasses import dataclass, replace

from schemas.failure import is_environment_failure
from schemas.observation import Observation
from schemas.tables.step import Step
from schemas.tables.task import GuiTask
from schemas.tables.trajectory import Trajectory, trajectory_id
from schemas.tables.verdict import Verdict

ATTEMPTS = 3
"""How often one trajectory is tried before its environment failure stands."""


@dataclass(frozen=True, slots=True)
class PlannedTrajectory:
    """What is to be rolled out."""

    lake_id: str
    """Of the lake that it is for; its identity is derived from it, so that trying again writes the same key."""
    run_id: str
    """The run that makes it."""
    iteration: int
    task: GuiTask
    seed: int
    policy: str
    """Who acts: `explorer`, `policy`, or `relay`, the policy first and the explorer from the state it reached."""
    policy_version: str
    attempt: int = 0
    stride: int = 1
    """How many attempts further on the next one is: the trajectories of its group."""
    group_id: str | None = None
    temperature: float = 0.0
    relay_step: int | None = None
    """The step from which on the second actor acts."""

    @property
    def trajectory_id(self) -> str:
        """Its identity, derived from what it is."""
        return trajectory_id(
            self.lake_id,
            self.iteration,
            self.task.task_id,
            self.seed,
            self.policy,
            self.policy_version,
            self.attempt,
        )

    @property
    def sampling(self) -> str:
        """How its actions are sampled, as canonical JSON."""
        return json.dumps({"relay_step": self.relay_step, "temperature": self.temperature})

    def step_seed(self, step: int) -> int:
        """The seed of what is sampled in a step; the same trajectory for another lake has the same."""
        name = f"{self.iteration}|{self.task.task_id}|{self.seed}|{self.policy}|{self.attempt}|{step}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")

    def retry(self, boundary: str | None) -> "PlannedTrajectory | None":
        """The next attempt where this one failed at a boundary that is not the policy's; None if it stands."""
        attempt = self.attempt + self.stride
        if not is_environment_failure(boundary) or attempt >= ATTEMPTS * self.stride:
            return None
        return replace(self, attempt=attempt)


@dataclass(slots=True)
class FinishedTrajectory:
    """What was rolled out: its rows, and what was seen by the sha256 of its pixels."""

    trajectory: Trajectory
    steps: list[Step]
    screenshots: dict[str, Observation]
    verdict: Verdict | None = None
    """The judge's, where the task has no verifier."""
