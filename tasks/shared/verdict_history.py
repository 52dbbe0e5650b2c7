"""Find a judge's verdicts on stored trajectories, and ask the judge for new verdicts."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from models.judges.registry import GATE, case_of, judge_of, screens_of, verdict_of, version_of
from schemas.config import Config
from schemas.tables.step import Step
from schemas.tables.task import JUDGED, GuiTask
from schemas.tables.trajectory import Trajectory
from schemas.tables.verdict import Verdict
from storage.lake import Lake
from tasks.shared.material import pngs_of

Stored = tuple[Trajectory, list[Step]]


@dataclass(frozen=True, slots=True)
class JudgedCounts:
    """Result of asking a judge about several trajectories."""

    verdicts: list[Verdict]
    """Verdicts of the judge, which the lake has."""
    failures: Counter[str]
    """Number of trajectories without a verdict, by reason."""
    tokens: int
    """Tokens that a served model counted."""


class VerdictHistory:
    """Verdicts on one iteration's trajectories.

    Args:
        config: config of the judge.
        lake: the lake with verdicts and screens.
        iteration: the iteration.
    """

    def __init__(self, config: Config, lake: Lake, iteration: int) -> None:
        asked = {"iteration": iteration, "gate": GATE}
        verdicts = sorted(lake.rows(Verdict, asked), key=lambda one: one.created_at)
        self._config, self._lake, self._judge = config.judge, lake, judge_of(config.judge)
        self.version = version_of(self._judge, config.judge) if self._judge else None
        """Version of the configured judge's verdicts; None if no judge is configured."""
        self.unanswered = Counter[str]()
        """Number of trajectories without a verdict of the configured judge, by reason."""
        self._iteration, self._judged = iteration, judged_tasks(lake)
        self._any = {one.trajectory_id: one for one in verdicts}
        self.own = {one.trajectory_id: one for one in verdicts if one.gate_version == self.version}
        """Verdicts of the configured judge at its current version, by trajectory."""
        self.earlier = {one.trajectory_id: one for one in verdicts if one.gate_version != self.version}
        """Newest verdicts of other judges, and of other versions of the configured judge, by trajectory."""

    def of(self, trajectories: Sequence[Stored]) -> dict[str, Verdict]:
        """Return the verdicts on trajectories that only a judge decides, by id.

        Only a judge decides on judged trajectories of tasks without a verifier, and on trajectories without an outcome,
        such as imported trajectories. The configured judge's verdict counts. If only another judge has a verdict, the
        configured judge is asked and its verdict stored. If the judge fails or none is configured, the newest verdict
        of another judge counts.
        """
        left = [one for one in trajectories if self._is_for_judges(one[0])]
        self.ask(self.open(left))
        names = [trajectory.trajectory_id for trajectory, _ in left]
        return {name: verdict for name in names if (verdict := self.own.get(name) or self._any.get(name))}

    def wanted(self) -> list[str]:
        """Return the ids of the trajectories that `of` would ask the judge about."""
        rows = self._lake.rows(Trajectory, {"iteration": self._iteration})
        return sorted({row.trajectory_id for row in rows if self._is_for_judges(row)} - self.own.keys())

    def _is_for_judges(self, trajectory: Trajectory) -> bool:
        """Whether a judge's verdict counts for a trajectory, because no verifier scored it."""
        if trajectory.task_id in self._judged and trajectory.trajectory_id in self._any:
            return True
        return trajectory.success is None and trajectory.failure_boundary is None

    def audited(self, most: int) -> list[str]:
        """Return the ids of at most `most` trajectories of tasks with a verifier that the judge can be asked about.

        Repeated calls return the same ids: the first in the order of the ids, which are hashes.
        """
        rows = self._lake.rows(Trajectory, {"iteration": self._iteration})
        verified = [row for row in rows if row.task_id not in self._judged and row.success is not None]
        fit = [row.trajectory_id for row in verified if self._unfit(row) is None]
        return sorted(fit)[:most]

    def open(self, trajectories: Sequence[Stored]) -> list[Stored]:
        """Return the trajectories that the judge can be asked about and has not been asked about."""
        return [one for one in trajectories if self.why_not(one) is None]

    def why_not(self, stored: Stored) -> str | None:
        """Return the reason not to ask the judge about a trajectory; None if the judge is asked."""
        trajectory, steps = stored
        if trajectory.trajectory_id in self.own:
            return "judged by it already"
        return self._unfit(trajectory) if steps else "without a step"

    def _unfit(self, trajectory: Trajectory) -> str | None:
        """Return the reason why the judge cannot be asked; None if it can.

        The trajectory may have an environment failure, or the judge may have been trained on it.
        """
        if trajectory.failure_boundary is not None:
            return f"failed at the {trajectory.failure_boundary}"
        if self._judge is None:
            return "without a judge"
        return "known from its training" if self._judge.knows(trajectory.task_id, trajectory.seed) else None

    def ask(self, trajectories: Sequence[Stored]) -> JudgedCounts:
        """Ask the configured judge about several trajectories together, and store its verdicts in the lake."""
        if self._judge is None or not trajectories:
            return JudgedCounts([], Counter(), 0)
        shown = {digest for _, steps in trajectories for digest in screens_of(steps, self._config)}
        pngs = pngs_of(self._lake, sorted(shown))
        cases = [case_of(trajectory.instruction, steps, pngs, self._config) for trajectory, steps in trajectories]
        judgements = self._judge.score(cases, self._config.votes)
        judged = zip(trajectories, judgements, strict=True)
        found = [verdict_of(self._judge, self._config, one[0], judgement) for one, judgement in judged]
        given = [verdict for verdict in found if verdict is not None]
        self._lake.append("verdicts", given)
        self.own |= {verdict.trajectory_id: verdict for verdict in given}
        failures = Counter(one.reason for one in judgements if one.score is None)
        self.unanswered += failures
        return JudgedCounts(given, failures, sum(one.tokens for one in judgements))


def judged_tasks(lake: Lake) -> Collection[str]:
    """Return the tasks that only a judge can score."""
    return {task.task_id for task in lake.rows(GuiTask, {"verifier": JUDGED})}
