"""Implement `flywheel lineage`: the sources of a policy or a task, and the policies made from a trajectory."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from apps.commands.readers import made_from_readers, readers_of, trained_on
from apps.commands.task_lineage import TaskLineage, lineage_of_task, show_task, tasks_named
from common.text import counted, harmless
from schemas.failure import UsageError
from schemas.tables.annotation import Annotation
from schemas.tables.forgotten import Forgotten
from schemas.tables.policy import PolicyVersion
from schemas.tables.promotion import Promotion
from schemas.tables.quality import QualityOverride
from schemas.tables.review import Review
from schemas.tables.stage import label_of
from schemas.tables.trajectory import Trajectory
from schemas.tables.verdict import DECISION, Verdict
from storage.catalog import answers, ask
from storage.lake import Lake
from tasks.overrides import overridden
from tasks.promote.events import ROLLED_BACK, as_dict, event_of, rolled_back, standing
from tasks.running.console import make_table, out
from tasks.shared.policies import made_from, policies, policy_row
from tasks.shared.reviews import reviews_of
from tasks.shared.training_ledger import decisions_of, imitates
from tasks.shared.trajectories import trajectories_beginning, trajectory_of

VERDICT = {"gate", "gate_version", "passed", "reason", "route"}
REVIEW = {"revision", "person", "decision", "step", "undoes"}
TRAJECTORY = {
    "iteration", "task_id", "seed", "policy", "policy_version", "instruction", "n_steps", "reward", "success",
    "failure_boundary",
}  # fmt: skip
"""Fields of a trajectory that `--json` shows."""
NAMED = 5
"""Maximum ids in an error message."""


@dataclass(frozen=True, slots=True)
class Contributor:
    """A source of a training's data: a judge, or the author of a kind of annotations."""

    kind: str
    name: str
    version: str | None
    n: int


@dataclass(frozen=True, slots=True)
class PolicyLineage:
    """The data, parents and reviews from which a policy was made."""

    row: PolicyVersion
    chain: list[PolicyVersion]
    """The policy, its parent, and so on."""
    checkpoint: str
    trajectories: list[str]
    """Trajectories that the policy's training read."""
    by_task: Mapping[tuple[int, str], int]
    """Number of these trajectories by iteration and task."""
    by_route: Mapping[str, int]
    """Number of these trajectories by route at the time of the training, the most frequent first; empty without a
    filter run."""
    reviews: list[str]
    """Reviewers' decisions that the policy's training read."""
    by_person: Mapping[tuple[str, str], int]
    """Number of these decisions by reviewer and kind."""
    overridden: list[QualityOverride]
    makers: list[Contributor]
    decision: Promotion | None
    """Decision of the policy's promotion."""
    fallen: Mapping[str, Promotion]
    """Policies of the chain that were rolled back, each with its rollback."""

    @property
    def imitated(self) -> int | None:
        """Number of imitated trajectories, as in the funnel; None if the method imitates none."""
        return self.by_route.get("sft", 0) if imitates(self.row.method) else None

    @property
    def metrics(self) -> dict[str, Any]:
        """Returns the metrics of the policy's training."""
        return json.loads(self.row.metrics or "{}")

    @property
    def config(self) -> dict[str, Any]:
        """Returns the whole config of the policy's training."""
        return json.loads(self.row.config)

    @property
    def as_dict(self) -> dict[str, Any]:
        """Converts the lineage to JSON."""
        row, link = self.row, {"parent", "iteration", "method", "status", "code"}
        return {
            "kind": "policy", "policy": row.policy_version, **row.model_dump(include={"code", "seed", "repeats"}),
            "chain": [
                {"policy": one.policy_version, **one.model_dump(include=link), "rolled_back": self._why_back(one)}
                for one in self.chain
            ],
            "data_versions": row.pins, "checkpoint": self.checkpoint, "metrics": self.metrics, "config": self.config,
            "trajectories": _counted(self.trajectories, self.by_task, "iteration", "task"), "routes": self.by_route,
            "reviews": _counted(self.reviews, self.by_person, "person", "decision"), "makers": self.makers,
            "overridden": [one.model_dump(exclude={"broke"}) for one in self.overridden],
            "training_set": json.loads(row.training_set or "null"),
            "decision": self.decision and as_dict(self.decision),
        }  # fmt: skip

    def _why_back(self, one: PolicyVersion) -> str | None:
        return self.fallen[one.policy_version].reason if one.policy_version in self.fallen else None


@dataclass(frozen=True, slots=True)
class TrajectoryLineage:
    """Verdicts and reviews of a trajectory, and the policies that were made from it."""

    row: Trajectory
    verdicts: list[Verdict]
    thoughts: Mapping[tuple[str, str | None], int]
    """Number of the trajectory's steps with a thought, by author and version."""
    reviews: list[Review]
    policies: list[str]
    """Policies whose training read the trajectory."""
    through: list[str]
    """Policies that were made from these policies."""
    unknown: list[str]
    """Policies whose training data is unknown."""

    @property
    def as_dict(self) -> dict[str, Any]:
        """Converts the lineage to JSON."""
        return {
            "kind": "trajectory", "trajectory": self.row.trajectory_id, **self.row.model_dump(include=TRAJECTORY),
            "verdicts": [one.model_dump(include=VERDICT) for one in self.verdicts],
            "thoughts": _named(self.thoughts, "author", "version"),
            "reviews": [one.model_dump(include=REVIEW) for one in self.reviews], "policies": self.policies,
            "through": self.through, "unknown": self.unknown,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ForgottenLineage:
    """Policies that were made from a forgotten trajectory."""

    row: Forgotten
    through: list[str]

    @property
    def policies(self) -> list[str]:
        """Policies whose training read the trajectory."""
        return self.row.policies

    @property
    def as_dict(self) -> dict[str, Any]:
        """Converts the lineage to JSON."""
        known = self.row.model_dump(include={"reason", "policies", "done", "created_at"})
        return {"kind": "forgotten", "trajectory": self.row.trajectory_id, **known, "through": self.through}


Lineage = PolicyLineage | TaskLineage | TrajectoryLineage | ForgottenLineage


def lineage_of(lake: Lake, name: str) -> Lineage:
    """Reads the lineage of a policy, a task, or a trajectory, including a forgotten one; raises UsageError if there is
    none.

    A task is named by its id or its last part, and a trajectory by its id, or by a unique beginning that is at least as
    long as on pages.
    """
    if name == "champion" or name in policies(lake):
        return lineage_of_policy(lake, policy_row(lake, name))
    if tasks := tasks_named(lake, name):
        if len(tasks) > 1:
            raise UsageError(f"{len(tasks)} tasks are called `{name}`.", f"Name one whole: {', '.join(tasks[:NAMED])}.")
        return lineage_of_task(lake, tasks[0])
    if rows := lake.rows(Trajectory, {"trajectory_id": name}):
        return _of_trajectory(lake, rows[0])
    if lake.count("evaluation_trajectories", {"trajectory_id": name}):
        trajectory_of(lake, name)  # raises the error that no training uses it
    if gone := lake.rows(Forgotten, {"trajectory_id": name}):
        return ForgottenLineage(gone[0], made_from(lake, gone[0].policies))
    begin_so = trajectories_beginning(lake, name)
    if len(begin_so) == 1:
        return lineage_of(lake, begin_so[0])
    if begin_so:
        problem = f"{len(begin_so):,} trajectories in {lake.uri} begin with `{name}`."
        raise UsageError(problem, f"Name one whole: {', '.join(begin_so[:NAMED])}.")
    known = ", ".join(policies(lake)) or "none"
    raise UsageError(f"There is no policy, task or trajectory `{name}` in {lake.uri}.", f"Policies: {known}.")


def lineage_of_policy(lake: Lake, policy: PolicyVersion) -> PolicyLineage:
    """Collects the sources of a policy."""
    rows = policies(lake)
    chain = [policy]
    while (parent := chain[-1].parent) in rows:
        chain.append(rows[parent])
    trained, learned, fallen = trained_on(lake, policy), decisions_of(lake, policy), rolled_back(lake)
    return PolicyLineage(
        row=policy,
        chain=chain,
        checkpoint=lake.blobs.store.path(policy.checkpoint),
        trajectories=trained,
        by_task=_by_task(lake, policy, trained),
        by_route=_by_route(lake, policy, trained),
        reviews=[one.review_id for one in learned],
        by_person=dict(sorted(Counter((one.person, one.decision) for one in learned).items())),
        overridden=overridden(lake, policy.pins.get("quality_overrides")),
        makers=_makers(lake, policy),
        decision=event_of(lake, f"challenge:{policy.policy_version}"),
        fallen={one.policy_version: fallen[one.policy_version] for one in chain if one.policy_version in fallen},
    )


def _makers(lake: Lake, policy: PolicyVersion) -> list[Contributor]:
    known = {"verdicts", "trajectories"} <= policy.pins.keys()
    return answers(lake, Contributor, "lineage_makers", policy.pins) if known else []


def _counted(ids: list[str], by: Mapping[Any, int], *names: str) -> dict[str, Any]:
    return {"count": len(ids), "by": _named(by, *names), "ids": ids}


def _named(by: Mapping[Any, int], *names: str) -> list[dict[str, Any]]:
    return [dict(zip((*names, "n"), (*about, n), strict=True)) for about, n in by.items()]


def _by_task(lake: Lake, policy: PolicyVersion, ids: list[str]) -> Mapping[tuple[int, str], int]:
    if not ids:
        return {}
    where, version = {"trajectory_id": ids}, policy.pins["trajectories"]
    stored = lake.read("trajectories", ["iteration", "task_id"], where, version)
    counts = Counter(zip(stored["iteration"].to_pylist(), stored["task_id"].to_pylist(), strict=True))
    return dict(sorted(counts.items()))


def _by_route(lake: Lake, policy: PolicyVersion, ids: list[str]) -> Mapping[str, int]:
    if not ids:
        return {}
    routes = dict.fromkeys(ids, "")
    decided = ask(lake, "decisions", policy.pins, iteration=None).to_pylist()
    routes |= {row["trajectory_id"]: row["route"] for row in decided if row["trajectory_id"] in routes}
    return dict(Counter(routes.values()).most_common())


def _of_trajectory(lake: Lake, row: Trajectory) -> TrajectoryLineage:
    name = row.trajectory_id
    verdicts = lake.rows(Verdict, {"trajectory_id": name})
    thoughts = lake.rows(Annotation, {"trajectory_id": name, "kind": "thought"})
    trained, unknown = readers_of(lake, [name])
    through, unknown = made_from_readers(lake, trained[name], unknown)
    return TrajectoryLineage(
        row=row,
        verdicts=sorted(verdicts, key=lambda one: (one.created_at, one.gate == DECISION)),
        thoughts=Counter((row.author, row.version) for row in thoughts),
        reviews=reviews_of(lake, name),
        policies=trained[name],
        through=through,
        unknown=unknown,
    )


def show_lineage(found: Lineage) -> None:
    """Prints the lineage."""
    match found:
        case PolicyLineage():
            _show_policy(found)
        case TrajectoryLineage():
            _show_trajectory(found)
        case TaskLineage():
            show_task(found)
        case ForgottenLineage():
            console = out()
            console.print(f"{'trajectory':<15} {found.row.trajectory_id}")
            console.print(f"{'forgotten':<15} {found.row.created_at}")
            console.print(f"{'reason':<15} {found.row.reason}")
            _show_reached(found)


def _show_reached(found: TrajectoryLineage | ForgottenLineage) -> None:
    console = out()
    console.print(f"{'policies':<15} {', '.join(found.policies) or 'none was trained on it'}", soft_wrap=True)
    if found.through:
        console.print(f"{'made from these':<15} {', '.join(found.through)}", soft_wrap=True)


def _show_policy(found: PolicyLineage) -> None:
    console = out()
    for depth, link in enumerate(found.chain):
        made = f"iteration {link.iteration}, {link.method}, {standing(link, found.fallen)}, code {link.code[:12]}"
        policy = "  " * depth + ("from " if depth else "") + harmless(link.policy_version)
        console.print(Text.assemble(f"{policy}  ", (made, "dim")))
    first = json.loads(found.chain[-1].metrics or "{}")
    if first.get("hub"):
        console.print(f"\nbase model      {first['hub']} at {first['revision']}")
    versions = ", ".join(f"{table} {version}" for table, version in sorted(found.row.pins.items()))
    console.print(f"\ntable versions  {versions or 'none: made from nothing'}")
    console.print(f"config          {found.config.get('name', '')}, seed {found.row.seed} (whole with --json)")
    console.print(f"checkpoint      {found.checkpoint}")
    routes = "".join(f", {n} {route or 'without a route'}" for route, n in found.by_route.items())
    console.print(
        f"read            {counted(len(found.trajectories), 'trajectory', 'trajectories')}{routes} (ids with --json)"
    )
    decided = ", ".join(f"{n} {decision} by {person}" for (person, decision), n in found.by_person.items())
    console.print(f"people          {decided or 'nothing that people decided'}")
    for row in found.overridden:
        about = f"{row.table}, {row.expectation} of {label_of(row.iteration)}"
        console.print(f"quality         {row.person} overrode {about}: {row.reason}")
    for one in found.makers:
        console.print(f"{one.kind:<15} {one.n:,} by {one.name}{_of(one.version)}")
    if found.row.repeats:
        console.print(f"repeats         {found.row.repeats}")
    if found.decision:
        console.print(f"decision        {found.decision.decision}: {found.decision.reason}")
    if back := found.fallen.get(found.row.policy_version):
        console.print(f"{ROLLED_BACK:<15} {back.reason}")
    console.print()
    table = make_table("iteration", "<task", "trajectories")
    for (iteration, task), n in found.by_task.items():
        table.add_row(str(iteration), task, str(n))
    if found.by_task:
        console.print(table)


def _of(version: str | None) -> str:
    return f" ({version})" if version else ""


def _show_trajectory(found: TrajectoryLineage) -> None:
    console = out()
    console.print(f"{'trajectory':<15} {found.row.trajectory_id}")
    for key in ("task_id", "seed", "iteration", "policy", "policy_version", "instruction", "success"):
        console.print(f"{key:<15} {getattr(found.row, key)}")
    for verdict in found.verdicts:
        word = "passed" if verdict.passed else "refused"
        console.print(f"{verdict.gate:<15} {word}: {verdict.reason} ({verdict.route})")
    for review in found.reviews:
        console.print(f"{'person':<15} {review.person}: {review.decision}")
    for (author, version), n in found.thoughts.items():
        console.print(f"{'thoughts':<15} {n} by {author}{_of(version)}")
    _show_reached(found)
    if found.unknown:
        console.print(f"{'not known':<15} {', '.join(found.unknown)}: their training data no longer exists")
