"""Stage `synthesize`: make new tasks, try them, and write the result of each proposal.

The stage processes one environment and one maker at a time. The proposals depend only on the lake and the config. Tries
are stored as evaluations, and all rows of a batch are written in one commit. An interrupted stage therefore continues
at the same point.

The commands of `flywheel tasks` make tasks outside of an iteration, list tasks, and retire a task.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, Literal

from common.text import counted
from curation.synthesis.acceptance import AcceptanceDecision, decide, identity, solvable
from curation.synthesis.goal import from_data, to_data
from curation.synthesis.leaks import held_out
from curation.synthesis.maker import MakerInputs, Parent, RewardMaker, TaskMaker
from curation.synthesis.maker import ProposedTask as Proposed
from curation.synthesis.making import makers_of
from environments.catalog import catalog, whole_catalog
from environments.registry import usable
from models.policy import Policy
from schemas.config import Config
from schemas.failure import UsageError
from schemas.table import utc_now
from schemas.tables.proposal import Proposal
from schemas.tables.stage import StageResult
from schemas.tables.task import GuiTask
from schemas.tables.trajectory import SPLIT_STARTS
from schemas.world import Setup, canonical
from storage.lake import Lake
from tasks.evaluate import explorer_policy, measure
from tasks.running.boundary import boundary
from tasks.running.iterations import next_iteration
from tasks.running.run import Run, run_of
from tasks.running.stage import stage
from tasks.shared.policies import champion
from tasks.shared.proposals import Proposals, by_maker, count_proposals, results_of
from tasks.shared.suite import made_tasks, parents_of, tasks_of, worlds
from tasks.shared.weights import load_policy

SUITE = "synthesis"
"""Suite of the evaluations that tried proposals."""
FIRST_SEED = SPLIT_STARTS["validation"] + 500_000
"""First seed of these evaluations. No promotion uses these seeds."""
DRAWS = 20
"""Maximum draws for each wanted proposal. Many draws repeat known proposals."""
VERIFIER = "state"
SCORES = ("golden", "initial", "near_misses", "left_out", "side_effects")
"""Fields of a decision with the rewards of states."""
Decided = tuple[Proposed, AcceptanceDecision]


class Made(Proposals, StageResult):
    """Results of all proposals for an iteration."""

    makers: Mapping[str, Proposals]
    tasks: Sequence[str]
    """Ids of the accepted tasks."""

    def __str__(self) -> str:
        return f"{self.accepted} of {counted(self.proposed, 'proposal')} accepted" + (
            f"; {self.why}" if self.why else ""
        )


@stage("synthesize", retry=True)
def synthesize_tasks(run: Run, iteration: int) -> Made:
    """Make tasks for an iteration from the data of earlier iterations."""
    return synthesize(run, iteration)


def synthesize(run: Run, iteration: int, evidence: tuple[int, int] | None = None) -> Made:
    """Make tasks outside of an iteration.

    Args:
        run: the run, whose config has the makers and the solver.
        iteration: iteration that the tasks are made for.
        evidence: iterations whose failures count; all earlier iterations if not given.
    """
    config, lake = run.config, run.lake
    makers, reward = makers_of(config.synthesis)
    solver = _Solver(run, iteration)
    for material in materials(config, lake, iteration, evidence):
        for maker in makers:
            if material.world.site is not None or not maker.needs_site:
                _batch(run, iteration, material, maker, reward, solver)
    return made_for(lake, iteration)


def _batch(
    run: Run, iteration: int, material: MakerInputs, maker: TaskMaker[Any], reward: RewardMaker[Any], solver: "_Solver"
) -> None:
    """Make the proposals of one maker for one environment, try the accepted ones, and write all results."""
    config, lake = run.config, run.lake
    there = lake.rows(Proposal)
    keys, known = (
        {one.proposal_id for one in there},
        {identity(one.environment, one.instruction) for one in there if one.status != "rejected"},
    )
    mine = (iteration, material.environment, maker.name)
    left = config.synthesis.proposals - sum((one.iteration, one.environment, one.maker) == mine for one in there)
    held = held_out(whole_catalog(config), parents_of(lake))
    chance = random.Random(f"{config.seed} {mine}")
    drawn = islice(maker.propose(material, chance), DRAWS * config.synthesis.proposals) if left > 0 else ()
    decided: list[Decided] = []
    for proposed in drawn:
        if proposed.key in keys:
            continue
        keys.add(proposed.key)
        chosen = config.synthesis
        decision = decide(
            proposed, material.world, reward, held, known, chosen.near_misses, material.layout, chosen.max_steps
        )
        decided.append((proposed, decision))
        if decision.accepted:
            known.add(identity(proposed.environment, proposed.instruction))
        if len(decided) == left:
            break
    _write(run, iteration, f"{reward.name}-{reward.version}", solver.tried(decided))


@dataclass(frozen=True, slots=True)
class _Tried:
    """A proposal, the decision on it, and the solver's successes."""

    proposed: Proposed
    decision: AcceptanceDecision
    solver: str | None = None
    tries: int = 0
    solved: int = 0


class _Solver:
    """Tries accepted proposals, several at the same time."""

    def __init__(self, run: Run, iteration: int) -> None:
        self._run, self._iteration = run, iteration
        self._policy: Policy | None = None

    def tried(self, decided: Sequence[Decided]) -> list[_Tried]:
        """Return each proposal with its result. Rejected proposals are not tried."""
        chosen = self._run.config.synthesis
        accepted = [(proposed, decision) for proposed, decision in decided if decision.accepted]
        if not accepted or not chosen.tries:
            return [_Tried(*one) for one in decided]
        seeds = range(FIRST_SEED, FIRST_SEED + chosen.tries)
        plan = {SUITE: [(task_of(proposed, decision), seeds) for proposed, decision in accepted]}
        policy = self._policy = self._policy or self._loaded()
        rows = measure(self._run.config, self._run.lake, policy, plan, self._iteration)
        return [self._judged(proposed, decision, policy, rows) for proposed, decision in decided]

    def _judged(self, proposed: Proposed, decision: AcceptanceDecision, policy: Policy, rows: Iterable[Any]) -> _Tried:
        if not decision.accepted:
            return _Tried(proposed, decision)
        chosen = self._run.config.synthesis
        mine = [one.success for one in rows if one.task_id == proposed.task_id]
        counting = [success for success in mine if success is not None]
        solved, failed = sum(counting), len(mine) - len(counting)
        found = solvable(decision, solved, len(counting), failed, chosen.solved_above, chosen.solved_below)
        return _Tried(proposed, found, policy.version, len(counting), solved)

    def _loaded(self) -> Policy:
        config, lake = self._run.config, self._run.lake
        if config.synthesis.solver == "explorer":
            return explorer_policy(config)
        return load_policy(config, lake, champion(lake).policy_version)


def task_of(proposed: Proposed, decision: AcceptanceDecision) -> GuiTask:
    """Return the task of an accepted proposal."""
    setup = Setup(initial=proposed.initial, checks=decision.checks)
    return GuiTask(
        task_id=proposed.task_id,
        environment=proposed.environment,
        template=proposed.template,
        instruction=proposed.instruction,
        tags=list(proposed.tags),
        split="train",
        max_steps=decision.max_steps,
        verifier=VERIFIER,
        lineage=f"{proposed.maker}-{proposed.version} of {', '.join(_parents(proposed, decision))}",
        setup=setup.text(),
    )


def _write(run: Run, iteration: int, reward: str, tried: Sequence[_Tried]) -> None:
    """Write the tasks, then the proposals."""
    world, now = worlds(run.config), utc_now()
    run.lake.append("tasks", [task_of(one.proposed, one.decision) for one in tried if one.decision.accepted])
    rows = [
        Proposal(
            proposal_id=one.proposed.key,
            iteration=iteration,
            task_id=one.proposed.task_id,
            maker=one.proposed.maker,
            maker_version=one.proposed.version,
            reward_maker=reward,
            environment=one.proposed.environment,
            world=world[one.proposed.environment],
            instruction=one.proposed.instruction,
            parents=_parents(one.proposed, one.decision),
            initial=canonical(one.proposed.initial),
            golden=canonical(one.proposed.golden),
            near_misses=canonical(list(one.proposed.near_misses)),
            goals=canonical(to_data(one.proposed.goals)),
            checks=canonical([check.model_dump() for check in one.decision.checks]),
            scores=canonical({name: getattr(one.decision, name) for name in SCORES}),
            solver=one.solver,
            tries=one.tries,
            solved=one.solved,
            status="accepted" if one.decision.accepted else "rejected",
            reason=one.decision.reason,
            detail=one.decision.detail,
            created_at=now,
        )
        for one in tried
    ]
    run.lake.append("proposals", rows)


def _parents(proposed: Proposed, decision: AcceptanceDecision) -> list[str]:
    """Return the parents that a proposal states, and the tasks whose fields its reward reads."""
    return list(dict.fromkeys([*proposed.parents, *decision.asked]))


def made_for(lake: Lake, iteration: int) -> Made:
    """Summarize the proposals of an iteration."""
    rows = results_of(lake, {"iteration": iteration})
    tasks = sorted(one.task_id for one in rows if one.status == "accepted")
    return Made(**count_proposals(rows).model_dump(), makers=by_maker(rows), tasks=tasks)


def materials(config: Config, lake: Lake, iteration: int, evidence: tuple[int, int] | None) -> list[MakerInputs]:
    """Return the inputs of makers for each environment whose sandboxes can be set to a state.

    The inputs are the world of the environment, and the tasks from which new tasks can be made.

    Args:
        config: the resolved config.
        lake: the lake with proposals and trajectories.
        iteration: iteration of the new tasks. Only tasks of earlier iterations are used, so a resumed run makes the
            same tasks.
        evidence: iterations whose failures count; all earlier iterations if not given.
    """
    first, end = evidence or (0, iteration)
    made = {one.task_id: one for one in lake.rows(Proposal, {"status": "accepted"}) if one.iteration < iteration}
    counts = _counts(lake, first, min(end, iteration))
    found: list[MakerInputs] = []
    for environment in usable(config):
        world = environment.world
        if world is None:
            continue
        own = [environment.task(root.task) for root in world.roots.values()]
        known = {one.task_id: one for one in [*own, *_trained(config, lake, environment.name, made)]}
        held = {one.task_id for one in tasks_of(config, lake) if one.split != "train"}
        parents = [
            _parent(task, made.get(name), counts.get(name, (0, 0))) for name, task in known.items() if name not in held
        ]
        found.append(MakerInputs(environment.name, world, parents, environment.layout))
    return found


def _trained(config: Config, lake: Lake, name: str, made: Iterable[str]) -> list[GuiTask]:
    """Return the training tasks of an environment: tasks of the catalog, and the given made tasks."""
    tasks = [one for one in tasks_of(config, lake) if one.environment == name and one.split == "train"]
    return [one for one in tasks if one.setup is None or one.task_id in made]


def _parent(task: GuiTask, made: Proposal | None, counts: tuple[int, int]) -> Parent:
    failures, successes = counts
    if made is None:
        return Parent(task.task_id, task.instruction, task.max_steps, failures=failures, successes=successes)
    goals, initial = from_data(json.loads(made.goals)), json.loads(made.initial)
    return Parent(task.task_id, task.instruction, task.max_steps, goals, initial, failures, successes)


def _counts(lake: Lake, first: int, end: int) -> dict[str, tuple[int, int]]:
    """Return the numbers of failures and successes by task."""
    rows = lake.read("trajectories", ["iteration", "task_id", "success"]).to_pylist()
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        if first <= row["iteration"] < end and row["success"] is not None:
            failures, successes = counts.get(row["task_id"], (0, 0))
            counts[row["task_id"]] = failures + (not row["success"]), successes + row["success"]
    return counts


@boundary("synthesize")
def synthesize_now(config: Config, iterations: tuple[int, int] | None) -> tuple[int, Made]:
    """Make tasks for the next iteration, and return its number.

    A repeated call makes more tasks only if `synthesis.proposals` was raised.

    Args:
        config: the resolved config.
        iterations: iterations whose failures count: the first and the iteration after the last; all if not given.
    """
    run = run_of(config)
    following = next_iteration(run.lake)
    return following, synthesize(run, following, iterations)


@dataclass(frozen=True, slots=True)
class Listed:
    """A task and its status."""

    task: GuiTask
    status: Literal["catalog", "made", "retired", "unused", "available"]
    """Status of the task. `unused`: accepted, but the config does not roll out its environment, site or parent.
    `available`: not in the config, but an environment has it."""
    proposal: Proposal | None = None
    """Accepted proposal of a made task."""


def listed(config: Config, lake: Lake | None) -> list[Listed]:
    """Return the catalog's tasks and every accepted proposal."""
    rows = [Listed(one, "catalog") for one in catalog(config)]
    if lake is None:
        return rows
    used = {one.task_id for one in made_tasks(config, lake)}
    made = {one.task_id: one for one in lake.rows(Proposal, {"status": ["accepted", "retired"]})}
    known = {one.task_id: one for one in lake.rows(GuiTask, {"task_id": sorted(made)})} if made else {}
    for name, one in sorted(made.items()):
        status = "retired" if one.status == "retired" else "made" if name in used else "unused"
        if name in known:
            rows.append(Listed(known[name], status, one))
    return rows


def retire(lake: Lake, name: str, why: str) -> str:
    """Retire a made task, and return its id. The task is no longer rolled out, and is not made again.

    Raises:
        UsageError: no made task has this name.
    """
    rows = {one.task_id: one for one in lake.rows(Proposal, {"status": ["accepted", "retired"]})}
    named = [one for one in rows if name in (one, one.rpartition("/")[2])]
    if len(named) != 1:
        near = get_close_matches(name, list(rows), n=1)
        hint = f"Did you mean `{near[0]}`?" if near else "`flywheel tasks list` shows those that there are."
        raise UsageError(f"No made task of {lake.uri} is called `{name}`.", hint)
    row = rows[named[0]]
    lake.upsert("proposals", [row.model_copy(update={"status": "retired", "detail": why})])
    return row.task_id
