"""Accept a proposal as a task if its checks score its states as intended.

The golden state must score 1, and the initial state and every near miss 0. Near misses come from the maker and from the
two states (CUA-Gym's rule, arXiv 2605.25624). The decision on a proposal is always stored. Later rollouts show whether
a policy can solve the task.

A reward is checked independently of its maker: every requested change must matter, and nothing else may change.

A maker may overlook near misses, and a reward maker only reads the words, so both can forget the same part of the
request or the same side effect. The initial and the golden state define the change. They give additional near misses,
and checks that all other fields keep their values.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

from curation.synthesis.leaks import HeldOut, leak
from curation.synthesis.maker import ProposedTask, RewardMaker, Unreadable
from curation.synthesis.player import MAX_STEPS, searched
from schemas.world import FieldCheck, Layout, State, World, canonical, score


def guards(checks: Collection[FieldCheck], initial: State, golden: State, world: World) -> tuple[FieldCheck, ...]:
    """Return checks that all other fields stay unchanged.

    Fields that the environment leaves free, or that the reward reads anyway, need none.
    """
    return tuple(one for one in world.guards(checks, initial) if not _changes(one.field, initial, golden))


def left_out(initial: State, golden: State, world: World) -> list[State]:
    """Return the golden state without one of its changes: one for each field, and one for each entry of counts."""
    changed = [one for one in world.fields if _changes(one.name, initial, golden)]
    found = [{**golden, one.name: initial[one.name]} for one in changed]
    for one in changed:
        if one.kind == "counts":
            found += [{**golden, one.name: counts} for counts in _but_one(initial[one.name], golden[one.name])]
    return _distinct(found, golden)


def side_effects(golden: State, world: World) -> list[State]:
    """Return the golden state with one further change: one for each field that the environment does not leave free.

    For counts, there are three: one more, one less, and one removed.
    """
    found: list[State] = []
    for one in world.fields:
        value = golden[one.name]
        match one.kind if one.guarded else "page":
            case "text":
                found.append({**golden, one.name: "something else" if value != "something else" else "other"})
            case "flag":
                found.append({**golden, one.name: not value})
            case "counts":
                found += [{**golden, one.name: counts} for counts in _with_others(value, _goods(world))]
            case _:
                continue
    return _distinct(found, golden)


def _changes(name: str, initial: State, golden: State) -> bool:
    """Whether a check distinguishes the two states."""
    return not FieldCheck(field=name, value=golden[name]).holds(initial)


def _but_one(before: Mapping[str, int], after: Mapping[str, int]) -> list[dict[str, int]]:
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return [{name: count for name, count in {**after, key: before.get(key, 0)}.items() if count} for key in changed]


def _with_others(counts: Mapping[str, int], goods: Iterable[str]) -> list[dict[str, int]]:
    """Return counts with another entry, and for each entry with one more of it and without it."""
    more = [{**counts, key: 1} for key in goods if key not in counts][:1]
    for key, count in counts.items():
        more += [{**counts, key: count + 1}, {name: left for name, left in counts.items() if name != key}]
    return more


def _goods(world: World) -> list[str]:
    return [one.key for one in world.site.of_kind(world.site.goods)] if world.site else []


def _distinct(states: Iterable[State], golden: State) -> list[State]:
    return list({canonical(one): one for one in states if one != golden}.values())


REASONS = (
    "malformed", "held out", "wording", "known", "unreadable", "golden", "initial", "near miss", "few near misses",
    "search", "contradiction", "never solved", "always solved", "environment",
)  # fmt: skip
"""Reasons for rejecting proposals."""


@dataclass(frozen=True, slots=True)
class AcceptanceDecision:
    """Decision on a proposal."""

    reason: str = ""
    """One of `REASONS`; empty if the proposal is accepted."""
    detail: str = ""
    checks: tuple[FieldCheck, ...] = ()
    """Checks of the reward maker, and of this project."""
    asked: tuple[str, ...] = ()
    """Ids of the environment's own tasks whose fields the reward maker's checks read."""
    golden: float | None = None
    initial: float | None = None
    near_misses: tuple[float, ...] = ()
    """Scores of the maker's near misses."""
    left_out: tuple[float, ...] = ()
    side_effects: tuple[float, ...] = ()
    max_steps: int = 0
    """The task's step limit."""

    @property
    def accepted(self) -> bool:
        """Whether the proposal becomes a task."""
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
    """Decide on a proposal as far as possible without rollouts.

    Args:
        proposal: the proposal.
        world: the world of its environment.
        reward: writes the reward from the words only.
        held: the held-out tasks.
        known: `identity` of the existing tasks.
        least: minimum number of near misses.
        layout: layout of the site's pages; without a layout, no search is measured.
        max_steps: maximum step limit of a task.
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
    """Return a key of a task's words, without case and repeated spaces."""
    return f"{environment}|{' '.join(instruction.casefold().split())}"


def solvable(
    decision: AcceptanceDecision, solved: int, tries: int, failed: int, least: float, most: float
) -> AcceptanceDecision:
    """Add the result of rollouts to the decision.

    Args:
        decision: an accepting decision. solved, tries: successes among the trajectories that count.
        failed: number of environment failures, which do not count. least, most: the task is rejected if its share of
        successes is at most `least` or at least `most`.
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
    """Add the task's step limit to an accepting decision; reject the task if the search fails or is longer."""
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
    named = _distinct(proposal.near_misses, golden)
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
        reason, detail = "few near misses", f"{len(named)} near misses, at least {least} must be rejected"
    near_misses, left, extra = scores
    return AcceptanceDecision(
        reason, detail, checks, (), score(checks, golden), score(checks, initial), near_misses, left, extra
    )


def _there_already(checks: Sequence[FieldCheck], initial: State, world: World) -> str:
    """Return a text or flag field that holds the requested value at the start, but not in the untouched state.

    Examples are an answer box that is filled in, and a submitted answer. The result is empty if there is none.
    """
    named = {one.name for one in world.fields if one.kind in ("text", "flag")}
    met = [one.field for one in checks if one.field in named and one.holds(initial) and not one.holds(world.start)]
    return met[0] if met else ""


def _rewarded(states: Sequence[State], scores: Sequence[float]) -> str:
    wrong = canonical(states[scores.index(1.0)])
    return f"{sum(map(bool, scores))} of {len(scores)} near misses are rewarded, such as {wrong}"
