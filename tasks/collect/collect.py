"""Stage `collect`: roll out the curriculum's choices, and write trajectories as they finish."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from curation.gates.registry import gates_of, verdicts_of
from curation.pictures import difference_hash
from rollout.runner import missing
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.table import utc_now
from schemas.tables.stage import PlainResult
from schemas.tables.verdict import Verdict
from storage.lake import Lake
from tasks.collect.parts import collect_in_parts, roll_out
from tasks.collect.plan import finished, plan
from tasks.collect.records import drop_unfinished, write
from tasks.collect.refill import refills
from tasks.collect.stream import roll_out_and_train
from tasks.running.cluster import shares_out
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.agreements import Standing
from tasks.shared.failing import failing
from tasks.shared.gate_facts import Known
from tasks.shared.material import PolicyRecipe
from tasks.shared.policies import champion, version_of
from tasks.shared.weights import load_policy


@stage("collect", retry=True)
def collect_trajectories(run: Run, iteration: int) -> PlainResult:
    """Roll out the curriculum's choices that are not in the lake yet."""
    config, lake = run.config, run.lake
    drop_unfinished(lake, iteration)
    version = champion(lake).policy_version
    left = missing(plan(run, iteration, version), finished(lake, iteration))
    if config.train.stream.on:
        recipe = PolicyRecipe(version_of(iteration), version, iteration, lake.versions())
        grouped = [one for one in left if one.group_id is not None]
        policy = load_policy(config, lake, version)
        trained = roll_out_and_train(config, lake, recipe, grouped, policy, gated(run, iteration))
        result = _result(lake, iteration)
        numbers = {**result.numbers, "stream": trained.model_dump()}
        return PlainResult(text=f"{result}; {trained.updates} updates meanwhile", numbers=numbers)
    _roll_out(run, iteration, version, left, {})
    for more in refills(run, iteration, version):
        left = missing(plan(run, iteration, version, more), finished(lake, iteration))
        _roll_out(run, iteration, version, left, more)
    return _result(lake, iteration)


def _roll_out(
    run: Run, iteration: int, version: str, left: Sequence[PlannedTrajectory], further: Mapping[str, int]
) -> None:
    if not shares_out(run.config):
        roll_out(run.config, run.lake, left, version)
    elif left:
        collect_in_parts(run, iteration, version, further)


def gated(run: Run, iteration: int) -> Callable[[list[FinishedTrajectory]], None]:
    """Return a sink that writes finished trajectories and runs the gates on them at once, for streamed training.

    Batches contain no quarantined trajectories. The gates use facts from the start of the collection, and the
    trajectories that were accepted since then.
    """
    gates, known = gates_of(run.config.filter), Known(run.lake, iteration)
    standing = Standing(run.lake, run.config.judge)

    def sink(records: list[FinishedTrajectory]) -> None:
        verdicts: list[Verdict] = []
        for record in records:
            known.see((digest, difference_hash(seen.png)) for digest, seen in record.screenshots.items())
            probation = standing.probation(record.verdict.gate_version) if record.verdict else ""
            context = known.context(record.trajectory, record.verdict, probation)
            found = verdicts_of(gates, record.trajectory, record.steps, context, utc_now())
            known.note(record.trajectory, record.steps, found[-1])
            verdicts += found
        write(run.lake, records, verdicts)

    return sink


def _result(lake: Lake, iteration: int) -> PlainResult:
    rows = lake.read("trajectories", ["policy", "success", "n_steps"], {"iteration": iteration}).to_pylist()
    made = {
        kind: [row["success"] for row in rows if row["policy"] == kind and row["success"] is not None]
        for kind in sorted({row["policy"] for row in rows})
    }
    by_kind = {kind: {"trajectories": len(ended), "successes": sum(ended)} for kind, ended in made.items()}
    headline = ", ".join(f"{kind} {sum(ended)} of {len(ended)}" for kind, ended in made.items())
    steps = sum(row["n_steps"] for row in rows)
    lost = sum(row["success"] is None for row in rows)
    blameless = f"; {lost} failed for reasons other than the policy" if lost else ""
    failed = [asdict(one) for one in failing(lake, iteration)]
    text = f"{len(rows)} trajectories; successes: {headline}{blameless}"
    numbers = {"trajectories": len(rows), "steps": steps, **by_kind, "failing": failed}
    return PlainResult(text=text, numbers=numbers)
