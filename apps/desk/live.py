"""Run live sessions: a policy proposes an action, a reviewer accepts or overrides it, and the sandbox continues.

Each decision is written when it is made. When a trajectory has ended for any reason, it is stored, filtered and
annotated like any other, and each override becomes a preference. A session without a decision for `desk.idle_s` returns
its sandbox. A session that the desk's end interrupts is stored up to its last step. Neither counts as a failure.
"""

import asyncio
import contextlib
import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from apps.desk.pictures import DeskPictures, digest_of
from curation.annotation import TrajectoryRoute, annotations_of
from curation.gates.registry import gates_of, verdicts_of
from curation.reflection import reflections_of
from environments.pool import SandboxPool
from environments.registry import environments_of
from models.completion import Completion
from models.judges.registry import required_judge
from models.policy import EXPLORERS, Context
from rollout.actor import Actor
from rollout.replies import PERSON, Overseen, by_person
from rollout.runner import with_judgement
from rollout.session import roll_out
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.action import Action, to_json
from schemas.config import Config
from schemas.failure import FlywheelError, TrajectoryFailure, UsageError
from schemas.table import utc_now
from schemas.tables.review import Review
from schemas.tables.task import JUDGED, GuiTask
from schemas.tables.trajectory import SPLIT_STARTS, Trajectory
from storage.lake import Lake
from tasks.collect.collect import write as write_records
from tasks.shared.gate_facts import Known
from tasks.shared.policies import champion_if_any, last_iteration, policies
from tasks.shared.reviews import Conflict, Draft, Standing, require_name, require_words, take_effect
from tasks.shared.reviews import write as write_review
from tasks.shared.suite import tasks_of
from tasks.shared.weights import load_policy
from tasks.think.think import thinkable, thinkers_of
from tasks.think.thoughts import IterationThoughts, ThinkingWalk

EXPLORER = "explorer"
RESULT = {"trajectory_id", "success", "reward", "termination", "failure_boundary", "failure_reason", "n_steps"}
"""Fields of the trajectory that an ended session's page shows."""
KEPT_SESSIONS = 100
"""Ended sessions whose page can still be opened."""
CLOSE_S = 4.0
"""Seconds that sessions may take to store their data when the desk ends."""
State = Literal["starting", "thinking", "asking", "acting", "storing", "ended"]


@dataclass(frozen=True, slots=True)
class ProposalDecision:
    """A reviewer's decision on a proposal."""

    person: str
    decision: Literal["accept", "override"]
    action: Action | None
    thought: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LiveScreen:
    """The current screen."""

    screenshot: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Done:
    """A performed step."""

    actor: str
    thought: str
    actions: tuple[Action, ...]
    screenshot: str


@dataclass(slots=True)
class LiveSession:
    """One live session, as its page shows it; `number` rises with every change."""

    name: str
    planned: PlannedTrajectory
    person: str
    proposer: str
    state: State = "starting"
    number: int = 0
    instruction: str = ""
    screen: LiveScreen | None = None
    proposal: Completion | None = None
    done: list[Done] = field(default_factory=list[Done])
    reviews: list[Review] = field(default_factory=list[Review])
    result: Trajectory | None = None
    problem: str = ""
    answer: "asyncio.Future[ProposalDecision] | None" = None
    ending: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def asks(self) -> str:
        """The instruction. A template is filled by the first screen, so until then the task's name replaces it."""
        task = self.planned.task
        return self.instruction or (task.template if "{}" in task.instruction else task.instruction)

    def turn(self, state: State, **changes: Any) -> None:
        """Changes the state, and wakes the requests that wait for a change."""
        for name, value in changes.items():
            setattr(self, name, value)
        self.state, self.number = state, self.number + 1
        waiting, self.changed = self.changed, asyncio.Event()
        waiting.set()

    async def changed_since(self, seen: int, wait_s: float = 20.0) -> dict[str, Any]:
        """Returns the session as soon as its number differs from `seen`, or after `wait_s` seconds."""
        if self.number == seen:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), wait_s)
        proposal, task, last = self.proposal, self.planned.task, self.reviews[-1] if self.reviews else None
        return {
            "name": self.name, "state": self.state, "number": self.number, "person": self.person,
            "task": task.task_id, "seed": self.planned.seed, "max_steps": task.max_steps, "proposer": self.proposer,
            "instruction": self.asks, "screen": self.screen or {}, "done": self.done,
            "trajectory": self.planned.trajectory_id, "problem": self.problem,
            "decided": {"person": last.person, "decision": last.decision} if last else None,
            "result": self.result.model_dump(include=RESULT) if self.result else {},
            "proposal": proposal and {
                "thought": proposal.thought, "actions": proposal.actions,
                "error": proposal.error, "text": proposal.text,
            },
        }  # fmt: skip


class LiveSessions:
    """The sessions of one desk. Its methods belong to one event loop.

    Args:
        config: the resolved config.
        lake: the lake that gets the trajectories.
        pictures: cache that serves the current screenshots.
        patient: the same lake with retries of its store, for work without a waiting user.
    """

    def __init__(self, config: Config, lake: Lake, pictures: DeskPictures, patient: Lake | None = None) -> None:
        self._config, self._lake, self._pictures, self._patient = config, lake, pictures, patient or lake
        self.sessions: dict[str, LiveSession] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._pools: dict[str, SandboxPool] = {}
        self._actors: dict[str, Actor] = {}
        self._making = asyncio.Lock()

    def tasks(self) -> list[GuiTask]:
        """Lists the tasks for sessions: the tasks that are rolled out for data."""
        return [task for task in tasks_of(self._config, self._lake) if task.split != "held_out"]

    def proposers(self) -> list[str]:
        """Lists the proposers: the champion, then the other policies, newest first, then the explorer."""
        first = champion.policy_version if (champion := champion_if_any(self._lake)) else None
        others = [version for version in reversed(policies(self._lake)) if version != first]
        return [*([first] if first else []), *others, EXPLORER]

    def session(self, name: str) -> LiveSession:
        """Returns a session by its name; raises UsageError if there is none."""
        if name not in self.sessions:
            raise UsageError(f"There is no live session {name[:40]!r}.", "It ended long ago, or with an earlier desk.")
        return self.sessions[name]

    async def start(self, person: str, task_id: str, seed: int | None, proposer: str) -> LiveSession:
        """Begins a session; raises UsageError, naming the field, for an unknown task, seed or proposer."""
        planned = await asyncio.to_thread(self._planned, person, task_id, seed, proposer)
        session = LiveSession(secrets.token_hex(6), planned, person, proposer)
        self.sessions[session.name] = session
        for old in [name for name in self.sessions if name not in self._running][:-KEPT_SESSIONS]:
            del self.sessions[old]
        running = asyncio.create_task(self._run(session))
        self._running[session.name] = running
        running.add_done_callback(lambda _: self._running.pop(session.name, None))
        return session

    def decide(self, name: str, number: int, decided: ProposalDecision) -> None:
        """Answers the proposal with this number.

        Raises:
            UsageError: there is no proposal to accept, or a field is invalid.
            Conflict: another page decided on the proposal first.
        """
        session = self.session(name)
        require_words(_draft(session, decided), None)
        if decided.decision == "override" and decided.action is None:
            raise UsageError("`action`: an override needs the action to perform.")
        if session.answer is None or session.answer.done() or session.number != number:
            raise Conflict(session.reviews[-1:])
        if decided.decision == "accept" and (session.proposal is None or session.proposal.first is None):
            raise UsageError("`decision`: the proposal holds no action; override it.")
        session.answer.set_result(decided)

    def end(self, name: str, why: str) -> None:
        """Ends a session at its next decision; its data so far is stored."""
        session = self.session(name)
        session.ending = session.ending or why
        if session.answer is not None and not session.answer.done():
            session.answer.set_exception(TrajectoryFailure("budget", why))

    async def close(self) -> None:
        """Ends all sessions, then their sandbox pools."""
        running = list(self._running.values())
        for name in list(self._running):
            self.end(name, "the desk was ended")
        if running:
            _, late = await asyncio.wait(running, timeout=CLOSE_S)
            for one in late:
                one.cancel()
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))
        for actor in self._actors.values():
            actor.__exit__()

    def _planned(self, person: str, task_id: str, seed: int | None, proposer: str) -> PlannedTrajectory:
        task = next((one for one in self.tasks() if one.task_id == task_id), None)
        if task is None:
            raise UsageError(f"`task_id`: {task_id[:80]!r} is not a task that data is collected for.")
        require_name(person)
        if seed is not None and not 0 <= seed < SPLIT_STARTS["validation"]:
            raise UsageError(f"`seed`: {seed} is held out; take one below {SPLIT_STARTS['validation']:,}.")
        if proposer not in self.proposers():
            raise UsageError(f"`policy`: there is no policy {proposer[:80]!r}.")
        gates_of(self._config.filter)
        if task.verifier == JUDGED:
            required_judge(self._config.judge)
        return PlannedTrajectory(
            lake_id=self._lake.lake_id,
            run_id="desk",
            iteration=last_iteration(self._lake),
            task=task,
            seed=random.randrange(SPLIT_STARTS["validation"]) if seed is None else seed,
            policy=PERSON,
            policy_version=proposer,
            attempt=secrets.randbelow(2**31),
        )

    async def _run(self, session: LiveSession) -> None:
        try:
            pool, actor = await self._parts(session)
            overseen = Overseen(actor, lambda context, proposal: self._decided(session, context, proposal))
            policy = self._config.policy
            record = await roll_out(pool, session.planned, [overseen], True, policy.context_rule, policy.asked)
            session.turn("storing", proposal=None)
            parts = (self._config, self._patient, session.planned, record, session.reviews)
            session.turn("ended", result=(await asyncio.to_thread(store_trajectory, *parts)).trajectory)
        except asyncio.CancelledError:
            session.turn("ended", problem="The desk ended before this was stored.")
            raise
        except FlywheelError as error:
            session.turn("ended", problem=str(error))
        except Exception as error:
            session.turn("ended", problem=f"{type(error).__name__}: {error}")
            raise
        finally:
            self._pictures.release(session.name)

    async def _parts(self, session: LiveSession) -> tuple[SandboxPool, Actor]:
        """Returns the pool and the actor of a session; makes them when they are first needed."""
        async with self._making:
            environment = session.planned.task.environment
            if environment not in self._pools:
                pool = SandboxPool(environments_of(self._config, [session.planned.task]))
                await pool.start()
                self._pools[environment] = pool
            if session.proposer not in self._actors:
                policy = (
                    EXPLORERS.class_of(self._config.collect.explorer)()
                    if session.proposer == EXPLORER
                    else await asyncio.to_thread(load_policy, self._config, self._patient, session.proposer)
                )
                self._actors[session.proposer] = Actor(policy)
            return self._pools[environment], self._actors[session.proposer]

    async def _decided(self, session: LiveSession, context: Context, proposal: Completion) -> Completion:
        """Waits for the reviewer's decision, stores it, and returns the decided action."""
        if session.ending:
            raise TrajectoryFailure("budget", session.ending)
        seen = context.observation
        digest = digest_of(seen.png)
        self._pictures.hold(session.name, digest, seen.png)
        session.answer = asyncio.get_running_loop().create_future()
        shown = LiveScreen(digest, seen.width, seen.height)
        session.turn("asking", proposal=proposal, instruction=context.instruction, screen=shown)
        try:
            decided = await asyncio.wait_for(session.answer, self._config.desk.idle_s)
        except TimeoutError:
            raise TrajectoryFailure("budget", f"no decision within {self._config.desk.idle_s:g} s") from None
        finally:
            session.answer = None
        review = await asyncio.to_thread(self._write, session, proposal, decided)
        session.reviews.append(review)
        chosen = (decided.action,) if decided.decision == "override" and decided.action else ()
        actions = chosen or proposal.actions
        thought = decided.thought if decided.decision == "override" else proposal.thought
        proposer = EXPLORER if session.proposer == EXPLORER else "policy"
        actor = PERSON if decided.decision == "override" else proposer
        session.done.append(Done(actor, thought, actions, digest))
        session.turn("acting")
        if decided.decision == "override":
            return by_person(decided.person, thought, actions[0], "box_v1")
        return proposal

    def _write(self, session: LiveSession, proposal: Completion, decided: ProposalDecision) -> Review:
        original = to_json(proposal.actions[0]) if len(proposal.actions) == 1 else None
        draft = _draft(session, decided)
        return write_review(self._patient, draft, session.planned.iteration, (original, proposal.thought))


def _draft(session: LiveSession, decided: ProposalDecision) -> Draft:
    """Makes the record of a decision on the session's current step."""
    overridden = decided.decision == "override"
    return Draft(
        trajectory_id=session.planned.trajectory_id,
        revision=len(session.reviews),
        person=decided.person,
        decision=decided.decision,
        step=len(session.reviews),
        action=to_json(decided.action) if overridden and decided.action else None,
        thought=decided.thought if overridden else None,
        seconds=decided.seconds,
    )


def store_trajectory(
    config: Config, lake: Lake, planned: PlannedTrajectory, record: FinishedTrajectory, reviews: Sequence[Review]
) -> FinishedTrajectory:
    """Write a finished trajectory of a session, then its verdicts, annotations and reviews.

    If a later part fails, the trajectory stays stored, and `flywheel refilter` does the rest.
    """
    judge = required_judge(config.judge) if planned.task.verifier == JUDGED else None
    record = with_judgement(config, judge, planned, record)
    trajectory, now = record.trajectory, utc_now()
    write_records(lake, [record])
    probation = Standing(lake, config.judge).probation(record.verdict.gate_version) if record.verdict else ""
    context = Known(lake, trajectory.iteration).context(trajectory, record.verdict, probation)
    *verdicts, decision = verdicts_of(gates_of(config.filter), trajectory, record.steps, context, now)
    decided = TrajectoryRoute.of(decision)
    lake.append("verdicts", [*verdicts, decision])
    if decision.route != "none":
        lake.append("reflections", reflections_of(trajectory, record.steps, now))
    free = thinkers_of(config, lake, free=True)
    IterationThoughts(config, lake, trajectory.iteration, free).of(
        [ThinkingWalk(trajectory, thinkable(record.steps, decided))]
    )
    lake.append("annotations", list(annotations_of({trajectory.trajectory_id: decided}, [record.steps], now)))
    for number in range(len(reviews)):
        take_effect(lake, trajectory, reviews[: number + 1])
    return record
