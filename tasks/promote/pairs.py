"""Compare two policies on the same tasks and seeds: the pairs that only one of them won, and both step by step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from schemas.failure import UsageError
from schemas.tables.evaluation import SUITES, Evaluation
from schemas.tables.evaluation_trajectory import EvaluationTrajectory
from schemas.tables.promotion import Promotion
from schemas.tables.step import RecordedStep
from storage.lake import Lake
from tasks.promote.events import event_of
from tasks.shared.policies import ancestry, policies, policy_row
from tasks.shared.trajectories import steps_of

NAMED = 8
"""Maximum number of tasks or seeds in an error message."""


@dataclass(frozen=True, slots=True)
class SeedPair:
    """Outcomes of two policies for the same task and seed."""

    task_id: str
    seed: int
    a: bool
    """Whether the first policy succeeded."""
    b: bool
    kept: tuple[bool, bool]
    """Whether the evaluations kept the trajectories of both policies."""

    @property
    def won(self) -> Literal["a", "b"] | None:
        """Names the policy that alone succeeded; None if both or neither did."""
        return None if self.a == self.b else "a" if self.a else "b"


@dataclass(frozen=True, slots=True)
class PolicySide:
    """The evaluation of one policy on a task and seed."""

    policy: str
    evaluation: Evaluation
    row: EvaluationTrajectory | None
    """The trajectory; None if the evaluation did not keep it."""
    steps: Sequence[RecordedStep]

    @property
    def outcome(self) -> Literal["success", "failure", "environment"]:
        """Returns the outcome; `environment` is a failure that is not the policy's."""
        won = self.evaluation.success
        return "environment" if won is None else "success" if won else "failure"

    @property
    def not_kept(self) -> str:
        """Returns the reason why there is no trajectory; empty if there is one."""
        if self.row is not None:
            return ""
        if self.outcome == "success":
            return "it succeeded, and `evaluate.keep_successes` did not draw this seed"
        return f"it ended as {self.outcome}, and `evaluate.keep_failures` did not draw this seed, or it is older"


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Two policies on the same task and seed."""

    a: PolicySide
    b: PolicySide

    @property
    def task_id(self) -> str:
        """Returns the task."""
        return self.a.evaluation.task_id

    @property
    def seed(self) -> int:
        """Returns the seed."""
        return self.a.evaluation.seed

    @property
    def instruction(self) -> str:
        """Returns the instruction of the task with this seed; empty if neither trajectory is kept."""
        row = self.a.row or self.b.row
        return "" if row is None else row.instruction

    @property
    def steps(self) -> Iterator[tuple[RecordedStep | None, RecordedStep | None]]:
        """Yields the steps of both policies by number; None after the last step of one."""
        return zip_longest(self.a.steps, self.b.steps)

    @property
    def differs_at(self) -> int | None:
        """Returns the number of the first step with other actions; None without one, or if one is not kept."""
        if self.a.row is None or self.b.row is None:
            return None
        pairs = enumerate(self.steps)
        return next((at for at, (a, b) in pairs if a is None or b is None or a.actions != b.actions), None)


def evaluated_version(lake: Lake, name: str) -> str:
    """Return the version of a policy by its version, `champion`, or `explorer` for the explorer of evaluations.

    Raises:
        UsageError: the policy does not exist. The message has the existing versions.
    """
    if name != "champion" and name not in policies(lake):
        versions = set(lake.read("evaluations", ["policy_version"])["policy_version"].to_pylist())
        explorers = sorted(versions - policies(lake).keys())
        if name in explorers or (name == "explorer" and explorers):
            return name if name in explorers else explorers[-1]
    return policy_row(lake, name).policy_version


def pairs_of(lake: Lake, a: str, b: str, task: str | None = None, suites: Sequence[str] = SUITES) -> list[SeedPair]:
    """Return the pairs of outcomes of two policies, by seed and task, without environment failures.

    Args:
        lake: the lake.
        a: version of the first policy.
        b: version of the second policy.
        task: id of a task; all tasks if not given.
        suites: suites of the evaluations.
    """
    where = {"policy_version": [a, b], "suite": list(suites)} | ({"task_id": task} if task else {})
    columns = ("policy_version", "seed", "task_id")
    rows = lake.read("evaluation_trajectories", columns, where).to_pylist()
    kept = {tuple(row[name] for name in columns) for row in rows}
    won: dict[str, dict[tuple[int, str], bool]] = {a: {}, b: {}}
    for row in lake.rows(Evaluation, where):
        if row.success is not None:
            won[row.policy_version][row.seed, row.task_id] = row.success
    both = sorted(won[a].keys() & won[b].keys())
    return [SeedPair(at[1], at[0], won[a][at], won[b][at], ((a, *at) in kept, (b, *at) in kept)) for at in both]


def evaluated_pairs(lake: Lake, a: str, b: str, task: str) -> list[SeedPair]:
    """Return the pairs of outcomes of two policies on one task, named as in `side_by_side`.

    Raises:
        UsageError: a policy does not exist, or was never evaluated on the task.
    """
    first, second = (evaluated_version(lake, name) for name in (a, b))
    named = evaluated_task(lake, first, task)
    evaluated_task(lake, second, named)
    return pairs_of(lake, first, second, named)


def promotion_pairs(lake: Lake, event: Promotion) -> list[SeedPair]:
    """Return the pairs that a decision counted: `a` is the challenger, and `b` the champion before the decision."""
    return pairs_of(lake, event.policy_version, event.against, suites=SUITES[:1])[: event.pairs]


def evaluated_on(lake: Lake, task: str, seed: int) -> list[str]:
    """Return the versions of the policies that were evaluated on a task and seed, the latest iteration first."""
    rows = lake.rows(Evaluation, {"task_id": task, "seed": seed, "suite": list(SUITES)})
    return list(dict.fromkeys(one.policy_version for one in sorted(rows, key=lambda row: -row.iteration)))


def opponent_of(lake: Lake, version: str, others: Sequence[str]) -> str:
    """Return the policy to compare a policy with, among the evaluated `others`.

    It is the opponent of the policy's promotion, or else its nearest ancestor, or else another one. It is the policy
    itself if there is no other.
    """
    decision = event_of(lake, f"challenge:{version}")
    wanted = [*([decision.against] if decision else []), *ancestry(policies(lake), version)[1:], *others]
    return next((one for one in wanted if one in others and one != version), version)


def evaluated_task(lake: Lake, version: str, name: str) -> str:
    """Return the id of a task that a policy was evaluated on, by its id or its last part.

    Raises:
        UsageError: the policy was never evaluated on the task. The message has its tasks.
    """
    where = {"policy_version": version, "suite": list(SUITES)}
    known = sorted(set(lake.read("evaluations", ["task_id"], where)["task_id"].to_pylist()))
    found = [one for one in known if name in (one, one.rpartition("/")[2])]
    if not found:
        listed = ", ".join(known[:NAMED]) + (f" and {len(known) - NAMED} more" if len(known) > NAMED else "")
        raise UsageError(f"`task`: {version} was never evaluated on {name!r}.", f"It was on: {listed or 'no task'}.")
    return found[0]


def side_by_side(lake: Lake, a: str, b: str, task: str, seed: int) -> SideBySide:
    """Return two policies on one seed of a task, each with its steps if its evaluation kept them.

    Args:
        lake: the lake.
        a: the first policy: its version, `champion` or `explorer`.
        b: the second policy.
        task: the task's id, or its last part.
        seed: the seed.

    Raises:
        UsageError: a policy does not exist, or was never evaluated on the task or the seed.
    """
    first, second = (evaluated_version(lake, name) for name in (a, b))
    named = evaluated_task(lake, first, task)
    evaluated_task(lake, second, named)
    return SideBySide(_side(lake, first, named, seed), _side(lake, second, named, seed))


def require_kept(pair: SideBySide) -> None:
    """Raise UsageError with the reason if the evaluations kept neither trajectory of a pair."""
    if pair.a.row is None and pair.b.row is None:
        both = "; ".join(f"{one.policy}: {one.not_kept}" for one in (pair.a, pair.b))
        fix = "Name another seed, or raise `evaluate.keep_successes` for later evaluations."
        raise UsageError(f"`seed`: neither trajectory of seed {pair.seed} was kept. {both}.", fix)


def _side(lake: Lake, version: str, task: str, seed: int) -> PolicySide:
    where = {"policy_version": version, "suite": list(SUITES), "task_id": task}
    rows = {row.seed: row for row in lake.rows(Evaluation, where)}
    if seed not in rows:
        fix = f"Its seeds are {min(rows)} to {max(rows)}."
        raise UsageError(f"`seed`: {version} was not evaluated on seed {seed} of {task}.", fix)
    kept = {"iteration": rows[seed].iteration, "policy_version": version, "task_id": task, "seed": seed}
    row = next(iter(lake.rows(EvaluationTrajectory, kept)), None)
    return PolicySide(version, rows[seed], row, steps_of(lake, row) if row else ())
