"""Judge single steps in hindsight by rules: reflective filtering's fields (OpenCUA, arXiv 2508.09123).

A trajectory does not need a redundant step: it changed nothing, or it is between two occurrences of the same screen.
Rules cannot confirm that an action was correct; they only deny it if the action could not be performed.
"""

from collections.abc import Sequence
from datetime import datetime

from curation.gates.actions import fault_of
from schemas.action import TERMINAL
from schemas.tables.reflection import RULES, Reflection
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory

VERSION = "3"
"""Version of the rules; increase it whenever a step may get another finding."""


def reflections_of(trajectory: Trajectory, steps: Sequence[Step], now: datetime) -> list[Reflection]:
    """Return a row for every step with a finding, in order."""
    found: list[Reflection] = []
    redundant = redundant_steps(trajectory, steps)
    for step in steps:
        fault, why = fault_of(step), redundant.get(step.step)
        if not (fault or why):
            continue
        found.append(
            Reflection(
                trajectory_id=step.trajectory_id,
                step=step.step,
                author=RULES,
                version=VERSION,
                iteration=step.iteration,
                last_step_correct=False if fault else None,
                last_step_redundant=True if why else None,
                reflection=why or f"It {fault}.",
                created_at=now,
            )
        )
    return found


def redundant_steps(trajectory: Trajectory, steps: Sequence[Step]) -> dict[int, str]:
    """Return the steps that the trajectory does not need, each with the reason in a sentence.

    The last step is never redundant, since it was rewarded or ended the trajectory. A step without a recorded outcome
    is never redundant either.
    """
    last = {step.screenshot: at for at, step in enumerate(steps)}
    found: dict[int, str] = {}
    at = 0
    while at < len(steps):
        back = last[steps[at].screenshot]
        for step in steps[at:back]:
            found[step.step] = (
                "It changed nothing on the screen."
                if changed_nothing(step)
                else f"The screen of step {steps[at].step} comes again at step {steps[back].step}: a detour."
            )
        at = back + 1
    return found


def changed_nothing(step: Step) -> bool:
    """Whether the screens before and after a step's action are equal pixel by pixel; false for a terminal action."""
    return step.next_screenshot == step.screenshot and step.action_type not in TERMINAL
