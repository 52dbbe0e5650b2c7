"""Define planned and finished trajectories, and beginnings replayed from other trajectories."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from models.completion import Completion
from schemas.action import Action
from schemas.failure import SandboxFailure, is_environment_failure
from schemas.observation import Observation
from schemas.tables.step import Step
from schemas.tables.task import GuiTask
from schemas.tables.trajectory import Trajectory, trajectory_id
from schemas.tables.verdict import Verdict

ATTEMPTS = 3
"""Maximum attempts at one trajectory. An environment failure of the last attempt is final."""
DISAGREES = "a replay shows another screen before step"
"""Prefix of the failure reason if a sandbox did not reproduce a recorded screen."""


@dataclass(frozen=True, slots=True)
class StepReply:
    """An actor's reply in a step, to be performed unchanged."""

    completion: Completion
    """Completion with its actions and the version of its author."""
    actor: str
    """Name of the author, as in `Step.actor`."""
    dialect: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """The replayed first steps of a trajectory that continues from a state of another trajectory."""

    continues: str
    """Id of the other trajectory."""
    screens: tuple[str, ...]
    """sha256 of the recorded screen before each replayed step and after the last. The replay must show the same
    screens."""
    replies: tuple[StepReply, ...]
    """Replies to perform first: the replies of the replayed steps, then the replies to try."""
    avoid: Mapping[str, tuple[Action, ...]] = field(default_factory=dict[str, tuple[Action, ...]])
    """Actions that are known to fail, by sha256 of the screen."""
    ahead: int = 1
    """Maximum number of steps after the replies."""

    @property
    def name(self) -> str:
        """Name of this beginning, as a part of trajectory ids."""
        tried = (reply.completion.text for reply in self.replies[self.replayed :])
        return "|".join((self.continues, str(self.replayed), "|".join(tried)))

    @property
    def replayed(self) -> int:
        """Number of replayed steps of the other trajectory."""
        return len(self.screens) - 1


@dataclass(frozen=True, slots=True)
class PlannedTrajectory:
    """A trajectory to roll out."""

    lake_id: str
    """Id of the lake, which is a part of the trajectory's id. A repeated rollout has the same id."""
    run_id: str
    """Id of the run that plans the trajectory."""
    iteration: int
    task: GuiTask
    seed: int
    policy: str
    """Kind of actor: `explorer`, `policy`, `relay` (the policy first, then the explorer), `correction` or `person`."""
    policy_version: str
    attempt: int = 0
    stride: int = 1
    """Difference between the numbers of two attempts: the number of trajectories of the group."""
    group_id: str | None = None
    temperature: float = 0.0
    relay_step: int | None = None
    """First step of the second actor."""
    beginning: Beginning | None = None
    """Beginning of a correction."""

    @property
    def trajectory_id(self) -> str:
        """Id of the trajectory, derived from the fields."""
        return trajectory_id(
            self.lake_id,
            self.iteration,
            self.task.task_id,
            self.seed,
            f"{self.policy}|{self.beginning.name}" if self.beginning else self.policy,
            self.policy_version,
            self.attempt,
        )

    @property
    def most_steps(self) -> int:
        """Maximum number of steps."""
        if self.beginning is None:
            return self.task.max_steps
        return min(self.task.max_steps, len(self.beginning.replies) + self.beginning.ahead)

    def sampled(self, asked: Mapping[str, Any] | None) -> str:
        """Return the sampling of the actions, and the prompt settings of the policy if one acts, as canonical JSON."""
        how = {"relay_step": self.relay_step, "temperature": self.temperature}
        return json.dumps({**how, **({"asked": dict(asked)} if asked else {})}, sort_keys=True)

    def step_seed(self, step: int) -> int:
        """Return the sampling seed of a step. The seed does not depend on the lake."""
        name = f"{self.iteration}|{self.task.task_id}|{self.seed}|{self.policy}|{self.attempt}|{step}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")

    def retry(self, boundary: str | None) -> "PlannedTrajectory | None":
        """Return the next attempt after an environment failure; None if this attempt is final.

        A correction has no next attempt, because the search for corrections decides how to continue.
        """
        if self.beginning is not None:
            return None
        attempt = self.attempt + self.stride
        if not is_environment_failure(boundary) or attempt >= ATTEMPTS * self.stride:
            return None
        return replace(self, attempt=attempt)


@dataclass(slots=True)
class FinishedTrajectory:
    """Rows of a finished trajectory, and its screens by the sha256 of their pixels."""

    trajectory: Trajectory
    steps: list[Step]
    screenshots: dict[str, Observation]
    verdict: Verdict | None = None
    """Verdict of the judge, if the task has no verifier."""


def given(beginning: Beginning | None, step: int, screen: str) -> StepReply | None:
    """Return the reply that a beginning has for a step; None if an actor decides.

    Args:
        beginning: the replayed beginning of the trajectory, if any.
        step: number of the step.
        screen: sha256 of the current screen.

    Raises:
        SandboxFailure: the screen differs from the recorded screen, so the sandbox is not deterministic.
    """
    if beginning is None:
        return None
    if step < len(beginning.screens) and screen != beginning.screens[step]:
        raise SandboxFailure(f"{DISAGREES} {step} of {beginning.continues}")
    return beginning.replies[step] if step < len(beginning.replies) else None
