"""Plays one task with one policy in one leased sandbox and records every step of it.

A play never raises for what a policy says or a sandbox does: whatever ends it is in the record, blamed on one
boundary. `environments` may not see `models`, so the policy is a protocol here.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from schemas.action import TERMINAL, Action, point_of, to_json
from schemas.failure import ActionFailure, TrajectoryFailure, is_environment_failure
from schemas.observation import Observation, Outcome, Turn, elements_json
from schemas.step import Step
from schemas.table import utc_now
from schemas.task import GuiTask
from schemas.trajectory import Trajectory, split_of
from schemas.verdict import Verdict


class Answer(Protocol):
    """What an actor says."""

    @property
    def text(self) -> str:
        """The whole reply."""
        ...

    @property
    def thought(self) -> str:
        """The thought in it."""
        ...

    @property
    def action_text(self) -> str:
        """The action in it, as text."""
        ...

    @property
    def action(self) -> Action | None:
        """The action, or None if the text held none."""
        ...

    @property
    def error(self) -> str | None:
        """Why there is no action."""
        ...

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """Tokens of the reply, where known."""
        ...

    @property
    def logprobs(self) -> tuple[float, ...] | None:
        """Their log-probabilities, where known."""
        ...

    @property
    def version(self) -> str | None:
        """The policy version that answered, if it may be another one than the actor's."""
        ...


class Actor(Protocol):
    """Whoever chooses a step: the policy, or the explorer, behind the same call."""

    name: str
    version: str
    dialect: str
    needs_elements: bool

    async def choose(self, instruction: str, turns: tuple[Turn, ...], observation: Observation, seed: int) -> Answer:
        """The answer to what is on the screen."""
        ...


@dataclass(frozen=True, slots=True)
class Play:
    """One play to be made. `actors[0]` begins; after `relay_step` steps `actors[1]`, if there is one, goes on."""

    trajectory_id: str
    iteration: int
    run_id: str
    task: GuiTask
    seed: int
    attempt: int
    policy: str
    policy_version: str
    relay_step: int | None = None
    group_id: str | None = None
    stride: int = 1
    """How many attempts further on the play is when it is played again: the plays of its group."""
    sampling: str = "{}"


@dataclass(slots=True)
class Record:
    """A finished play: its rows, and its pictures by hash."""

    trajectory: Trajectory
    steps: list[Step]
    screenshots: dict[str, tuple[bytes, int, int]]
    verdict: Verdict | None = None
    """The judge's, where the task has no verifier."""


@dataclass(slots=True)
class _Progress:
    """What a running play knows of itself."""

    instruction: str = ""
    turns: list[Turn] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    screenshots: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)
    outcome: Outcome | None = None
    termination: str = "max_steps"
    failure: TrajectoryFailure | None = None


async def play(
    pool: SandboxPool, task: Play, actors: Sequence[Actor], observe_elements: bool, history_images: int
) -> Record:
    """Plays `task` to its end.

    Args:
        pool: where the sandbox is leased from.
        task: what to play.
        actors: who plays, in order.
        observe_elements: whether the page's elements are recorded with each step.
        history_images: how many of the last observations are kept with their pixels.
    """
    started, clock = utc_now(), time.perf_counter()
    progress = _Progress(instruction=task.task.instruction)
    try:
        async with pool.lease(task.task, task.seed) as sandbox:
            await _turns(sandbox, task, actors, observe_elements, history_images, progress)
    except TrajectoryFailure as failure:
        progress.failure, progress.termination = failure, "failure"
    return _record(task, progress, started, time.perf_counter() - clock)


async def _turns(
    sandbox: Sandbox,
    task: Play,
    actors: Sequence[Actor],
    observe_elements: bool,
    history_images: int,
    progress: _Progress,
) -> None:
    elements = observe_elements or any(actor.needs_elements for actor in actors)
    verifier = verifier_of(task.task.verifier)
    seen, observe_ms = await _observe(sandbox, elements, progress)
    progress.instruction = seen.instruction
    for number in range(task.task.max_steps):
        actor = actors[-1] if task.relay_step is not None and number >= task.relay_step else actors[0]
        clock = time.perf_counter()
        shown = seen if actor.needs_elements else _without_elements(seen)
        answer = await actor.choose(seen.instruction, tuple(progress.turns), shown, _seed(task, number))
        think_ms = (time.perf_counter() - clock) * 1000
        row = _step_row(task, number, seen, actor, answer, observe_ms, think_ms)
        progress.steps.append(row)
        if answer.action is None:
            raise ActionFailure(answer.error or "no action in the reply")
        clock = time.perf_counter()
        await _perform(sandbox, answer.action, row)
        if verifier is not None and verifier.each_step:
            progress.outcome = await sandbox.verify(verifier)
        row["act_ms"] = (time.perf_counter() - clock) * 1000
        _remember(progress, Turn(answer.thought, answer.action_text, shown), history_images)
        seen, observe_ms = await _observe(sandbox, elements, progress)
        row["next_screenshot"] = _digest(seen.png)
        done = progress.outcome is not None and progress.outcome.done
        if answer.action.type in TERMINAL or done:
            progress.termination = "done" if done else answer.action.type
            break
    if verifier is not None and not verifier.each_step:
        progress.outcome = await sandbox.verify(verifier)


async def _perform(sandbox: Sandbox, action: Action, row: dict[str, Any]) -> None:
    if action.type in TERMINAL:
        return
    try:
        await sandbox.perform(action)
    except ActionFailure as failure:
        row["action_error"] = failure.reason
        raise


async def _observe(sandbox: Sandbox, elements: bool, progress: _Progress) -> tuple[Observation, float]:
    clock = time.perf_counter()
    seen = await sandbox.observe(elements)
    progress.screenshots[_digest(seen.png)] = (seen.png, seen.width, seen.height)
    return seen, (time.perf_counter() - clock) * 1000


def _remember(progress: _Progress, turn: Turn, history_images: int) -> None:
    """All past text stays; pixels only of the last `history_images` - 1 steps (the current one is the last)."""
    progress.turns.append(turn)
    aged = len(progress.turns) - history_images
    if 0 <= aged < len(progress.turns):
        old = progress.turns[aged]
        blank = Observation(b"", old.observation.width, old.observation.height, old.observation.instruction)
        progress.turns[aged] = Turn(old.thought, old.action_text, blank)


def _without_elements(seen: Observation) -> Observation:
    return Observation(seen.png, seen.width, seen.height, seen.instruction)


def _step_row(
    task: Play, number: int, seen: Observation, actor: Actor, answer: Answer, observe_ms: float, think_ms: float
) -> dict[str, Any]:
    point = point_of(answer.action) if answer.action is not None else None
    return {
        "trajectory_id": task.trajectory_id,
        "step": number,
        "iteration": task.iteration,
        "screenshot": _digest(seen.png),
        "next_screenshot": None,
        "screen_width": seen.width,
        "screen_height": seen.height,
        "thought": answer.thought,
        "action": to_json(answer.action) if answer.action is not None else None,
        "action_type": answer.action.type if answer.action is not None else None,
        "x": point[0] if point else None,
        "y": point[1] if point else None,
        "dialect": actor.dialect,
        "raw_text": answer.text,
        "action_error": answer.error,
        "actor": actor.name,
        "policy_version": answer.version or actor.version,
        "token_ids": list(answer.token_ids) if answer.token_ids is not None else None,
        "logprobs": list(answer.logprobs) if answer.logprobs is not None else None,
        "elements": elements_json(seen.elements),
        "observe_ms": observe_ms,
        "think_ms": think_ms,
        "act_ms": 0.0,
    }


def _record(task: Play, progress: _Progress, started: Any, wall_s: float) -> Record:
    failure = progress.failure
    blameless = failure is not None and is_environment_failure(failure.boundary)
    outcome = progress.outcome or Outcome(done=False, reward=0.0)
    trajectory = Trajectory.model_validate(
        {
            "trajectory_id": task.trajectory_id,
            "iteration": task.iteration,
            "run_id": task.run_id,
            "task_id": task.task.task_id,
            "seed": task.seed,
            "split": split_of(task.seed),
            "group_id": task.group_id,
            "attempt": task.attempt,
            "policy": task.policy,
            "policy_version": task.policy_version,
            "instruction": progress.instruction,
            "n_steps": len(progress.steps),
            "reward": None if blameless else outcome.reward,
            "success": None if blameless else failure is None and outcome.success,
            "termination": progress.termination,
            "failure_boundary": failure.boundary if failure else None,
            "failure_reason": failure.reason if failure else None,
            "sampling": task.sampling,
            "started_at": started,
            "wall_s": wall_s,
        }
    )
    return Record(trajectory, [Step.model_validate(row) for row in progress.steps], progress.screenshots)


def _digest(png: bytes) -> str:
    return hashlib.sha256(png).hexdigest()


def _seed(task: Play, step: int) -> int:
    """The seed of what is drawn in a step; the same play in another lake has the same."""
    name = f"{task.iteration}|{task.task.task_id}|{task.seed}|{task.policy}|{task.attempt}|{step}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")
