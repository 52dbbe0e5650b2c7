"""Stage `filter`: run the gates on every trajectory, decide the route of its data, and assess single steps by rules."""

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from itertools import islice

from pydantic import Field

from common.text import counted
from curation.gates.registry import acting_steps, gates_of, verdicts_of
from curation.reflection import reflections_of
from schemas.config import Config
from schemas.table import Metrics, utc_now
from schemas.tables.reflection import Reflection
from schemas.tables.stage import StageResult
from schemas.tables.verdict import ROUTES, Verdict
from storage.lake import Lake
from tasks.judge import judge_in_parts
from tasks.running.cluster import shares_out
from tasks.running.run import Run
from tasks.running.run_page import DATA_ACCEPTED
from tasks.running.stage import stage
from tasks.shared.gate_facts import TOGETHER, Known, VerdictHistory
from tasks.shared.material import RowPacker
from tasks.shared.reviews import Standing, renew_agreements
from tasks.shared.trajectories import stored, trajectories_of


class FilterResult(StageResult):
    """Counts of the decisions about one iteration's trajectories."""

    routes: Mapping[str, int]
    """Number of trajectories by route."""
    gates: Mapping[str, Mapping[str, int]] = {}
    """Number of rejected trajectories by route and by the gate that decided."""
    reflections: int
    """Number of steps with a finding."""
    unanswered: int
    """Number of trajectories without an answer of the judge."""
    reason: str = Field(exclude=True)

    def __str__(self) -> str:
        shown = (route for route in ROUTES if route in self.routes or route != "rl")
        text = ", ".join(f"{route} {self.routes.get(route, 0)}" for route in shown)
        if self.unanswered:
            text += f"; the judge gave no answer on {counted(self.unanswered, 'trajectory')}: {self.reason}"
        return text

    @property
    def event(self) -> tuple[str, Metrics]:
        """Returns the event with the number of accepted trajectories, and the number by route."""
        return DATA_ACCEPTED, {"accepted": self.routes.get("sft", 0), "routes": self.routes}


def decide_routes(run: Run, iteration: int) -> FilterResult:
    """Run the configured gates in order, up to the first rejection. Each rejection has its gate and reason.

    A later run with other gates or another judge adds verdicts, and its decisions replace the earlier decisions. The
    machines of `cluster` ask the judge about open trajectories. Gates compare a trajectory with trajectories that were
    accepted before, so this process runs them one trajectory after the other.
    """
    if shares_out(run.config) and any(gate.given for gate in gates_of(run.config.filter)):
        history = VerdictHistory(run.config, run.lake, iteration)
        judge_in_parts(run.config, iteration, [*history.wanted(), *history.audited(run.config.judge.audit)])
    decisions, reflections, unanswered = decide(run.config, run.lake, iteration)
    routes = Counter(decision.route for decision in decisions)
    reason = max(unanswered, key=unanswered.__getitem__, default="")
    gates: dict[str, Counter[str]] = {}
    for decision in decisions:
        if not decision.passed:
            gates.setdefault(decision.route, Counter())[decision.reason.partition(":")[0]] += 1
    return FilterResult(
        routes=routes, gates=gates, reflections=reflections, unanswered=unanswered.total(), reason=reason
    )


filter_trajectories = stage("filter")(decide_routes)


def decide(
    config: Config, lake: Lake, iteration: int, names: Container[str] | None = None
) -> tuple[list[Verdict], int, Counter[str]]:
    """Write the results of the gates and rules for the trajectories of an iteration, or only for the named
    trajectories.

    Returns:
        The decisions, the number of steps with a finding, and the number of trajectories without an answer of the
        judge, by reason.
    """
    decisions = list[Verdict]()
    verdicts, found = RowPacker("verdicts"), RowPacker("reflections")
    asks = any(gate.given for gate in gates_of(config.filter))
    history = VerdictHistory(config, lake, iteration) if asks else None
    for decided, reflections in _found(config, lake, iteration, history):
        if names is None or decided[-1].trajectory_id in names:
            decisions.append(decided[-1])
            verdicts.add(decided)
            found.add(reflections)
    rows = found.whole()
    lake.upsert("reflections", rows)
    lake.upsert("verdicts", verdicts.whole())
    unanswered = history.unanswered if history else Counter[str]()
    return decisions, rows.num_rows, unanswered


def _found(
    config: Config, lake: Lake, iteration: int, history: VerdictHistory | None
) -> Iterator[tuple[list[Verdict], list[Reflection]]]:
    """Yield the verdicts on each trajectory, with the decision last, and the findings of rules about its steps."""
    gates, now = gates_of(config.filter), utc_now()
    known = Known(lake, iteration)
    if history:
        _audit(config.judge.audit, lake, history, iteration)
    standing = Standing(lake, config.judge)
    trajectories = trajectories_of(lake, iteration)
    while chunk := list(islice(trajectories, TOGETHER)):
        judged = history.of(chunk) if history else {}
        for (trajectory, _), steps in zip(chunk, known.still(chunk), strict=True):
            verdict = judged.get(trajectory.trajectory_id)
            probation = standing.probation(verdict.gate_version) if verdict else ""
            context = known.context(trajectory, verdict, probation)
            verdicts = verdicts_of(gates, trajectory, steps, context, now)
            known.note(trajectory, steps, verdicts[-1].route)
            blameless = verdicts[-1].route == "none"
            yield verdicts, [] if blameless else reflections_of(trajectory, acting_steps(steps), now)


def _audit(most: int, lake: Lake, history: VerdictHistory, iteration: int) -> None:
    """Ask the judge about some trajectories that a verifier scored.

    Its agreement with the verifiers can end its probation.
    """
    names = history.audited(most)
    history.ask(history.open(list(stored(lake, names))))
    renew_agreements(lake, iteration)
