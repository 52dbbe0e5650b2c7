"""The gate `actions`: every step exists and has an action that can be performed, on the screen."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from curation.gates.gate import Gate, GateContext, GateResult
from schemas.action import from_json_list
from schemas.config.section import Section
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory

_POINTS = {"x", "y", "to_x", "to_y"}


class ActionsGate(Gate[Section]):
    """Rejects unreadable and impossible actions, actions outside the screen, and missing steps."""

    name = "actions"
    rule = "2"

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Return the first faulty step."""
        for step in steps:
            if fault := fault_of(step):
                return GateResult(False, f"step {step.step} {fault}", error_step=step.step)
        there = len(steps) + context.words
        if there != trajectory.n_steps:
            return GateResult(False, f"{there} of {trajectory.n_steps} steps are in the lake")
        return GateResult(True, "every action could be performed")


def fault_of(step: Step) -> str:
    """Return the fault of a step's action, to be read after `step N`; empty if there is none."""
    if not step.actions or step.action_error:
        why = f": {step.action_error}" if step.action_error else ""
        if len(step.actions) > 1:
            return f"could not be performed whole{why}"
        return f"holds no action that could be performed{why}"
    if not all(0 <= place <= 1 for place in (step.x, step.y) if place is not None):
        return "points outside the screen"
    try:
        from_json_list(step.actions)
    except ValidationError as error:
        return "points outside the screen" if _outside(error.errors()) else "holds an unreadable action"
    return ""


def _outside(errors: Sequence[Any]) -> bool:
    """Whether coordinates beyond the screen are an action's only errors."""
    return all(_POINTS & set(one["loc"]) and one["type"].endswith("than_equal") for one in errors)
