"""Stage: what every gate finds of every trajectory, the route its data takes, and what rules tell of single steps."""

from collections import Counter
from collections.abc import Container, Iterator
from itertools import islice

from curation.gates.registry import gates_of, verdicts_of
from curation.reflections import reflections_of
from schemas.config import Config
from schemas.metrics import Metrics
from schemas.table import utc_now
from schemas.tables.reflection import Reflection
from schemas.tables.verdict import ROUTES, Verdict
from schemas.text import counted
from storage.lake import Lake
from tasks.judge import judge_in_parts
from tasks.running.cluster import shares_out
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.agreements import Standing, renew_agreements
from tasks.shared.gate_facts import TOGETHER, Known
from tasks.shared.packed import RowPacker
from tasks.shared.trajectories import stored, trajectories_of
from tasks.shared.verdict_history import VerdictHistory


def decide_routes(run: Run, iteration: int) -> Metrics:
    """The configured gates in order, up to the first that turns a trajectory away; every rejection has its gate and
    reason. Done again with other gates or another judge, it adds their verdicts, and the new decisions hold.

    What a judge is still to be asked about the machines of `cluster` share out; the gates hold each trajectory against
    those that were accepted before it, so they ask one after the other, here."""
    if shares_out(run.config) and any(gate.given for gate in gates_of(run.config.filter)):
        opinions = VerdictHistory(run.config, run.lake, iteration)
        judge_in_parts(run.config, iteration, [*opinions.wanted(), *opinions.audited(run.config.judge.audit)])
    decisions, reflections, unanswered = _decided(run.config, run.lake, iteration, None)
    routes = Counter(decision.route for decision in decisions)
    counts = ", ".join(f"{route} {routes.get(route, 0)}" for route in ROUTES if route in routes or route != "rl")
    if unanswered:
        ((why, _),) = unanswered.most_common(1)
        counts += f"; the judge gave no answer on {counted(unanswered.total(), 'trajectory')}: {why}"
    return {"routes": dict(routes), "reflections": reflections, "unanswered": unanswered.total(), "say": counts}


filter_trajectories = stage("filter")(decide_routes)


def decide(
    config: Config, lake: Lake, iteration: int, names: Container[str] | None = None
) -> tuple[list[Verdict], int]:
    """Writes what the gates and the rules find of an iteration's trajectories, or of those of these names alone.

    Returns:
        The decisions, and how many steps the rules tell something of.
    """
    return _decided(config, lake, iteration, names)[:2]


def _decided(
    config: Config, lake: Lake, iteration: int, names: Container[str] | None
) -> tuple[list[Verdict], int, Counter[str]]:
    """The same, and on how many trajectories the judge gave no answer, by why."""
    decisions = list[Verdict]()
    verdicts, found = RowPacker("verdicts"), RowPacker("reflections")
    asks = any(gate.given for gate in gates_of(config.filter))
    opinions = VerdictHistory(config, lake, iteration) if asks else None
    for decided, reflections in _found(config, lake, iteration, opinions):
        if names is None or decided[-1].trajectory_id in names:
            decisions.append(decided[-1])
            verdicts.add(decided)
            found.add(reflections)
    rows = found.whole()
    lake.upsert("reflections", rows)
    lake.upsert("verdicts", verdicts.whole())
    unanswered = opinions.unanswered if opinions else Counter[str]()
    return decisions, rows.num_rows, unanswered


def _found(
    config: Config, lake: Lake, iteration: int, opinions: VerdictHistory | None
) -> Iterator[tuple[list[Verdict], list[Reflection]]]:
    """The verdicts on each trajectory, the decision last, and what rules tell of its steps."""
    gates, now = gates_of(config.filter), utc_now()
    known = Known(lake, iteration)
    if opinions:
        _audit(config.judge.audit, lake, opinions, iteration)
    standing = Standing(lake, config.judge)
    trajectories = trajectories_of(lake, iteration)
    while chunk := list(islice(trajectories, TOGETHER)):
        judged = opinions.of(chunk) if opinions else {}
        for (trajectory, _), steps in zip(chunk, known.still(chunk), strict=True):
            verdict = judged.get(trajectory.trajectory_id)
            probation = standing.probation(verdict.gate_version) if verdict else ""
            context = known.context(trajectory, verdict, probation)
            verdicts = verdicts_of(gates, trajectory, steps, context, now)
            known.note(trajectory, steps, verdicts[-1])
            blameless = verdicts[-1].route == "none"
            yield verdicts, [] if blameless else reflections_of(trajectory, steps, now)


def _audit(most: int, lake: Lake, opinions: VerdictHistory, iteration: int) -> None:
    """Asks the judge about some trajectories of tasks with a verifier, and counts how often it was right: the evidence
    that ends its probation."""
    names = opinions.audited(most)
    opinions.ask(opinions.open(list(stored(lake, names))))
    renew_agreements(lake, iteration)
