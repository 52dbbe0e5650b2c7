"""Reflective filtering: every gate's verdict on every trajectory, and the route its data takes.

UI-TARS-2's rule: V(s)=1 goes to the next SFT set, V(s)=0 to the next CT set; an environment failure is neither.
V(s)=1 here means: no environment failure, no broken rule, and the verifier's raw reward is 1, or, where there is no
verifier, the judge's score reaches the threshold. Each gate is a pure function of one trajectory and its steps; nothing
is turned away without the gate's name and its reason.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from schemas.failure import is_environment_failure
from schemas.trajectory import Route
from schemas.verdict import Verdict

GATE_VERSION = "1"
MAX_REPEATS = 4
"""The same action on the same screen more often than this is a loop."""

_REPEATED = re.compile(r"(\S[^\n]{2,79}?\s+)\1{3,}")
"""A phrase that is said four times in a row: endless repetition (Seed1.5-VL cleans its RFT data of it)."""

TrajectoryRow = Mapping[str, Any]
StepRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one gate says."""

    gate: str
    passed: bool
    reason: str
    score: float | None = None
    error_step: int | None = None


def environment_gate(trajectory: TrajectoryRow, steps: Sequence[StepRow]) -> Opinion:
    """Sets plays apart that the environment, not the policy, ended."""
    boundary = trajectory["failure_boundary"]
    if is_environment_failure(boundary):
        return Opinion("environment", False, f"{boundary} failure: {trajectory['failure_reason']}")
    return Opinion("environment", True, "the environment held")


def rules_gate(trajectory: TrajectoryRow, steps: Sequence[StepRow]) -> Opinion:
    """Turns away plays with an unreadable action, a missing step, a thought that repeats itself, or a loop."""
    unread = next((s["step"] for s in steps if s["action"] is None or s["action_error"]), None)
    if unread is not None:
        return Opinion("rules", False, f"step {unread} holds no action that could be performed", error_step=unread)
    if len(steps) != trajectory["n_steps"]:
        return Opinion("rules", False, f"{len(steps)} of {trajectory['n_steps']} steps are in the lake")
    endless = next((s["step"] for s in steps if _REPEATED.search(s["thought"])), None)
    if endless is not None:
        return Opinion("rules", False, f"step {endless} says the same again and again", error_step=endless)
    looped = _loop(steps)
    if looped is not None:
        return Opinion(
            "rules", False, f"the same action on the same screen again and again from step {looped}", error_step=looped
        )
    return Opinion("rules", True, "no rule broken")


def verifier_gate(trajectory: TrajectoryRow, steps: Sequence[StepRow]) -> Opinion:
    """Passes a play whose raw reward is 1; a fractional reward is not success."""
    reward = float(trajectory["reward"] or 0.0)
    if trajectory["success"]:
        return Opinion("verifier", True, "raw reward is 1", score=reward)
    if trajectory["termination"] == "done":
        return Opinion("verifier", False, f"ended with raw reward {reward:g}", score=reward, error_step=len(steps) - 1)
    return Opinion("verifier", False, f"not done: {trajectory['termination']}", score=reward)


def judge_gate(trajectory: TrajectoryRow, said: str) -> Opinion:
    """Passes a play whose score the judge put high enough to call it a success."""
    return Opinion("judge", bool(trajectory["success"]), said, score=float(trajectory["reward"]))


def verdicts_of(trajectory: TrajectoryRow, steps: Sequence[StepRow], judged: str = "") -> list[Verdict]:
    """The verdicts of all gates up to the first that turns the trajectory away, then the routing decision.

    Args:
        trajectory, steps: their rows.
        judged: what a judge said of it, if no verifier was there to ask.
    """
    opinions = _opinions(trajectory, steps, judged)
    route = route_of(opinions)
    last = opinions[-1]
    decision = Opinion("route", last.passed, f"{last.gate}: {last.reason}", last.score, last.error_step)
    return [_verdict(trajectory, opinion, route) for opinion in [*opinions, decision]]


def judge_verdict(trajectory: TrajectoryRow, steps: Sequence[StepRow], judged: str) -> Verdict:
    """What the judge said as a verdict, with the route that all gates together give the trajectory."""
    route = route_of(_opinions(trajectory, steps, judged))
    return _verdict(trajectory, judge_gate(trajectory, judged), route)


def route_of(opinions: Sequence[Opinion]) -> Route:
    """`sft` if every gate passed, `none` for an environment failure, `ct` for the rest."""
    last = opinions[-1]
    if last.passed:
        return "sft"
    return "none" if last.gate == "environment" else "ct"


def _opinions(trajectory: TrajectoryRow, steps: Sequence[StepRow], judged: str) -> list[Opinion]:
    opinions: list[Opinion] = []
    for gate in (environment_gate, rules_gate):
        opinions.append(gate(trajectory, steps))
        if not opinions[-1].passed:
            return opinions
    return [*opinions, judge_gate(trajectory, judged) if judged else verifier_gate(trajectory, steps)]


def _loop(steps: Sequence[StepRow]) -> int | None:
    repeats = 0
    for before, after in pairwise(steps):
        same = (before["screenshot"], before["action"]) == (after["screenshot"], after["action"])
        repeats = repeats + 1 if same else 0
        if repeats >= MAX_REPEATS:
            return int(after["step"]) - repeats
    return None


def _verdict(trajectory: TrajectoryRow, opinion: Opinion, route: Route) -> Verdict:
    return Verdict(
        trajectory_id=trajectory["trajectory_id"],
        gate=opinion.gate,
        gate_version=GATE_VERSION,
        iteration=trajectory["iteration"],
        passed=opinion.passed,
        score=opinion.score,
        error_step=opinion.error_step,
        reason=opinion.reason,
        route=route,
    )
