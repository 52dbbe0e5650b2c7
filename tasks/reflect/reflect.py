"""Stage `reflect`: find the wrong steps of failed trajectories, and keep corrections that succeed.

Attempts are rolled out in rounds, with one attempt per open search. An attempt is a trajectory whose key follows from
its content, so an interrupted stage finds its attempts in the lake and continues.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack

from curation.reflection import CorrectedTrajectory, annotation_of, finding_of, pair_of
from schemas.table import Metrics, utc_now
from schemas.tables.stage import PlainResult
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.collect.collect import drop_unfinished
from tasks.filter import decide
from tasks.reflect.attempts import Attempts, ReflectionCase, cases_of, corrections_of
from tasks.reflect.people import verify_people
from tasks.running.run import Run
from tasks.running.stage import stage


@stage("reflect", retry=True)
def reflect_on_failures(run: Run, iteration: int) -> PlainResult:
    """Correct failed trajectories if `reflect.on` is set, and store successful corrections, annotations and pairs.

    Reviewers' corrections are also verified if `reflect.on` is not set.
    """
    drop_unfinished(run.lake, iteration)
    people = verify_people(run)
    if not run.config.reflect.on:
        return PlainResult(text="off", numbers={"people": people})
    cases = cases_of(run.config, run.lake, iteration)
    with ExitStack() as stack:
        Attempts(run, iteration, stack).all_of(cases)
    found = _keep(run, iteration, cases)
    text, numbers = _numbers(run.lake, iteration, cases, found)
    return PlainResult(text=text, numbers={"people": people, **numbers})


def _keep(run: Run, iteration: int, cases: Sequence[ReflectionCase]) -> list[CorrectedTrajectory]:
    """Run the gates on the rolled-out trajectories, and write annotations and pairs of accepted trajectories."""
    lake, now = run.lake, utc_now()
    names = {one.trajectory_id for one, _ in corrections_of(lake, iteration)}
    decisions, *_ = decide(run.config, lake, iteration, names)
    accepted = {one.trajectory_id for one in decisions if one.route in ("sft", "rl")}
    found = [
        correction
        for case in cases
        for correction in _corrections(case)
        if correction.verified.trajectory_id in accepted
    ]
    lake.append("annotations", [annotation_of(one, now) for one in found])
    lake.append("reflections", [finding_of(one, now) for one in found if not one.reflects])
    lake.append("pairs", [pair for one in found if (pair := pair_of(one))])
    return found


def _corrections(case: ReflectionCase) -> Iterator[CorrectedTrajectory]:
    """Yield the correction at the last state with a success, and the recovery."""
    if case.search.best is not None:
        yield CorrectedTrajectory(case.failed, case.steps, *case.won[case.search.best])
    if case.recovered is not None:
        yield CorrectedTrajectory(case.failed, case.steps, *case.recovered, reflects=True)


def _numbers(
    lake: Lake, iteration: int, cases: Sequence[ReflectionCase], found: Sequence[CorrectedTrajectory]
) -> tuple[str, Metrics]:
    """Return the headline and the numbers of the corrections."""
    rolled = list(corrections_of(lake, iteration))
    steps = sum(one.n_steps for one, _ in rolled)
    kinds = Counter(one.kind for one in found)
    found_one = steps / kinds["correction"] if kinds["correction"] else None
    plain = _plain(lake, iteration, {case.task.task_id for case in cases})
    numbers = {
        "failed": len(cases),
        "attempts": len(rolled),
        "steps": steps,
        "corrected": kinds["correction"],
        "recovered": kinds["reflection"],
        "steps_per_correction": None if found_one is None else round(found_one, 3),
        "plain_steps_per_success": None if plain is None else round(plain, 3),
        "gave_up": dict(Counter(case.gave_up for case in cases if case.gave_up)),
    }
    headline = f"{kinds['correction']} of {len(cases)} corrected, {kinds['reflection']} recovered, in {steps} steps"
    headline += f" ({_each(found_one)} per verified correction"
    headline += f"; plain collection of the same tasks took {_each(plain)} per success)"
    return headline, numbers


def _plain(lake: Lake, iteration: int, tasks: Collection[str]) -> float | None:
    """Return the sandbox steps per success of the iteration's collection in these tasks; None without a success."""
    rolled = [one for one in lake.rows(Trajectory, {"iteration": iteration}) if one.continues is None]
    rolled = [one for one in rolled if one.task_id in tasks]
    won = sum(one.success is True for one in rolled)
    return sum(one.n_steps for one in rolled) / won if won else None


def _each(steps: float | None) -> str:
    return "-" if steps is None else f"{steps:.1f}"
