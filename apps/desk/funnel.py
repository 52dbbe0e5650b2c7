"""Count the trajectories of each iteration that reach training, and the reasons of the others by stage."""

from collections import Counter

from pydantic import BaseModel, ConfigDict

from storage.catalog import answers, ask
from storage.lake import Lake
from tasks.shared.policies import policies

STAGES = ("collected", "valid", "judged", "reviewed", "selected", "trained")


class Drop(BaseModel):
    """One kind of reason for which trajectories are lost."""

    model_config = ConfigDict(frozen=True)

    iteration: int
    stage: str
    gate: str
    why: str
    """The kind of reason: without quoted texts, ids and numbers."""
    reason: str
    """The first example's, whole."""
    n: int
    examples: list[str]
    """Ids of up to three trajectories."""


class Funnel(BaseModel):
    """One iteration's."""

    model_config = ConfigDict(frozen=True)

    iteration: int
    counts: dict[str, int]
    """By stage; `reviewed` is not a step of the way: people review some."""
    trained_by: str
    """The newest trained policy: `trained` counts the trajectories that were selected from its data."""
    drops: list[Drop]


def funnel_of(lake: Lake) -> list[Funnel]:
    """Every iteration's funnel, newest first."""
    newest, trained = _trained(lake)
    drops: dict[int, list[Drop]] = {}
    for drop in answers(lake, Drop, "funnel_drops"):
        drops.setdefault(drop.iteration, []).append(drop)

    def funnel(iteration: int, **counts: int) -> Funnel:
        counts["trained"] = trained[iteration]
        return Funnel(iteration=iteration, counts=counts, trained_by=newest, drops=drops.get(iteration, []))

    return answers(lake, funnel, "funnel_people")


def _trained(lake: Lake) -> tuple[str, Counter[int]]:
    """The newest policy that was trained from data, and how many trajectories of each iteration it read."""
    made = [row for row in policies(lake).values() if row.pins]
    if not made:
        return "", Counter()
    read = ask(lake, "decisions", made[-1].pins, iteration=None).to_pylist()
    return made[-1].policy_version, Counter(row["iteration"] for row in read if row["route"] == "sft")
