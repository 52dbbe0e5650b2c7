"""Read the status of iterations and policies, with confidence intervals, for `flywheel status` and other views.

The module also finds the environment failures of an iteration, by task.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curation.intervals import Interval, mean_interval, wilson
from rollout.failures import Ended, FailedTask, always_failing
from schemas.failure import EnvironmentDown
from schemas.tables.stage import STAGES
from schemas.tables.trajectory import split_of
from storage.catalog import answers, ask
from storage.lake import Lake

Ends = tuple[float, float]
"""Ends of a 95 % interval, over trajectories with tasks as strata."""


@dataclass(frozen=True, slots=True)
class Success:
    """Success rate of a policy over tasks with equal weights."""

    success: float
    ci: Ends
    n: int

    @property
    def text(self) -> str:
        """Returns the mean and its interval as text."""
        return "{:.3f} ({:.3f} to {:.3f})".format(self.success, *self.ci)


@dataclass(frozen=True, slots=True)
class PolicySuccess(Success):
    """Success rate of any policy on held-out seeds of the suite."""

    held_out: Success | None
    """Success rate on held-out tasks."""
    synthesized: Success | None
    """Success rate on made tasks."""


@dataclass(frozen=True, slots=True)
class AcceptanceRate:
    """P(V=1 | iteration): the share of trajectories that every gate passed."""

    rate: float
    ci: Ends
    n: int


@dataclass(frozen=True, slots=True)
class FixedMix(AcceptanceRate):
    """Acceptance rate over tasks that the policy had in each of its iterations, with equal weights."""

    tasks: int


@dataclass(frozen=True, slots=True)
class IterationStatus:
    """Status of one iteration. A missing number and its interval are None."""

    iteration: int
    policy: str | None
    success: float | None
    ci: Ends | None
    n: int
    held_out: Success | None
    """Success rate on held-out tasks."""
    synthesized: Success | None
    """Success rate on made tasks."""
    explorer: float | None
    explorer_version: str | None
    trajectories: int
    verified: AcceptanceRate | None
    """Acceptance rate of trajectories that the policy made alone."""
    verified_fixed_mix: FixedMix | None
    promoted: bool
    wall_s: float
    orchestration_s: float | None
    """Seconds between the stages, which `wall_s` does not include."""
    stages_s: Mapping[str, float]

    @property
    def explorer_name(self) -> str:
        """Name of the measured explorer."""
        return explorer_name(self.explorer_version or "")

    @property
    def finished(self) -> bool:
        """Whether the last stage is recorded."""
        return STAGES[-1] in self.stages_s


def explorer_name(version: str) -> str:
    """Return `explorer` for the default explorer, and `explorer VERSION` for any other."""
    return "explorer" if not version or version.startswith("explorer") else f"explorer {version}"


@dataclass(frozen=True, slots=True)
class VerifiedRate:
    """P(V=1 | iteration): the acceptance rate of trajectories of one kind of policy in one iteration."""

    iteration: int
    kind: str
    at: Interval
    fixed_mix: FixedMix | None


def iterations(lake: Lake) -> list[IterationStatus]:
    """Return all iterations, oldest first."""
    return [_entry(row) for row in ask(lake, "status").to_pylist()]


def begun_iterations(lake: Lake) -> list[IterationStatus]:
    """Return the iterations that have started, oldest first, without the preparation."""
    return [row for row in iterations(lake) if row.iteration >= 0]


def success_of(lake: Lake, version: str) -> PolicySuccess | None:
    """Return the success rate of a policy; None if it was not measured on the suite."""
    found = {row["suite"]: _success(row, "task") for row in ask(lake, "policy_success", policy=version).to_pylist()}
    suite = found.get("suite")
    return suite and PolicySuccess(suite.success, suite.ci, suite.n, found.get("held_out"), found.get("synthesized"))


@dataclass(frozen=True, slots=True)
class EvaluationOutcome:
    """Outcome of an actor on a held-out seed of a task, without environment failures."""

    actor: str
    """Version of a policy, or `explorer`."""
    suite: str
    """One of `schemas.tables.evaluation.SUITES`."""
    task_id: str
    seed: int
    success: bool
    quoted: bool
    """Whether the actor's success is stated for this seed (`storage/queries/views/evaluation_outcomes.sql`)."""


def outcomes_of(lake: Lake, *actors: str) -> dict[str, list[EvaluationOutcome]]:
    """Return the outcomes of policies, or of `explorer`, by actor."""
    found: dict[str, list[EvaluationOutcome]] = {actor: [] for actor in actors}
    for one in answers(lake, EvaluationOutcome, "outcomes", actors=list(actors)):
        found[one.actor].append(one)
    return found


def quoted_by_task(outcomes: Iterable[EvaluationOutcome]) -> dict[str, tuple[int, int]]:
    """Return successes and trials by task, on the seeds that success is stated for."""
    found: dict[str, tuple[int, int]] = {}
    for one in outcomes:
        if one.quoted:
            won, tried = found.get(one.task_id, (0, 0))
            found[one.task_id] = (won + one.success, tried + 1)
    return found


Shared = tuple[dict[tuple[str, int], bool], dict[tuple[str, int], bool]]
"""Success of two actors by task and seed."""


def shared_outcomes(
    a: Iterable[EvaluationOutcome], b: Iterable[EvaluationOutcome], suites: Iterable[str] = ("suite",)
) -> Shared:
    """Return the success of two actors on the tasks and seeds of both, by which they are compared.

    In each suite, these are test seeds if both were measured on some, else validation seeds.
    """
    sides, found = (tuple(a), tuple(b)), (dict[tuple[str, int], bool](), dict[tuple[str, int], bool]())
    for suite in suites:
        one, two = ({(row.task_id, row.seed): row.success for row in side if row.suite == suite} for side in sides)
        shared = one.keys() & two.keys()
        seeds = {at for at in shared if split_of(at[1]) == "test"} or shared
        found[0].update({at: one[at] for at in seeds})
        found[1].update({at: two[at] for at in seeds})
    return found


def verified(lake: Lake) -> list[VerifiedRate]:
    """Return P(V=1 | iteration) by iteration and kind of policy."""
    return answers(lake, _verified, "verified")


def _verified(
    iteration: int, kind: str, n: int, verified: int, task_verified: list[int] | None, task_trials: list[int] | None
) -> VerifiedRate:
    trials = task_trials or []
    at = mean_interval(task_verified or [], trials)
    fixed_mix = FixedMix(at.mean, (at.low, at.high), at.n, len(trials)) if trials else None
    return VerifiedRate(iteration, kind, wilson(verified, n), fixed_mix)


def _entry(row: Mapping[str, Any]) -> IterationStatus:
    own_success = _success(row, "task")
    counts = [row[f"own_{name}"] for name in ("n", "verified", "task_verified", "task_trials")]
    own = None if row["own_n"] is None else _verified(row["iteration"], "policy", *counts)
    return IterationStatus(
        iteration=row["iteration"],
        policy=row["policy_version"],
        success=row["success"],
        ci=own_success and own_success.ci,
        n=row["n"],
        held_out=_success(row, "held_out"),
        synthesized=_success(row, "synthesized"),
        explorer=row["explorer"],
        explorer_version=row["explorer_version"],
        trajectories=row["trajectories"],
        verified=own and AcceptanceRate(own.at.mean, (own.at.low, own.at.high), own.at.n),
        verified_fixed_mix=own and own.fixed_mix,
        promoted=row["promoted"],
        wall_s=row["wall_s"],
        orchestration_s=row["orchestration_s"],
        stages_s=dict(row["stages_s"] or []),
    )


def _success(row: Mapping[str, Any], of: str) -> Success | None:
    """Return the success rate from a row's counts by task; None if the row has no counts."""
    successes: Sequence[int] | None = row[f"{of}_successes"]
    at = mean_interval(successes or [], row[f"{of}_trials"] or [])
    return Success(at.mean, (at.low, at.high), at.n) if at.n else None


def failing(lake: Lake, iteration: int) -> list[FailedTask]:
    """Return the tasks whose trajectories in an iteration all had environment failures, retries included."""
    return always_failing(_ended(lake, iteration))


def require_any(lake: Lake, iteration: int) -> None:
    """Raise EnvironmentDown if an iteration has trajectories and all of them had environment failures."""
    ended = _ended(lake, iteration)
    found = always_failing(ended)
    if ended and sum(one.trajectories for one in found) == len(ended):
        raise EnvironmentDown(
            f"Nothing of iteration {iteration} worked: all {len(ended)} trajectories failed, not for the policy's "
            f"fault. {found[0].text}.",
            "`flywheel doctor` checks the requirements; the next iteration rolls out anew.",
        )


def _ended(lake: Lake, iteration: int) -> list[Ended]:
    rows = lake.read("trajectories", ["task_id", "failure_boundary", "failure_reason"], {"iteration": iteration})
    return [(row["task_id"], row["failure_boundary"], row["failure_reason"]) for row in rows.to_pylist()]
