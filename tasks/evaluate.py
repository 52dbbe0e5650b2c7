"""Stage `evaluate`: evaluate policies greedily, from pixels alone, on held-out seeds and held-out tasks."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from common.text import counted
from curation.intervals import mean_interval
from curation.pictures import difference_hash
from models.policy import EXPLORERS, Policy
from models.vlm import VlmPolicy
from rollout.actor import Actor
from rollout.failures import Ended, always_failing
from rollout.runner import Sink, attempts, roll_out_all
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config
from schemas.tables.evaluation import SUITES, Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.stage import PlainResult, StageResult
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.promote.contest import broken_making, inaction, interim_looks, looked_at, opponent
from tasks.running.console import bar, print_line
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.general import GeneralCheck, general_checks, measure_general
from tasks.shared.kept import drop_partial, keep
from tasks.shared.policies import made_in, measured_ancestor
from tasks.shared.trajectories import SeedsOf, measured_suites, validation_seeds
from tasks.shared.weights import load_policy

MOST_UNREAD = 200
"""Characters that `evaluations` keeps of a reply without an action."""


@dataclass(frozen=True, slots=True)
class TaskRate:
    """Success rate of a policy on one task."""

    success: float
    n: int
    reward: float
    """Mean of the raw rewards, such as scores of a game."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Success rate of a policy."""

    success: float | None
    """Mean over tasks. If every trajectory had an environment failure, the mean and both ends of the interval are
    None."""
    ci: tuple[float | None, float | None]
    """95 % interval over trajectories, with tasks as strata."""
    tasks: Mapping[str, TaskRate]
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of environment failures, by boundary. No rate includes them."""
    unread: str = ""
    """A sentence with the first reply, if every trajectory ended in a reply without an action; else empty."""

    @property
    def text(self) -> str:
        """Returns the mean and its interval as text, or the reason why the mean is unknown."""
        if self.success is not None:
            return "{:.3f} ({:.3f} to {:.3f})".format(self.success, *self.ci)
        where = ", ".join(f"{count} in the {boundary}" for boundary, count in self.failed.items())
        return f"unknown (all failed: {where})" if where else "unknown (nothing was rolled out)"


class EvaluationResult(StageResult):
    """Success of one policy."""

    policy: str
    suite: Summary
    held_out: Summary
    synthesized: Summary | None = None
    """Success on made tasks; None if there are none."""
    general: str = ""
    """Success on general questions before and after the training, as a sentence; empty if it was not measured."""
    tasks: Mapping[str, int] = Field(exclude=True)
    """Number of tasks by suite."""

    def __str__(self) -> str:
        text = f"success {self.suite.text} over {counted(self.tasks['suite'], 'task')}"
        if unseen := self.tasks["held_out"]:
            text += f"; never trained on: {self.held_out.text} over {unseen}"
        if self.synthesized:
            text += f"; made tasks: {self.synthesized.text} over {self.tasks['synthesized']}"
        return "; ".join(filter(None, (text, self.general, self.suite.unread)))


@stage("evaluate", retry=True)
def evaluate_candidate(run: Run, iteration: int) -> StageResult:
    """Evaluate the candidate on held-out seeds of the suite, and on held-out tasks."""
    config, lake = run.config, run.lake
    candidate = made_in(lake, iteration)
    if candidate is None:
        return PlainResult(text="nothing was trained")
    return measure_challenger(config, lake, candidate)


def measure_challenger(config: Config, lake: Lake, candidate: PolicyVersion) -> StageResult:
    """Evaluate a policy until its promotion is decided, or on all seeds if it is the lake's first policy.

    A broken policy is not evaluated.
    """
    if (broken := broken_making(lake, candidate)) is not None:
        return PlainResult(text=f"not measured: {broken.reason}", numbers={"policy": candidate.policy_version})
    policy, against = load_policy(config, lake, candidate.policy_version), opponent(lake, candidate)
    if against.policy_version == candidate.policy_version:
        return measure_suites(config, lake, policy, candidate.iteration)
    general = _forgetting(config, lake, candidate, policy)
    if general is not None and general.forgets and config.general.on_drop == "reject":
        return PlainResult(text=f"not measured: {general.text}", numbers={"policy": candidate.policy_version})

    def enough(seeds: int) -> int | None:
        suite: dict[str, SeedsOf] = {"suite": validation_seeds(config, "train", seeds)}
        if _missing(lake, against.policy_version, suite):
            measure(config, lake, load_policy(config, lake, against.policy_version), suite, against.iteration)
        found = looked_at(config, lake, candidate, against, seeds)
        whole = found is not None and found.promoted and config.promote.complete
        return None if found is None else config.evaluate.seeds if whole else seeds

    result = measure_suites(config, lake, policy, candidate.iteration, enough)
    return result if general is None else result.model_copy(update={"general": general.text})


def _forgetting(config: Config, lake: Lake, candidate: PolicyVersion, policy: VlmPolicy) -> GeneralCheck | None:
    """Ask the candidate and the policy that its training began from the held-out general questions, and compare."""
    if not config.general.samples or candidate.parent is None:
        return None
    parent = measured_ancestor(lake, candidate.parent)
    for row, load in (
        (parent, lambda: load_policy(config, lake, parent.policy_version)),
        (candidate, lambda: policy),
    ):
        measure_general(config, lake, row.policy_version, row.iteration, load)
    return general_checks(lake).get(candidate.policy_version)


def measure_suites(
    config: Config, lake: Lake, policy: Policy, iteration: int, enough: Callable[[int], int | None] | None = None
) -> EvaluationResult:
    """Evaluate one policy on the suite and on the held-out tasks; return the means with their intervals.

    Args:
        config: config with the suites and seeds.
        lake: the lake for the outcomes.
        policy: the policy.
        iteration: iteration of the rows.
        enough: called at every interim look with the number of seeds per task so far. It returns a sufficient number of
            seeds, or None to continue. All seeds are evaluated if it is not given.
    """
    plans = measured_suites(config, lake)
    tasks = {name: len(plans.get(name, ())) for name in SUITES}
    for seeds in interim_looks(config) if enough else ():
        measure(config, lake, policy, {**plans, "suite": validation_seeds(config, "train", seeds)}, iteration)
        if enough is not None and (last := enough(seeds)) is not None:
            plans["suite"] = validation_seeds(config, "train", last)
            break
    rows = measure(config, lake, policy, plans, iteration)
    wanted = SUITES if tasks["synthesized"] else SUITES[:2]
    suites = {name: summary([row for row in rows if row.suite == name]) for name in wanted}
    return EvaluationResult(
        policy=policy.version,
        suite=suites["suite"],
        held_out=suites["held_out"],
        synthesized=suites.get("synthesized"),
        tasks=tasks,
    )


def measure(
    config: Config, lake: Lake, policy: Policy, plans: Mapping[str, SeedsOf], iteration: int
) -> list[Evaluation]:
    """Roll out the missing trajectories of a policy's evaluation, and return all rows of these suites.

    A trajectory's steps and screenshots are stored before its row of `evaluations`. If the process is killed in
    between, the next call rolls the trajectory out again.
    """
    planned = [
        evaluation_of(policy, task, seed, iteration, lake.lake_id)
        for task, seed in _missing(lake, policy.version, plans)
    ]
    suites = {task.task_id: suite for suite, plan in plans.items() for task, _ in plan}

    def sink(records: list[FinishedTrajectory]) -> None:
        keep(lake, config.evaluate, [one for one in records if suites[one.trajectory.task_id] in SUITES], suites)
        lake.append("evaluations", evaluation_rows(records, suites))

    if planned:
        drop_partial(lake, iteration, attempts(planned))
        perform(config, policy, planned, sink)
    return lake.rows(Evaluation, {"policy_version": policy.version, "suite": list(plans)})


def _missing(lake: Lake, version: str, plans: Mapping[str, SeedsOf]) -> list[tuple[GuiTask, int]]:
    """Return the tasks and seeds on which the policy was not measured yet."""
    where = {"policy_version": version, "suite": list(plans)}
    done = {(row.suite, row.task_id, row.seed) for row in lake.rows(Evaluation, where)}
    return [
        (task, seed)
        for suite, plan in plans.items()
        for task, seeds in plan
        for seed in seeds
        if (suite, task.task_id, seed) not in done
    ]


def perform(
    config: Config, policy: Policy, planned: Sequence[PlannedTrajectory], sink: Sink, temperature: float = 0.0
) -> None:
    """Roll out trajectories, greedily unless a temperature is given, and pass them to `sink`. Nothing is stored.

    Reports tasks whose trajectories all had environment failures, with the reason.
    """
    ended: list[Ended] = []

    def noting(records: list[FinishedTrajectory]) -> None:
        made = [record.trajectory for record in records]
        ended.extend((one.task_id, one.failure_boundary, one.failure_reason) for one in made)
        sink(records)

    with Actor(policy, temperature) as actor:
        roll_out_all(config, planned, lambda _: [actor], noting, bar, "evaluate")
    for one in always_failing(ended):
        print_line(one.text)


def evaluation_rows(records: Sequence[FinishedTrajectory], suites: Mapping[str, str]) -> list[Evaluation]:
    """Return the rows of `evaluations` for finished trajectories. `suites` maps a task to its suite."""
    return [_row(record, suites[record.trajectory.task_id]) for record in records]


def _row(record: FinishedTrajectory, suite: str) -> Evaluation:
    made, steps = record.trajectory, record.steps
    screen = (steps[-1].next_screenshot or steps[-1].screenshot) if steps and suite == "held_out" else None
    return Evaluation(
        policy_version=made.policy_version,
        suite=suite,
        task_id=made.task_id,
        seed=made.seed,
        iteration=made.iteration,
        success=made.success,
        reward=made.reward,
        n_steps=made.n_steps,
        failure_boundary=made.failure_boundary,
        unparsable=bool(steps) and not steps[-1].actions,
        unread=steps[-1].raw_text[:MOST_UNREAD] if steps and not steps[-1].actions else None,
        think_ms=sum(step.think_ms for step in steps) / len(steps) if steps else None,
        final_phash=None if screen is None else difference_hash(record.screenshots[screen].png),
    )


def explorer_policy(config: Config) -> Policy:
    """Return the explorer, which is the baseline of comparisons."""
    return EXPLORERS.class_of(config.collect.explorer)()


def summary(rows: Sequence[Evaluation]) -> Summary:
    """Summarize evaluations, without environment failures."""
    by_task: dict[str, list[Evaluation]] = {}
    failed: Counter[str] = Counter()
    for row in rows:
        if row.success is not None:
            by_task.setdefault(row.task_id, []).append(row)
        elif row.failure_boundary is not None:
            failed[row.failure_boundary] += 1
    if not by_task:
        return Summary(None, (None, None), {}, dict(failed))
    successes = {task: sum(bool(row.success) for row in of) for task, of in by_task.items()}
    interval = mean_interval(list(successes.values()), [len(of) for of in by_task.values()])
    tasks = {
        task: TaskRate(successes[task] / len(of), len(of), sum(row.reward or 0.0 for row in of) / len(of))
        for task, of in sorted(by_task.items())
    }
    return Summary(interval.mean, (interval.low, interval.high), tasks, dict(failed), inaction(rows))


def evaluation_of(
    policy: Policy, task: GuiTask, seed: int, iteration: int, lake_id: str, attempt: int = 0, attempts: int = 1
) -> PlannedTrajectory:
    """Plan one of `attempts` trajectories of a policy for a task and seed. Only its evaluation is stored."""
    return PlannedTrajectory(
        lake_id=lake_id,
        run_id=lake_id,
        iteration=iteration,
        task=task,
        seed=seed,
        policy=policy.kind,
        policy_version=policy.version,
        attempt=attempt,
        stride=attempts,
    )
