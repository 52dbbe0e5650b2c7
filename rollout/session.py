"""Roll out one trajectory: a policy acts in one leased sandbox, and every step is recorded.

A policy's output or a sandbox's behaviour raises no error. The trajectory's row has the failure and its boundary
instead. `Sandbox` converts all of its errors to such failures.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from environments.openenv.mapping import decode
from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from models.policy import Context
from rollout.actor import Acts
from rollout.batch import ActionBatch
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory, StepReply, given
from schemas.action import Action, point_of, to_json
from schemas.context import ContextRule
from schemas.failure import ActionFailure, FlywheelError, SandboxFailure, TrajectoryFailure, is_environment_failure
from schemas.observation import Observation, Outcome, PastStep, elements_json
from schemas.table import utc_now
from schemas.tables.step import Step
from schemas.tables.trajectory import Termination, Trajectory, split_of


async def roll_out(
    pool: SandboxPool,
    planned: PlannedTrajectory,
    actors: Sequence[Acts],
    record_elements: bool,
    rule: ContextRule,
    asked: Mapping[str, Any] | None = None,
) -> FinishedTrajectory:
    """Roll out one trajectory to its end.

    Args:
        pool: pool of sandboxes.
        planned: the trajectory to roll out.
        actors: the actors. The first acts before `planned.relay_step`, and the last from this step on.
        record_elements: whether each step records the page's elements.
        rule: the screens of a prompt, which are kept with their pixels.
        asked: settings of the policy's prompt (`PolicyConfig.asked`), for the trajectory's row.
    """
    started, clock = utc_now(), time.perf_counter()
    asked = asked if any(actor.kind == "policy" for actor in actors) else None
    session = _Session(planned, actors, record_elements, rule, planned.task.instruction, asked)
    try:
        async with pool.lease(planned.task, planned.seed, planned.trajectory_id) as sandbox:
            await session.run(sandbox)
    except TrajectoryFailure as failure:
        session.failure, session.termination = failure, "failure"
    return session.finished(started, time.perf_counter() - clock)


_OPEN = Outcome(done=False, reward=0.0)
_ENDS: dict[str, Termination] = {"finished": "finished", "call_user": "call_user"}
"""Termination of a trajectory, by the type of action that ends it."""


@dataclass(slots=True)
class _Session:
    """A running trajectory. Its instruction is the task's template until the sandbox shows the concrete text."""

    planned: PlannedTrajectory
    actors: Sequence[Acts]
    record_elements: bool
    rule: ContextRule
    instruction: str
    asked: Mapping[str, Any] | None = None
    turns: list[PastStep] = field(default_factory=list[PastStep])
    steps: list[Step] = field(default_factory=list[Step])
    screenshots: dict[str, Observation] = field(default_factory=dict[str, Observation])
    outcome: Outcome = _OPEN
    termination: Termination = "max_steps"
    failure: TrajectoryFailure | None = None

    async def run(self, sandbox: Sandbox) -> None:
        """Act until the task is done, the policy ends it, or its steps are used up."""
        verifier = verifier_of(self.planned.task.verifier)
        seen, observe_ms = await self._observe(sandbox)
        self.instruction = seen.instruction
        for number in range(self.planned.most_steps):
            clock = time.perf_counter()
            reply = await self._reply(sandbox, number, seen)
            completion, think_ms = reply.completion, (time.perf_counter() - clock) * 1000
            self.steps.append(_step(self.planned, number, seen, reply, observe_ms, think_ms))
            if not completion.actions:
                raise ActionFailure(completion.error or "no action in the reply")
            batch = await self._perform(sandbox, completion.actions, verifier)
            error = self.steps[-1].action_error or ""
            sampled = completion.text if completion.family else ""
            shown = _without_elements(seen)
            self._add_past(PastStep(completion.thought, completion.action_text, shown, error, sampled))
            seen, observe_ms = await self._observe(sandbox) if batch.reached else (seen, 0.0)
            self._update_last(next_screenshot=_digest(seen.png))
            if (ended := self._ended(batch.last)) is not None:
                self.termination = ended
                break
        if verifier is not None and not verifier.each_step:
            self.outcome = await sandbox.verify(verifier)

    def _ended(self, action: Action) -> Termination | None:
        if self.outcome.done:
            return "done"
        return "truncated" if self.outcome.truncated else _ENDS.get(action.type)

    async def _reply(self, sandbox: Sandbox, number: int, seen: Observation) -> StepReply:
        """Return the replayed reply for a step; without one, the reply of the current actor."""
        beginning, screen = self.planned.beginning, _digest(seen.png)
        if (replayed := given(beginning, number, screen)) is not None:
            return replayed
        relayed = self.planned.relay_step is not None and number >= self.planned.relay_step
        actor = self.actors[-1 if relayed else 0]
        shown = seen if actor.needs_elements else _without_elements(seen)
        avoid = beginning.avoid.get(screen, ()) if beginning else ()
        task, seed = self.planned.task.task_id, self.planned.step_seed(number)
        hint = await sandbox.hint() if actor.needs_hints else None
        context = Context(seen.instruction, tuple(self.turns), shown, seed, task, avoid=avoid, hint=hint)
        try:
            completion = await actor.act(context)
        except (TrajectoryFailure, FlywheelError):
            raise
        except Exception:
            self._refuse_broken(seen)
            completion = await actor.act(context)  # an error may come from another trajectory in the same batch
        return StepReply(completion, completion.actor or actor.kind, actor.dialect)

    def _refuse_broken(self, seen: Observation) -> None:
        """Raise SandboxFailure for a screen that cannot be decoded, and remove the screen from the rows if it is
        new."""
        try:
            decode(seen.png)
        except ValueError as error:
            digest = _digest(seen.png)
            if all(digest not in (step.screenshot, *step.frames) for step in self.steps):
                del self.screenshots[digest]
                if self.steps:
                    self._update_last(next_screenshot=None)
            raise SandboxFailure(f"the screen {error}") from error

    async def _perform(self, sandbox: Sandbox, actions: Sequence[Action], verifier: Verifier | None) -> ActionBatch:
        """Perform the actions of the last step's reply."""
        batch = ActionBatch(actions, self.outcome, self.steps[-1].screenshot)
        try:
            await batch.perform(sandbox, verifier, lambda: self._frame(sandbox))
        finally:
            self.outcome = batch.outcome
            self._update_last(action_error=batch.error, act_ms=batch.act_ms, frames=batch.frames)
        return batch

    async def _frame(self, sandbox: Sandbox) -> str:
        """Record the screen between two actions of a reply, and return its sha256."""
        seen = await sandbox.observe()
        self.screenshots[digest := _digest(seen.png)] = seen
        return digest

    async def _observe(self, sandbox: Sandbox) -> tuple[Observation, float]:
        clock = time.perf_counter()
        seen = await sandbox.observe(self.record_elements or any(actor.needs_elements for actor in self.actors))
        self.screenshots[_digest(seen.png)] = seen
        return seen, (time.perf_counter() - clock) * 1000

    def _update_last(self, **fields: Any) -> None:
        self.steps[-1] = self.steps[-1].model_copy(update=fields)

    def _add_past(self, turn: PastStep) -> None:
        """Add a past step. Only the past steps whose screens are in the next prompt keep their pixels."""
        self.turns.append(turn)
        screens = len(self.turns) + 1
        for aged in range(self.rule.folded(screens - 1), self.rule.folded(screens)):
            old = self.turns[aged]
            blank = Observation(b"", old.observation.width, old.observation.height, old.observation.instruction)
            self.turns[aged] = replace(old, observation=blank)

    def finished(self, started: datetime, wall_s: float) -> FinishedTrajectory:
        """Return the rows of the trajectory."""
        planned, failure = self.planned, self.failure
        blameless = failure is not None and is_environment_failure(failure.boundary)
        trajectory = Trajectory(
            trajectory_id=planned.trajectory_id,
            iteration=planned.iteration,
            run_id=planned.run_id,
            task_id=planned.task.task_id,
            seed=planned.seed,
            split=split_of(planned.seed),
            group_id=planned.group_id,
            attempt=planned.attempt,
            policy=planned.policy,
            policy_version=planned.policy_version,
            instruction=self.instruction,
            n_steps=len(self.steps),
            reward=None if blameless else 0.0 if failure else self.outcome.reward,
            success=None if blameless else failure is None and self.outcome.reaches(planned.task.threshold),
            termination=self.termination,
            failure_boundary=failure.boundary if failure else None,
            failure_reason=failure.reason if failure else None,
            sampling=planned.sampled(self.asked),
            started_at=started,
            wall_s=wall_s,
            continues=planned.beginning.continues if planned.beginning else None,
            replayed=planned.beginning.replayed if planned.beginning else 0,
        )
        return FinishedTrajectory(trajectory, self.steps, self.screenshots)


def _step(
    planned: PlannedTrajectory,
    number: int,
    seen: Observation,
    reply: StepReply,
    observe_ms: float,
    think_ms: float,
) -> Step:
    completion = reply.completion
    first = completion.first
    point = point_of(first) if first is not None else None
    return Step(
        trajectory_id=planned.trajectory_id,
        step=number,
        iteration=planned.iteration,
        screenshot=_digest(seen.png),
        next_screenshot=None,
        screen_width=seen.width,
        screen_height=seen.height,
        thought=completion.thought,
        actions=[to_json(action) for action in completion.actions],
        action_type=first.type if first is not None else None,
        x=point[0] if point else None,
        y=point[1] if point else None,
        dialect=reply.dialect,
        family=completion.family or None,
        raw_text=completion.text,
        action_error=completion.error,
        unused_arguments=", ".join(completion.unused) or None,
        actor=reply.actor,
        policy_version=completion.version,
        token_ids=list(completion.token_ids) or None,
        logprobs=list(completion.logprobs) or None,
        elements=elements_json(seen.elements),
        observe_ms=observe_ms,
        think_ms=think_ms,
        act_ms=0.0,
    )


def _without_elements(seen: Observation) -> Observation:
    return Observation(seen.png, seen.width, seen.height, seen.instruction)


def _digest(png: bytes) -> str:
    return hashlib.sha256(png).hexdigest()
