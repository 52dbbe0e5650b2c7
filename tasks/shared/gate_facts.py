"""Collect facts for the gates from the lake, and a judge's verdicts on stored trajectories, old and new.

The facts are hashes of screens, self-changing regions, successes of tasks, and accepted trajectories, which a
trajectory may repeat.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from common.picture import rgb_of
from curation.gates.facts import Accepted, TaskFacts
from curation.gates.gate import GateContext
from curation.gates.registry import acting_steps
from curation.pictures import Detail, bits_of, detail, edges
from curation.self_changing import Pair, Still, self_changing_cells
from models.judges.registry import GATE, case_of, judge_of, screens_of, verdict_of, version_of
from schemas.config import Config
from schemas.tables.step import Step
from schemas.tables.task import IMPORTED, JUDGED, GuiTask
from schemas.tables.trajectory import Route, Trajectory
from schemas.tables.verdict import Verdict
from storage.catalog import ask, stream
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


ENOUGH = 20
"""Number of earlier accepted successes of a task that suffice for its facts. With fewer, successes of the filtered
iteration count too."""
TOGETHER = 64
"""Number of trajectories whose screens are in memory at the same time."""
LOOKED_AT = 64
"""Maximum number of steps of each kind, and of successes, that are read for a task with self-changing regions."""
DETAILS = 1024
"""Maximum number of screens whose finer hashes are in memory, with up to 100 kilobytes each."""


class Known:
    """Facts from before an iteration's filter, and the iteration's accepted trajectories so far.

    Args:
        lake: the lake.
        iteration: the iteration that is filtered.
    """

    def __init__(self, lake: Lake, iteration: int) -> None:
        self.looks: dict[str, int] = {}
        self.see((row["sha256"], row["phash"]) for row in ask(lake, "gate_looks", iteration=iteration).to_pylist())
        facts = ask(lake, "gate_tasks", iteration=iteration, enough=ENOUGH).to_pylist()
        self._tasks = {row["task_id"]: TaskFacts(row["successes"], row["changed"], row["screens"]) for row in facts}
        self._lake, self._still = lake, _still_of(lake, iteration)
        self._shown = dict[str, Still]()
        self._tasks |= {task: self._facts(iteration, task) for task in self._still}
        own = lake.rows(GuiTask, {"verifier": JUDGED})
        self._by_judge = {one.task_id for one in own if one.environment != IMPORTED}
        self._accepted, self._details = Accepted(), dict[str, Detail | None]()
        with stream(lake, "gate_accepted", iteration=iteration) as batches:
            rows = (row for batch in batches for row in batch.to_pylist())
            of_each = (list(of_one) for _, of_one in groupby(rows, key=lambda row: row["trajectory_id"]))
            while chunk := list(islice(of_each, TOGETHER)):
                self._accept(chunk)

    def see(self, pictures: Iterable[tuple[str, str]]) -> None:
        """Record the hashes of pictures, given as pairs of sha256 and hash."""
        self.looks |= {name: bits for name, phash in pictures if (bits := bits_of(phash)) is not None}

    def context(self, trajectory: Trajectory, judged: Verdict | None, probation: str = "") -> GateContext:
        """Return the facts about a trajectory, with the judge's verdict and the reason for the judge's probation."""
        task = self._tasks.get(trajectory.task_id, TaskFacts())
        by_judge = trajectory.task_id in self._by_judge
        return GateContext(judged, self.looks, self.detail, task, self._accepted, probation, by_judge)

    def detail(self, name: str) -> Detail | None:
        """Return the finer hash of a screenshot without self-changing regions; None if the lake lacks the
        screenshot."""
        if name not in self._details:
            png, still = pngs_of(self._lake, [name]).get(name), self._shown.get(name)
            if len(self._details) >= DETAILS:
                self._details.pop(next(iter(self._details)))
            picture = None if not png else still.without(png) if still else rgb_of(png)
            self._details[name] = picture and detail(picture)
        return self._details[name]

    def still(self, stored: Sequence[Stored]) -> list[list[Step]]:
        """Return the steps of each trajectory. Screens that are equal outside self-changing regions get the same
        name."""
        changing = [steps for one, steps in stored if one.task_id in self._still]
        names = {name for steps in changing for step in steps for name in _visible_texts(step)}
        pngs = pngs_of(self._lake, sorted(names)) if names else {}
        return [self._steps(self._still.get(one.task_id), steps, pngs) for one, steps in stored]

    def _steps(self, still: Still | None, steps: Sequence[Step], pngs: Mapping[str, bytes]) -> list[Step]:
        if still is None:
            return list(steps)
        same: dict[str | None, str] = {}
        for name in dict.fromkeys(name for step in steps for name in _visible_texts(step) if name in pngs):
            screen = still.without(pngs[name])
            same[name] = still.first_like(name, screen)
            self.looks[name] = edges(screen)
            self._shown[name] = still
        fields = ("screenshot", "next_screenshot")
        return [
            step.model_copy(update={name: same.get(shown := getattr(step, name), shown) for name in fields})
            for step in steps
        ]

    def _facts(self, iteration: int, task: str) -> TaskFacts:
        """Compute the facts of `gate_tasks.sql` for a task, on its screens without self-changing regions."""
        rows = ask(self._lake, "gate_known", iteration=iteration, task=task, enough=ENOUGH, most=LOOKED_AT).to_pylist()
        stored = [
            (Trajectory.model_construct(task_id=task), [Step.model_construct(**row) for row in of_one])
            for _, of_one in groupby(rows, key=lambda row: row["trajectory_id"])
        ]
        known = self.still(stored)
        screens = sorted(len({step.screenshot for step in steps}) for steps in known)
        changed = sum(any(step.next_screenshot not in (None, step.screenshot) for step in steps) for steps in known)
        return TaskFacts(len(known), changed, screens[(len(screens) - 1) // 10]) if known else TaskFacts()

    def note(self, trajectory: Trajectory, steps: Sequence[Step], route: Route) -> None:
        """Record the route of a trajectory. Later trajectories are compared with accepted trajectories."""
        if route == "sft":
            self._accepted.add(trajectory, acting_steps(steps), self.looks)

    def _accept(self, chunk: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Record accepted trajectories of earlier iterations, each given as its rows of `gate_accepted.sql`."""
        fields = ("step", "actions", "action_type", "screenshot", "next_screenshot")
        named = ("trajectory_id", "task_id", "instruction", "group_id")
        stored = [
            (
                Trajectory.model_construct(**{name: rows[0][name] for name in named}),
                [Step.model_construct(**{name: row[name] for name in fields}) for row in rows],
            )
            for rows in chunk
        ]
        for rows, (trajectory, _), steps in zip(chunk, stored, self.still(stored), strict=True):
            looks = {row["screenshot"]: bits for row in rows if (bits := bits_of(row["phash"] or "")) is not None}
            self._accepted.add(trajectory, steps, self.looks if trajectory.task_id in self._still else looks)


def _visible_texts(step: Step) -> list[str]:
    return [name for name in (step.screenshot, step.next_screenshot) if name]


def _still_of(lake: Lake, iteration: int) -> dict[str, Still]:
    """Return the masks of self-changing regions, for tasks with such regions."""
    rows = ask(lake, "gate_idle", iteration=iteration, most=LOOKED_AT).to_pylist()
    found: dict[str, Still] = {}
    for task, of_task in groupby(rows, key=lambda row: row["task_id"]):
        pairs = [(row["idle"], row["screenshot"], row["next_screenshot"]) for row in of_task]
        pngs = pngs_of(lake, sorted({name for _, *pair in pairs for name in pair}))
        kinds = {True: list[Pair](), False: list[Pair]()}
        for idle, before, after in pairs:
            if before in pngs and after in pngs:
                kinds[idle].append((pngs[before], pngs[after]))
        restless = self_changing_cells(kinds[True], kinds[False])
        if restless is not None:
            found[task] = Still(restless)
    return found
