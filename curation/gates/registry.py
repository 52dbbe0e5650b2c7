"""Select a config's gates in order, and make their verdicts and the decision on the use of a trajectory's data.

UI-TARS-2's rule (arXiv 2509.02544): V(s)=1 goes to the next SFT set, V(s)=0 to the next CT set; an environment failure
goes to neither. In this project, V(s)=1 means that every gate passed. Each rejection has the gate's name and a reason.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from curation.gates.gate import Gate, GateContext, GateResult
from schemas.config.curating import FilterConfig
from schemas.failure import UsageError
from schemas.registry import Registry, options_of
from schemas.tables.step import Step
from schemas.tables.trajectory import Route, Trajectory
from schemas.tables.verdict import DECISION, Verdict

GATES: Registry[Gate[Any]] = Registry(
    "filter.gates",
    Gate,
    {
        "environment": "curation.gates.outcome:EnvironmentGate",
        "actions": "curation.gates.actions:ActionsGate",
        "thoughts": "curation.gates.thoughts:ThoughtsGate",
        "loops": "curation.gates.repeats:LoopsGate",
        "redundant": "curation.gates.repeats:RedundantGate",
        "transient": "curation.gates.transient:TransientGate",
        "evidence": "curation.gates.evidence:EvidenceGate",
        "shortcut": "curation.gates.evidence:ShortcutGate",
        "duplicates": "curation.gates.repeats:DuplicatesGate",
        "verifier": "curation.gates.outcome:VerifierGate",
        "judge": "curation.gates.outcome:JudgeGate",
        "people": "curation.gates.outcome:PeopleGate",
    },
)
RULES = ("actions", "thoughts", "loops")
"""Gates that replace the gate `rules` of schema version 2."""
FIRST = "environment"
"""The first gate, since any other gate would treat an environment failure as the policy's failure."""


def gates_of(config: FilterConfig) -> list[Gate[Any]]:
    """Return the configured gates, in order.

    Raises:
        UsageError: a gate is unknown or repeated, the first gate is not `environment`, or an option is unknown or
            belongs to a gate that is not in the list.
    """
    if "rules" in config.gates:
        raise UsageError("`filter.gates`: rules are gates of their own.", f"Write {', '.join(RULES)} in its place.")
    kinds = [GATES.class_of(name) for name in config.gates]
    names = [kind.name for kind in kinds]
    if len({DECISION, *names}) <= len(names):
        raise UsageError(f"`filter.gates`: {', '.join(names)} are not {len(names)} names.", "Name each gate once.")
    if names[0] != FIRST:
        hint = f"Put `{FIRST}` first: trajectories that the environment ended must not be trained on."
        raise UsageError(f"`filter.gates`: begins with {names[0]}.", hint)
    for name in config.options.keys() - set(names):
        raise UsageError(f"`filter.options.{name}`: no gate of that name filters.", f"They are {', '.join(names)}.")
    return [
        kind(options_of(kind.section, config.options.get(kind.name, {}), f"filter.options.{kind.name}"))
        for kind in kinds
    ]


def verdicts_of(
    gates: Sequence[Gate[Any]], trajectory: Trajectory, steps: Sequence[Step], context: GateContext, now: datetime
) -> list[Verdict]:
    """Return the verdicts of the gates up to the first rejection, then the decision.

    A reviewer's decision replaces this decision in all queries (`storage/queries/views/decisions.sql`).

    Args:
        gates: the gates in order; verdicts of a gate with `given` are not written again. trajectory, steps: their rows,
        steps in order.
        context: additional facts for the gates.
        now: time of the filter run.
    """
    acting = acting_steps(steps)
    context = replace(context, words=len(steps) - len(acting))
    verdicts: list[Verdict] = []
    decided, route, by = GateResult(True, "none applied"), "sft", "no gate"
    for gate in gates:
        result = gate.check(trajectory, acting, context)
        if result is None:
            continue
        decided, by = replace(result, score=decided.score if result.score is None else result.score), gate.name
        route = "sft" if result.passed else result.route or gate.sends_to
        if not gate.given:
            verdicts.append(_verdict(trajectory, gate.name, gate.version, result, route, now))
        if not result.passed:
            break
    version = " ".join(f"{gate.name}@{_version(gate, context)}" for gate in gates)
    decision = _verdict(trajectory, DECISION, version, replace(decided, reason=f"{by}: {decided.reason}"), route, now)
    return [*verdicts, decision.model_copy(update={"valid_steps": _valid_steps(decided, steps)})]


def acting_steps(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that are not only words; words are steps without an action that are context by their import's
    record.

    Examples are a plan before the acting reply, and a reply without a loss (`storage/queries/views/acting_steps.sql`).
    """
    return [step for step in steps if step.actions or not _is_context(step)]


def _is_context(step: Step) -> bool:
    extra: dict[str, dict[str, Any]] = json.loads(step.extra) if step.extra else {}
    return extra.get("flywheel", {}).get("target") is False


def _valid_steps(decided: GateResult, steps: Sequence[Step]) -> int | None:
    """Return the number of steps before the error; None if the error step is unknown."""
    error = None if decided.passed else decided.error_step
    return None if error is None else sum(step.step < error for step in steps)


def _version(gate: Gate[Any], context: GateContext) -> str:
    """Return a gate's version; for a gate that uses a stored verdict, that verdict's version."""
    return context.judged.gate_version if gate.given and context.judged else gate.version


def _verdict(
    trajectory: Trajectory, gate: str, version: str, result: GateResult, route: Route, now: datetime
) -> Verdict:
    return Verdict(
        trajectory_id=trajectory.trajectory_id,
        gate=gate,
        gate_version=version,
        iteration=trajectory.iteration,
        passed=result.passed,
        score=result.score,
        error_step=result.error_step,
        reason=result.reason,
        route=route,
        created_at=now,
    )
