"""When a proposal is a task: its checks give the golden state 1, the initial one and every near miss 0, those that its
maker named and those that follow from the two states.

CUA-Gym's rule (arXiv 2605.25624). What it says of a proposal is kept whether it is accepted or not. Whether anybody
can solve it is asked after that, of whoever acts.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

from curation.synthesis.guard import guards, left_out, side_effects
from curation.synthesis.leaks import HeldOut, leak
from curation.synthesis.maker import ProposedTask
from curation.synthesis.reward import RewardMaker, Unreadable
from curation.synthesis.search import MAX_STEPS, searched
from schemas.walk import Layout
from schemas.world import FieldCheck, State, World, canonical, score

REASONS = (
    "malformed", "held out", "wording", "known", "unreadable", "golden", "initial", "near miss", "few near misses",
    "search", "contradiction", "never solved", "always solved", "environment",
)  # fmt: skip
"""Why proposals are turned away."""


@dataclass(frozen=True, slots=True)
class AcceptanceDecision:
    """What is decided of a proposal."""

    reason: str = ""
    """One of `REASONS`; empty where it is accepted."""
    detail: str = ""
    checks: tuple[FieldCheck, ...] = ()
    """The reward maker's, and the house's own (`curation.synthesis.guard`)."""
    asked: tuple[str, ...] = ()
    """Ids of the environment's own tasks whose fields the reward maker's checks ask for."""
    golden: float | None = None
    initial: float | None = None
    near_misses: tuple[float, ...] = ()
    """Of those that its maker named."""
    left_out: tuple[float, ...] = ()
    side_effects: tuple[float, ...] = ()
    max_steps: int = 0
    """The task's limit."""

    @property
    def accepted(self) -> bool:
        """Whether it is a task."""
        return not self.reason


def decide(
    proposal: ProposedTask,
    world: World,
    reward: RewardMaker[Any],
    held: HeldOut,
    known: Collection[str],
    least: int,
    layout: Layout | None = None,
    max_steps: int = MAX_STEPS,
) -> AcceptanceDecision:
    """The decision on a proposal that needs no rollout.

    Args:
        proposal: what was proposed.
        world: of its environment.
        reward: who writes the reward, from the words alone.
        held: what is held out.
        known: `identity` of the tasks that there are.
        least: near misses that there have to be.
        layout: of the site's pages; without one no search is measured.
        max_steps: the highest limit that a task may have.
    """
    if wrong := _malformed(proposal, world):
        return AcceptanceDecision("malformed", wrong)
    reason, detail = leak(proposal.instruction, proposal.parents, held)
    if reason:
        return AcceptanceDecision(reason, detail)
    if identity(proposal.environment, proposal.instruction) in known:
        return AcceptanceDecision("known", "a task asks for the same in the same words")
    try:
        checks = reward.checks(proposal.instruction, world)
    except Unreadable as error:
        return AcceptanceDecision("unreadable", str(error))
    asked = tuple(f"{proposal.environment}/{name}" for name in world.asked(checks, proposal.initial))
    decision = replace(_scored(proposal, checks, world, least), asked=asked)
    reason, detail = leak("", asked, held)
    if reason or decision.reason:
        return replace(decision, reason=reason, detail=detail) if reason else decision
    return _limited(proposal, decision, world, layout, max_steps)


def identity(environment: str, instruction: str) -> str:
    """What tells a task's words from others: case and spaces aside."""
    return f"{environment}|{' '.join(instruction.casefold().split())}"


def solvable(
    decision: AcceptanceDecision, solved: int, tries: int, failed: int, least: float, most: float
) -> AcceptanceDecision:
    """The decision with what rolling it out says.

    Args:
        decision: an accepting one.
        solved, tries: successes among trajectories that count.
        failed: environment failures, which count nothing.
        least, most: shares of successes that are turned away, at or below and at or above.
    """
    if tries == 0:
        return replace(
            decision, reason="environment", detail=f"each of {failed} trajectories was an environment failure"
        )
    detail = f"{solved} of {tries} trajectories succeeded"
    if solved / tries <= least:
        return replace(decision, reason="never solved", detail=detail)
    if solved / tries >= most:
        return replace(decision, reason="always solved", detail=detail)
    return replace(decision, reason="", detail=detail)


def _limited(
    proposal: ProposedTask, decision: AcceptanceDecision, world: World, layout: Layout | None, max_steps: int
) -> AcceptanceDecision:
    """An accepting decision with the task's limit; one that turns it away where the search fails or is longer."""
    found = None
    if world.site is not None and layout is not None:
        found = searched(world.site, layout, proposal.instruction, proposal.initial, decision.checks, max_steps)
    if found is None:
        return replace(decision, max_steps=proposal.max_steps or max_steps)
    if found.problem:
        return replace(decision, reason=found.reason, detail=f"by a player that searches: {found.problem}")
    return replace(decision, max_steps=max(proposal.max_steps, found.limit))


def _malformed(proposal: ProposedTask, world: World) -> str:
    if proposal.problem:
        return proposal.problem
    if not 0 < len(proposal.instruction) <= 2000:
        return f"an instruction of {len(proposal.instruction)} letters"
    near = [("a near miss", one) for one in proposal.near_misses]
    states: list[tuple[str, object]] = [("initial", proposal.initial), ("golden", proposal.golden), *near]
    for name, state in states:
        if wrong := world.problem(cast(State, state)) if isinstance(state, dict) else "no state":
            return f"{name}: {wrong}"
    return ""


def _scored(proposal: ProposedTask, read: tuple[FieldCheck, ...], world: World, least: int) -> AcceptanceDecision:
    initial, golden = proposal.initial, proposal.golden
    checks = (*read, *guards(read, initial, golden, world))
    named = list({canonical(one): one for one in proposal.near_misses if one != golden}.values())
    near = (named, left_out(initial, golden, world), side_effects(golden, world))
    scores = [tuple(score(checks, one) for one in states) for states in near]
    reason, detail = "", ""
    if score(checks, golden) != 1.0:
        reason, detail = "golden", "the reward does not know the golden state"
    elif score(checks, initial) != 0.0:
        reason, detail = "initial", "the reward is had without doing anything"
    elif there := _there_already(read, initial, world):
        reason, detail = "initial", f"field {there} is as it is asked for before anything is done"
    elif any(map(any, scores)):
        reason, detail = "near miss", _rewarded([*chain(*near)], [*chain(*scores)])
    elif len(named) < least:
        reason, detail = "few near misses", f"{len(named)} near misses, at least {least} have to be turned away"
    near_misses, left, beside = scores
    return AcceptanceDecision(
        reason, detail, checks, (), score(checks, golden), score(checks, initial), near_misses, left, beside
    )


def _there_already(checks: Sequence[FieldCheck], initial: State, world: World) -> str:
    """A text or a flag that holds what is asked for at the start, where a state in which nothing was done does not: an
    answer box that is filled in already, an answer that was handed in; empty if there is none."""
    named = {one.name for one in world.fields if one.kind in ("text", "flag")}
    met = [one.field for one in checks if one.field in named and one.holds(initial) and not one.holds(world.start)]
    return met[0] if met else ""


def _rewarded(states: Sequence[State], scores: Sequence[float]) -> str:
    wrong = canonical(states[scores.index(1.0)])
    return f"{sum(map(bool, scores))} of {len(scores)} near misses are rewarded, such as {wrong}"
