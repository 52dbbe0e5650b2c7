"""A trajectory before it is rolled out, and after."""

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
"""How often one trajectory is tried before its environment failure stands."""
DISAGREES = "a replay shows another screen before step"
"""How the reason of a failure begins where a sandbox did not repeat what it once did."""


@dataclass(frozen=True, slots=True)
class StepReply:
    """What somebody replied in a step, to be performed as it stands."""

    completion: Completion
    """Its action is there, and its version says whose it is."""
    actor: str
    """Who chose it, as steps name it."""
    dialect: str


def parts_of(reply: StepReply) -> list[StepReply]:
    """Return what its first call asks for after its action: a reply for each, without tokens, text or thought."""
    made = reply.completion
    bare = replace(made, text="", thought="", action_text="", token_ids=(), logprobs=(), unused=(), further=(), parts=1)
    return [replace(reply, completion=replace(bare, action=one)) for one in made.further[: made.parts - 1]]


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a trajectory begins that goes on from a state of another one."""

    continues: str
    """The other one's id."""
    screens: tuple[str, ...]
    """sha256 of what was seen before each of its steps that is replayed, and then; what is seen now must agree."""
    replies: tuple[StepReply, ...]
    """What is performed first: that of the replayed steps, then what is known to be worth trying."""
    avoid: Mapping[str, tuple[Action, ...]] = field(default_factory=dict[str, tuple[Action, ...]])
    """Actions that are known to lead nowhere, by the screen they were performed on."""
    ahead: int = 1
    """Steps that may follow on the replies."""

    @property
    def name(self) -> str:
        """What tells it from other beginnings, for identities."""
        given = "|".join(reply.completion.text for reply in self.replies[self.replayed :])
        return f"{self.continues}|{self.replayed}|{given}"

    @property
    def replayed(self) -> int:
        """How many of the other one's steps are."""
        return len(self.screens) - 1


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
    """Who acts: `explorer`, `policy`, `relay` (the policy first, then the explorer), `correction` or `person`."""
    policy_version: str
    attempt: int = 0
    stride: int = 1
    """How many attempts further on the next one is: the trajectories of its group."""
    group_id: str | None = None
    temperature: float = 0.0
    relay_step: int | None = None
    """The step from which on the second actor acts."""
    beginning: Beginning | None = None
    """Of a correction."""

    @property
    def trajectory_id(self) -> str:
        """Its identity, derived from what it is."""
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
        """How many steps it may have."""
        if self.beginning is None:
            return self.task.max_steps
        return min(self.task.max_steps, len(self.beginning.replies) + self.beginning.ahead)

    def sampled(self, asked: Mapping[str, Any] | None) -> str:
        """How its actions are sampled, and how the policy is asked for them, if one is, as canonical JSON."""
        how = {"relay_step": self.relay_step, "temperature": self.temperature}
        return json.dumps({**how, **({"asked": dict(asked)} if asked else {})}, sort_keys=True)

    def step_seed(self, step: int) -> int:
        """The seed of what is sampled in a step; the same trajectory for another lake has the same."""
        name = f"{self.iteration}|{self.task.task_id}|{self.seed}|{self.policy}|{self.attempt}|{step}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")

    def retry(self, boundary: str | None) -> "PlannedTrajectory | None":
        """The next attempt where this one failed at a boundary that is not the policy's; None if it stands. Of a
        correction there is none: whoever searches decides what comes next."""
        if self.beginning is not None:
            return None
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


def given(beginning: Beginning | None, step: int, screen: str) -> StepReply | None:
    """What a beginning has performed in a step; None where whoever acts is asked.

    Args:
        beginning: of the trajectory.
        step: its number.
        screen: sha256 of what is seen.

    Raises:
        SandboxFailure: the step is replayed, and another screen was seen before it: the sandbox is not deterministic.
    """
    if beginning is None:
        return None
    if step < len(beginning.screens) and screen != beginning.screens[step]:
        raise SandboxFailure(f"{DISAGREES} {step} of {beginning.continues}")
    return beginning.replies[step] if step < len(beginning.replies) else None
