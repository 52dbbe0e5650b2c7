"""The judge's verdicts on stored trajectories: those given when they were rolled out, and those asked for now."""

from collections.abc import Sequence

from models.judges.registry import GATE, case_of, judge_of, screens_of, verdict_of, version_of
from schemas.config import Config
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from schemas.tables.verdict import Verdict
from storage.lake import Lake
from tasks.shared.material import pngs_of


class Opinions:
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
        self._version = version_of(self._judge, config.judge) if self._judge else None
        self._any = {one.trajectory_id: one for one in verdicts}
        self._own = {one.trajectory_id: one for one in verdicts if one.gate_version == self._version}

    def of(self, trajectories: Sequence[tuple[Trajectory, list[Step]]]) -> dict[str, Verdict]:
        """The verdict on each trajectory that a judge was ever asked about: the configured judge's, which is asked, and
        its verdict kept, where only another one was. Where it fails or there is none, another's newest."""
        names = [trajectory.trajectory_id for trajectory, _ in trajectories]
        new = [one for one in trajectories if one[0].trajectory_id in self._any.keys() - self._own.keys()]
        if self._judge is not None and new:
            shown = {digest for _, steps in new for digest in screens_of(steps, self._config)}
            pngs = pngs_of(self._lake, sorted(shown))
            cases = [case_of(trajectory.instruction, steps, pngs, self._config) for trajectory, steps in new]
            judged = zip(new, self._judge.score(cases), strict=True)
            found = [verdict_of(self._judge, self._config, one[0], judgement) for one, judgement in judged]
            given = [verdict for verdict in found if verdict is not None]
            self._lake.append("verdicts", given)
            self._own |= {verdict.trajectory_id: verdict for verdict in given}
        return {name: verdict for name in names if (verdict := self._own.get(name) or self._any.get(name))}
