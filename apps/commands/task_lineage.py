"""Implement `flywheel lineage TASK`: the origin of a task, and the data and policies that come from it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from apps.commands.readers import readers_of
from common.text import harmless
from schemas.tables.proposal import Proposal
from schemas.tables.stage import label_of
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.running.console import out
from tasks.shared.policies import policies
from tasks.shared.status import outcomes_of, quoted_by_task

PROPOSAL = {
    "maker", "maker_version", "reward_maker", "iteration", "parents", "solver", "tries", "solved", "status", "reason",
    "detail",
}  # fmt: skip
"""Fields of a proposal that `--json` shows."""


@dataclass(frozen=True, slots=True)
class TaskLineage:
    """The origin of a task, and the data and policies that come from it."""

    task_id: str
    task: GuiTask | None
    """Its row; None for a rejected proposal."""
    proposal: Proposal | None
    """The proposal of a made task; None for a task of the config."""
    ancestors: list[tuple[str, Proposal | None]]
    """The tasks that it was made from, and theirs, the nearest first, each with its proposal if it is a made task."""
    children: list[str]
    """Accepted tasks that were made from it."""
    trajectories: Mapping[int, int]
    """Number of collected trajectories by iteration."""
    success: Mapping[str, tuple[int, int]]
    """Successes and trials in each policy's evaluation, without environment failures, the newest policy last."""
    policies: list[str]
    """Policies whose training read a trajectory of it."""
    unknown: list[str]
    """Policies whose training data is unknown."""

    @property
    def instruction(self) -> str:
        """The instruction of the task or its proposal; a template for tasks with several ones."""
        row = self.task or self.proposal
        return row.instruction if row else ""

    @property
    def as_dict(self) -> dict[str, Any]:
        """Converts the lineage to JSON."""
        proposal = self.proposal and self.proposal.model_dump(mode="json", include=PROPOSAL)
        made = [
            {"task": name, "maker": one and one.maker, "parents": one.parents if one else []}
            for name, one in self.ancestors
        ]
        collected = [{"iteration": iteration, "n": n} for iteration, n in self.trajectories.items()]
        success = [{"policy": name, "successes": won, "n": n} for name, (won, n) in self.success.items()]
        return {
            "kind": "task", "task": self.task_id,
            "instruction": self.instruction,
            "split": self.task and self.task.split, "proposal": proposal, "ancestors": made, "children": self.children,
            "trajectories": collected, "success": success, "policies": self.policies,
            "unknown": self.unknown,
        }  # fmt: skip


def tasks_named(lake: Lake, name: str) -> list[str]:
    """Returns the ids of the tasks and proposals with this id or last part, in alphabetical order."""
    ids = {one for table in ("tasks", "proposals") for one in lake.read(table, ["task_id"])["task_id"].to_pylist()}
    return [name] if name in ids else sorted(one for one in ids if one.rpartition("/")[2] == name)


def lineage_of_task(lake: Lake, name: str) -> TaskLineage:
    """Reads the lineage of a task by its id."""
    proposals = {one.task_id: one for one in lake.rows(Proposal)}
    collected = lake.read("trajectories", ["trajectory_id", "iteration"], {"task_id": name}).to_pylist()
    readers, unknown = readers_of(lake, [row["trajectory_id"] for row in collected])
    used = {version for versions in readers.values() for version in versions}
    measured = outcomes_of(lake, *policies(lake))
    won = {version: quoted_by_task(each).get(name) for version, each in measured.items()}
    return TaskLineage(
        task_id=name,
        task=next(iter(lake.rows(GuiTask, {"task_id": name})), None),
        proposal=proposals.get(name),
        ancestors=[(one, proposals.get(one)) for one in _ancestors(name, proposals)],
        children=sorted(one.task_id for one in proposals.values() if name in one.parents and one.status == "accepted"),
        trajectories=dict(sorted(Counter(row["iteration"] for row in collected).items())),
        success={version: counts for version, counts in won.items() if counts},
        policies=[version for version in policies(lake) if version in used],
        unknown=unknown,
    )


def _ancestors(name: str, proposals: Mapping[str, Proposal]) -> list[str]:
    """Returns the tasks that a task was made from, and theirs, the nearest first."""
    found: dict[str, None] = {}
    left = [name]
    while left:
        row = proposals.get(left.pop(0))
        new = [one for one in (row.parents if row else ()) if one not in found and one != name]
        found |= dict.fromkeys(new)
        left += new
    return list(found)


def show_task(found: TaskLineage) -> None:
    """Prints the lineage."""
    console, row = out(), found.proposal
    facts = {"task": found.task_id, "instruction": found.instruction}
    if row is None:
        facts["origin"] = "the config"
    else:
        reason = ": ".join(one for one in (row.reason, row.detail) if one)
        facts |= {
            "origin": f"maker {row.maker} {row.maker_version}, for {label_of(row.iteration)}",
            "reward": f"checks of {row.reward_maker}",
            "status": row.status + (f": {reason}" if reason else ""),
        }
        if row.solver:
            facts["tries"] = f"{row.solved} of {row.tries} succeeded, by {row.solver}"
    for name, text in facts.items():
        console.print(f"{name:<15} {harmless(text)}", markup=False, soft_wrap=True)
    for name, one in found.ancestors:
        by = f"maker {one.maker}, from {', '.join(one.parents)}" if one else "the config"
        console.print(Text.assemble(f"{'made from':<15} {harmless(name)}  ", (harmless(by), "dim")), soft_wrap=True)
    for name in found.children:
        console.print(f"{'parent of':<15} {harmless(name)}", markup=False, soft_wrap=True)
    data = ", ".join(f"{n} of {label_of(iteration)}" for iteration, n in found.trajectories.items())
    console.print(f"{'trajectories':<15} {data or 'none'}", soft_wrap=True)
    success = ", ".join(f"{name} {won} of {n}" for name, (won, n) in found.success.items())
    console.print(f"{'success':<15} {success or 'not measured'}", markup=False, soft_wrap=True)
    console.print(f"{'policies':<15} {', '.join(found.policies) or 'none was trained on it'}", soft_wrap=True)
