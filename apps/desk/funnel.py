"""Count the trajectories of each iteration that reach training, and the reasons of the others by stage."""

from collections import Counter

from pydantic import BaseModel, ConfigDict

from storage.catalog import answers, ask
from storage.lake import Lake
from tasks.shared.policies import policies

STAGES = ("collected", "valid", "judged", "reviewed", "selected", "trained")


class Drop(BaseModel):
    """A kind of reason for which trajectories do not reach training."""

    model_config = ConfigDict(frozen=True)

    iteration: int
    stage: str
    gate: str
    why: str
    """The kind of reason: without quoted texts, ids and numbers."""
    reason: str
    """The whole reason of the first example."""
    n: int
    examples: list[str]
    """Ids of up to three trajectories."""


class Funnel(BaseModel):
    """Counts of one iteration."""

    model_config = ConfigDict(frozen=True)

    iteration: int
    counts: dict[str, int]
    """Counts by stage; `reviewed` is no stage, since only some trajectories are reviewed."""
    trained_by: str
    """The newest trained policy: `trained` counts the trajectories that were selected from its data."""
    drops: list[Drop]


def funnel_of(lake: Lake) -> list[Funnel]:
    """Computes every iteration's funnel, newest first."""
    newest, trained = _trained(lake)
    drops: dict[int, list[Drop]] = {}
    for drop in answers(lake, Drop, "funnel_drops"):
        drops.setdefault(drop.iteration, []).append(drop)

    def funnel(iteration: int, **counts: int) -> Funnel:
        counts["trained"] = trained[iteration]
        return Funnel(iteration=iteration, counts=counts, trained_by=newest, drops=drops.get(iteration, []))

    return answers(lake, funnel, "funnel_people")


def _trained(lake: Lake) -> tuple[str, Counter[int]]:
    """Finds the newest policy that was trained from data, and the number of trajectories that it read from each
    iteration."""
    made = [row for row in policies(lake).values() if row.pins]
    if not made:
        return "", Counter()
    read = ask(lake, "decisions", made[-1].pins, iteration=None).to_pylist()
    return made[-1].policy_version, Counter(row["iteration"] for row in read if row["route"] == "sft")
