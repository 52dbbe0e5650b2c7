"""The judge's verdicts on stored trajectories: those given when they were rolled out, and those asked for now."""

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
    """What asking a judge about several trajectories came to."""

    verdicts: list[Verdict]
    """Of those on which it has an opinion; they are in the lake."""
    failures: Counter[str]
    """Those on which it has none, by why."""
    tokens: int
    """What a served model counted."""


class VerdictHistory:
    """The verdicts on one iteration's trajectories.

    Args:
        config: the judge whose verdicts are wanted.
        lake: where verdicts and screens rest.
        iteration: whose trajectories.
    """

    def __init__(self, config: Config, lake: Lake, iteration: int) -> None:
        asked = {"iteration": iteration, "gate": GATE}
        verdicts = sorted(lake.rows(Verdict, asked), key=lambda one: one.created_at)
        self._config, self._lake, self._judge = config.judge, lake, judge_of(config.judge)
        self.version = version_of(self._judge, config.judge) if self._judge else None
        """The version of the configured judge's verdicts; None where there is no judge."""
        self.unanswered = Counter[str]()
        """The trajectories that it was asked about in vain, by why."""
        self._iteration, self._judged = iteration, judged_tasks(lake)
        self._any = {one.trajectory_id: one for one in verdicts}
        self._own = {one.trajectory_id: one for one in verdicts if one.gate_version == self.version}
        self._earlier = {one.trajectory_id: one for one in verdicts if one.gate_version != self.version}

    def of(self, trajectories: Sequence[Stored]) -> dict[str, Verdict]:
        """The verdict on each trajectory of a task without a verifier that a judge was ever asked about, and on each
        that does not say how it ended, as imported ones may: the configured judge's, which is asked, and its verdict
        kept, where only another one was. Where it fails or there is none, another's newest. What a verifier knows is
        left to it."""
        left = [one for one in trajectories if self._is_for_judges(one[0])]
        self.ask(self.open(left))
        names = [trajectory.trajectory_id for trajectory, _ in left]
        return {name: verdict for name in names if (verdict := self._own.get(name) or self._any.get(name))}

    def wanted(self) -> list[str]:
        """The ids of the trajectories that `of` would ask about."""
        rows = self._lake.rows(Trajectory, {"iteration": self._iteration})
        return sorted({row.trajectory_id for row in rows if self._is_for_judges(row)} - self._own.keys())

    def _is_for_judges(self, trajectory: Trajectory) -> bool:
        """Whether a judge's word counts on it: no verifier's does."""
        if trajectory.task_id in self._judged and trajectory.trajectory_id in self._any:
            return True
        return trajectory.success is None and trajectory.failure_boundary is None

    def audited(self, most: int) -> list[str]:
        """The ids of at most so many trajectories of tasks with a verifier that the judge can be asked about; always
        the same ones, drawn by their ids, which are hashes."""
        rows = self._lake.rows(Trajectory, {"iteration": self._iteration})
        verified = [row for row in rows if row.task_id not in self._judged and row.success is not None]
        fit = [row.trajectory_id for row in verified if self._unfit(row) is None]
        return sorted(fit)[:most]

    def open(self, trajectories: Sequence[Stored]) -> list[Stored]:
        """Those that the judge can be asked about and was not."""
        return [one for one in trajectories if self.why_not(one) is None]

    def why_not(self, stored: Stored) -> str | None:
        """Why the judge is not asked about a trajectory, for people; None where it is."""
        trajectory, steps = stored
        if trajectory.trajectory_id in self._own:
            return "judged by it already"
        return self._unfit(trajectory) if steps else "without a step"

    def _unfit(self, trajectory: Trajectory) -> str | None:
        """Why the judge cannot be asked: it failed, or the judge was trained on it; None where it can."""
        if trajectory.failure_boundary is not None:
            return f"failed at the {trajectory.failure_boundary}"
        if self._judge is None:
            return "without a judge"
        return "known from its training" if self._judge.knows(trajectory.task_id, trajectory.seed) else None

    def ask(self, trajectories: Sequence[Stored]) -> JudgedCounts:
        """Asks the configured judge about these, all together, and keeps its verdicts in the lake."""
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
        self._own |= {verdict.trajectory_id: verdict for verdict in given}
        failures = Counter(one.reason for one in judgements if one.score is None)
        self.unanswered += failures
        return JudgedCounts(given, failures, sum(one.tokens for one in judgements))

    def own(self, trajectory_id: str) -> Verdict | None:
        """The verdict of the configured judge, at its version of now."""
        return self._own.get(trajectory_id)

    def earlier(self, trajectory_id: str) -> Verdict | None:
        """The newest verdict of another judge, or of this one at another version."""
        return self._earlier.get(trajectory_id)


def judged_tasks(lake: Lake) -> Collection[str]:
    """The tasks that only a judge can score."""
    return {task.task_id for task in lake.rows(GuiTask, {"verifier": JUDGED})}
