"""When a proposal is a task: the reward maker's checks give the golden state 1, the initial one and every near miss 0.

CUA-Gym's rule (arXiv 2605.25624). What it says of a proposal is kept whether it is accepted or not. Whether anybody
can solve it is asked after that, of whoever acts.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, cast

from curation.synthesis.leaks import HeldOut, leak
from curation.synthesis.maker import Proposal
from curation.synthesis.reward import RewardMaker, Unreadable
from schemas.world import Check, State, World, canonical, score

REASONS = (
    "malformed", "held out", "wording", "known", "unreadable", "golden", "initial", "near miss", "few near misses",
    "never solved", "always solved", "environment",
)  # fmt: skip
"""Why proposals are turned away."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is decided of a proposal."""

    reason: str = ""
    """One of `REASONS`; empty where it is accepted."""
    detail: str = ""
    checks: tuple[Check, ...] = ()
    golden: float | None = None
    initial: float | None = None
    near_misses: tuple[float, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether it is a task."""
        return not self.reason


def decide(
    proposal: Proposal, world: World, reward: RewardMaker[Any], held: HeldOut, known: Collection[str], least: int
) -> Decision:
    """What is to be said of a proposal without rolling it out.

    Args:
        proposal: what was proposed.
        world: of its environment.
        reward: who writes the reward, from the words alone.
        held: what is held out.
        known: `identity` of the tasks that there are.
        least: near misses that there have to be.
    """
    if wrong := _malformed(proposal, world):
        return Decision("malformed", wrong)
    reason, detail = leak(proposal.instruction, proposal.parents, held)
    if reason:
        return Decision(reason, detail)
    if identity(proposal.environment, proposal.instruction) in known:
        return Decision("known", "a task asks for the same in the same words")
    try:
        checks = reward.checks(proposal.instruction, world)
    except Unreadable as error:
        return Decision("unreadable", str(error))
    return _scored(proposal, checks, least)


def identity(environment: str, instruction: str) -> str:
    """What tells a task's words from others: case and spaces aside."""
    return f"{environment}|{' '.join(instruction.casefold().split())}"


def solvable(decision: Decision, solved: int, tries: int, failed: int, least: float, most: float) -> Decision:
    """The decision with what rolling it out says.

    Args:
        decision: an accepting one.
        solved, tries: successes among trajectories that count.
        failed: environment failures, which count nothing.
        least, most: shares of successes that are turned away, at or below and at or above.
    """
    if tries == 0:
        return _with(decision, "environment", f"each of {failed} trajectories was an environment failure")
    if solved / tries <= least:
        return _with(decision, "never solved", f"{solved} of {tries} trajectories succeeded")
    if solved / tries >= most:
        return _with(decision, "always solved", f"{solved} of {tries} trajectories succeeded")
    return _with(decision, "", f"{solved} of {tries} trajectories succeeded")


def _with(decision: Decision, reason: str, detail: str) -> Decision:
    kept = decision.checks, decision.golden, decision.initial, decision.near_misses
    return Decision(reason, detail, *kept)


def _malformed(proposal: Proposal, world: World) -> str:
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


def _scored(proposal: Proposal, checks: tuple[Check, ...], least: int) -> Decision:
    golden, initial = score(checks, proposal.golden), score(checks, proposal.initial)
    distinct = {canonical(one): one for one in proposal.near_misses if one != proposal.golden}
    near = tuple(score(checks, one) for one in distinct.values())
    reason, detail = "", ""
    if golden != 1.0:
        reason, detail = "golden", "the reward does not know the golden state"
    elif initial != 0.0:
        reason, detail = "initial", "the reward is had without doing anything"
    elif any(near):
        wrong = list(distinct)[near.index(1.0)]
        reason, detail = "near miss", f"{sum(map(bool, near))} of {len(near)} near misses are rewarded, such as {wrong}"
    elif len(near) < least:
        reason, detail = "few near misses", f"{len(near)} near misses, at least {least} have to be turned away"
    return Decision(reason, detail, checks, golden, initial, near)
