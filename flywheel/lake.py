"""Read a lake's tables as Polars frames, its SQL views, and its trajectories with screenshots."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schemas.failure import LakeError, UnknownId
from storage.catalog import ask, sql, stream_text
from storage.lake import Lake as StoredLake
from tasks.shared.policies import champion_if_any, policies
from tasks.shared.status import IterationStatus, PolicySuccess, iterations, success_of, verified

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl
    from PIL import Image

    from flywheel.comparison import HistoryComparison
    from flywheel.difference import VersionComparison
    from schemas.action import Action
    from schemas.tables.review import Decision, Review
    from schemas.tables.step import RecordedStep
    from schemas.tables.trajectory import RecordedTrajectory
    from tasks.promote.pairs import SeedPair, SideBySide
    from tasks.shared.runs import LakeRun

STAGES = ("collected", "valid", "judged", "reviewed", "selected")
"""Columns of `OpenLake.funnel`, from the first stage to the last."""


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """One trajectory with its steps, in order."""

    row: Mapping[str, Any]
    """Its row of the table `trajectories` or `evaluation_trajectories`."""
    steps: "tuple[RecordedStep, ...]"
    _lake: StoredLake

    def actions(self, step: int) -> "list[Action]":
        """Return the actions of a step's reply, in order; empty if the reply has no action."""
        from schemas.action import from_json_list

        return from_json_list(self.steps[step].actions)

    def image(self, step: int) -> "Image.Image":
        """Decode the screenshot that the policy saw before a step.

        Raises:
            IndexError: no such step.
            LakeError: the lake no longer has the screenshot.
        """
        return self.screen(self.steps[step].screenshot)

    def screen(self, digest: str) -> "Image.Image":
        """Decode a screenshot by its sha256, such as one of `Step.frames`.

        Raises:
            LakeError: the lake has no such screenshot.
        """
        from PIL import Image

        found = ask(self._lake, "screenshot", sha256=digest, iteration=None).to_pylist()
        if not found:
            raise LakeError(f"The lake has no screenshot {digest}.", "`flywheel doctor` lists missing files.")
        return Image.open(io.BytesIO(found[0]["png"]))

    def film(self, width: int = 480) -> "list[Image.Image]":
        """Draw one picture an action: the screen with a mark and a caption. The last one shows the outcome.

        Args:
            width: width of each picture in pixels.

        Raises:
            UsageError: the trajectory has no steps.
            LakeError: the lake no longer has a screenshot.
        """
        from flywheel.film import frames_of

        return frames_of(self, width)

    def save_film(self, path: "str | Path", width: int = 480) -> None:
        """Write `film` as a moving picture.

        Args:
            path: the file, with the suffix `.gif` or `.webp`.
            width: width in pixels.

        Raises:
            UsageError: the file has another suffix, or the trajectory has no steps.
        """
        from pathlib import Path

        from flywheel.film import save_moving

        save_moving(self.film(width), Path(path))

    def recording(self) -> "list[tuple[float, Image.Image]]":
        """Decode the screens, each with the seconds from the start at which it appeared.

        An imported recording has the times of its file. Other trajectories have those of their steps' durations.

        Raises:
            UsageError: the trajectory has no steps.
            LakeError: the lake no longer has a screenshot.
        """
        from flywheel.film import frame_times_of

        return [(second, self.screen(digest)) for second, digest in frame_times_of(self, self._lake)[0]]

    def save_video(self, path: "str | Path") -> None:
        """Write the screens as a video, each shown as long as it was on the screen.

        Args:
            path: the file, with the suffix `.mp4` or `.webm`.

        Raises:
            UsageError: the file has another suffix, or the trajectory has no steps.
            LakeError: the lake no longer has a screenshot.
            FlywheelError: the extra `video` is not installed.
        """
        from pathlib import Path

        from flywheel.film import save_video

        save_video(self, self._lake, Path(path))

    def strip(self, width: int = 160) -> "Image.Image":
        """Draw all screens next to each other, each `width` pixels wide. Raises the errors of `film`."""
        from flywheel.film import strip_of

        return strip_of(self, width)


class OpenLake:
    """An open lake, with its tables and reviewers' decisions.

    Frames are lazy: a query reads only the columns that it uses. A frame reads the table's rows when it is collected.
    docs/tables.md lists the columns.
    """

    def __init__(self, lake: StoredLake) -> None:
        self.stored = lake
        """The lake in the storage layer, which the commands of this project use."""

    @property
    def uri(self) -> str:
        """The lake's absolute address."""
        return self.stored.uri

    @property
    def tables(self) -> dict[str, int]:
        """Latest version of each table that exists."""
        return self.stored.versions()

    def table(self, name: str, version: int | None = None) -> "pl.LazyFrame":
        """Scan a table.

        Args:
            name: name of the table.
            version: a table version, for example from a policy's `data_versions`; the latest if not given.

        Raises:
            LakeError: the table is unknown. When the frame is collected: the storage is unreachable, or the files of
                the version were removed.
        """
        from flywheel import frames

        return frames.scan(self.stored, name, version)

    def tasks(self) -> "pl.LazyFrame":
        """Scan the tasks."""
        return self.table("tasks")

    def trajectories(self) -> "pl.LazyFrame":
        """Scan the trajectories."""
        return self.table("trajectories")

    def steps(self) -> "pl.LazyFrame":
        """Scan the steps of all trajectories."""
        return self.table("steps")

    def screenshots(self) -> "pl.LazyFrame":
        """Scan the screenshots. Leave out the column `png` if you do not need the pictures."""
        return self.table("screenshots")

    def verdicts(self) -> "pl.LazyFrame":
        """Scan the verdicts of all gates, judges and reviewers."""
        return self.table("verdicts")

    def annotations(self) -> "pl.LazyFrame":
        """Scan the annotations of steps."""
        return self.table("annotations")

    def pairs(self) -> "pl.LazyFrame":
        """Scan the preference pairs."""
        return self.table("pairs")

    def curriculum(self) -> "pl.LazyFrame":
        """Scan the task weights of each iteration."""
        return self.table("curriculum")

    def policies(self) -> "pl.LazyFrame":
        """Scan the policy versions."""
        import polars as pl

        status = {name: row.status for name, row in policies(self.stored).items()}
        current = pl.col("policy_version").replace_strict(status, default=pl.col("status"))
        return self.table("policies").with_columns(status=current)

    def evaluations(self) -> "pl.LazyFrame":
        """Scan the evaluations of policies, one row per seed."""
        return self.table("evaluations")

    def quality(self) -> "pl.LazyFrame":
        """Scan the results of the data-quality expectations."""
        return self.table("quality")

    def trajectory(self, trajectory_id: str) -> StoredTrajectory:
        """Load one trajectory, collected or kept by an evaluation, by its id or the first characters of it.

        The first characters are at least 8, and no other id begins with them.

        Raises:
            LakeError: no trajectory has this id, or several ids begin so.
        """
        from tasks.shared.trajectories import episode_of, steps_of

        try:
            row = episode_of(self.stored, trajectory_id)
        except UnknownId as error:
            if "begin with" in error.problem:
                raise LakeError(error.problem, error.hint) from error
            problem = f"There is no trajectory {trajectory_id!r}."
            raise LakeError(problem, "`lake.trajectories()` lists their ids.") from error
        return StoredTrajectory(row.model_dump(), tuple(steps_of(self.stored, row)), self.stored)

    def find(
        self,
        *,
        task: str | None = None,
        outcome: str | None = None,
        policy: str | None = None,
        iteration: int | None = None,
        route: str | None = None,
        gate: str | None = None,
        text: str | None = None,
        seed: int | None = None,
        tag: str | None = None,
        evaluations: bool = False,
        order: str = "newest",
        limit: int = 20,
        after: str | None = None,
    ) -> "list[RecordedTrajectory]":
        """Find trajectories, as `flywheel trajectories` does.

        Args:
            task: the task's id, or its last part.
            outcome: `success`, `failure`, `environment`, or `unknown` for an import without an outcome.
            policy: a version, `champion`, or a kind such as `explorer`.
            iteration: an iteration.
            route: the route that the filter or a reviewer chose, such as `sft`.
            gate: a gate that rejected the trajectory.
            text: a text in the instruction, a thought, an action or a reason, in any case.
            seed: the seed of the task's page.
            tag: a tag of people.
            evaluations: find the trajectories that evaluations keep, instead of collected ones.
            order: `newest`, `oldest`, `reward`, `steps` or `seconds`; for the last three, the largest first.
            limit: maximum number of rows.
            after: start after this trajectory, such as the last one of the previous page.

        Raises:
            UsageError: the outcome, route or order is unknown; evaluations have no such field; none of the lake's
                trajectories has the task, policy, iteration, gate, seed or tag; there is no trajectory `after`; or a
                number is out of range.
        """
        from tasks.shared.finding import Wanted, find, refuse_unknown

        wanted = Wanted(task, outcome, policy, iteration, route, gate, text, seed, tag, evaluations)
        found = find(self.stored, wanted, limit, order, after)
        if not found.total and find(self.stored, Wanted(evaluations=evaluations), 1).total:
            refuse_unknown(self.stored, wanted)
        return [one.row for one in found]

    def annotate(
        self,
        trajectory_id: str,
        decision: "Decision",
        *,
        person: str,
        step: int | None = None,
        action: "Action | Mapping[str, object] | None" = None,
        thought: str | None = None,
        note: str = "",
        undoes: str | None = None,
    ) -> "Review":
        """Record a reviewer's decision about a trajectory or one of its steps, as the desk does.

        Args:
            trajectory_id: the trajectory's id, or its first characters, as `trajectory` takes them.
            decision: `accept` or `reject` the whole trajectory, `correct` a step, mark an `error_step`, add a `note`,
                or `undo` an earlier decision. `override`, a decision of a live session, is refused.
            person: the reviewer's name.
            step: the step, counted from 0, for `correct`, `error_step` and `note`.
            action: the corrected action of the step, for `correct`: its fields, such as `{"type": "hotkey", "key":
                "ctrl c"}`, or an instance of a class of `schemas.action`.
            thought: the thought for the corrected action.
            note: free text.
            undoes: the `review_id` of the decision to take back, for `undo`.

        Returns:
            The stored review. `lake.table("reviews")` lists all reviews.

        Raises:
            UsageError: the trajectory or step does not exist, or the decision does not take these arguments; nothing is
                written.
            Conflict: another reviewer decided at the same time; nothing is written.
        """
        from tasks.shared.reviews import Draft, action_text, newest, submit

        text = None if action is None else action_text(action)
        draft = Draft(trajectory_id, 0, person, decision, step, text, thought, note, undoes=undoes)
        return submit(self.stored, newest(self.stored, draft))

    def iterations(self) -> list[IterationStatus]:
        """Return the iterations, oldest first. Iteration -1 is the stage `prepare`."""
        return iterations(self.stored)

    def champion(self) -> str:
        """Return the champion's version; empty before the first policy."""
        row = champion_if_any(self.stored)
        return row.policy_version if row else ""

    def success(self, policy: str) -> PolicySuccess | None:
        """Return the success rate of a policy; None if it was not measured on the suite."""
        return success_of(self.stored, policy)

    def curve(self) -> "pl.DataFrame":
        """Return success by iteration.

        Returns:
            One row per iteration: `iteration`, `policy`, `success` on the evaluation seeds, in [0, 1], its 95 %
            interval `low` and `high`, and the number `n` of measured trajectories. The other columns are the success of
            the `explorer`, `promoted`, the number of collected `trajectories`, and the seconds `wall_s` of all stages.
            A value is null if it was not measured.
        """
        from flywheel import frames

        return frames.curve(self.iterations())

    def collected(self) -> "pl.DataFrame":
        """Return P(V=1 | iteration), the share of collected trajectories that pass every gate.

        Returns:
            One row per iteration and `kind` of policy: `success` in [0, 1], its 95 % interval `low` and `high`, and `n`
            trajectories. The kind `policy, same tasks` gives the tasks equal weights in every iteration.
        """
        from flywheel import frames

        return frames.collected(verified(self.stored))

    def by_task(self) -> "pl.DataFrame":
        """Return held-out success by task.

        Returns:
            One row per task and actor: `task_id`, `suite`, `success` in [0, 1], mean `reward`, `n` trajectories, and
            the `iteration` whose policy acted, and its `policy_version`; null for the explorer.
        """
        from flywheel import frames

        return frames.by_task(self)

    def training(self, policies: Sequence[str] = (), points: int = 200) -> "pl.DataFrame":
        """Return the measures of trainings, with a limited number of points per line.

        Args:
            policies: policies whose trainings are returned; the latest five if empty.
            points: maximum number of points of a line.

        Returns:
            `policy`, `step`, `measure` and `value`.
        """
        from flywheel import frames

        return frames.training(self, policies, points)

    def funnel(self) -> "pl.DataFrame":
        """Return how many trajectories of each iteration pass each stage, newest iteration first.

        Returns:
            `iteration`, `collected`, `valid`, `judged`, `reviewed` and `selected`, as counts.
        """
        return self.query("funnel_people").select("iteration", *STAGES)

    def runs(self) -> "list[LakeRun]":
        """Return the runs of iterations and imports, oldest first, with their ids and iterations."""
        from tasks.shared.runs import runs_of

        return runs_of(self.stored)

    def diff(self, a: str, b: str) -> "VersionComparison | HistoryComparison":
        """Compare two policies, data versions or runs, as `flywheel diff` does.

        Args:
            a: a policy, `champion`, `now`, or a time such as `2026-11-20T12:00`; or the id of a run.
            b: the second one, a run if the first is a run.

        Raises:
            UsageError: a name is unknown.
            LakeError: files of a version were removed.
        """
        from flywheel.comparison import compare_runs
        from flywheel.difference import difference_of
        from schemas.config.operations import BudgetConfig
        from tasks.shared.runs import run_named

        if run_named(self.stored, a) or run_named(self.stored, b):
            return compare_runs(self.stored, BudgetConfig(), a, b)
        return difference_of(self.stored, a, b)

    def diff_lake(self, other: "OpenLake") -> "HistoryComparison":
        """Compare this lake with another one by success, tasks, data, cost and config. The cost has no money."""
        from flywheel.comparison import HistoryComparison, whole_lake
        from schemas.config.operations import BudgetConfig

        return HistoryComparison(*(whole_lake(one.stored, BudgetConfig()) for one in (self, other)))

    def seed_pairs(self, a: str, b: str, task: str) -> "list[SeedPair]":
        """Return the evaluation seeds of a task on which two policies were measured, with both outcomes.

        Args:
            a: a policy: its version, `champion` or `explorer`.
            b: the second policy.
            task: the task's id, or its last part.

        Raises:
            UsageError: a policy does not exist, or was never evaluated on the task.
        """
        from tasks.promote.pairs import evaluated_pairs

        return evaluated_pairs(self.stored, a, b, task)

    def side_by_side(self, a: str, b: str, task: str, seed: int) -> "SideBySide":
        """Return two policies on one evaluation seed, each with its outcome and its kept steps.

        Args:
            a: a policy: its version, `champion` or `explorer`.
            b: the second policy.
            task: the task's id, or its last part.
            seed: the seed.

        Raises:
            UsageError: a policy does not exist, or was never evaluated on the task or the seed.
        """
        from tasks.promote.pairs import side_by_side

        return side_by_side(self.stored, a, b, task, seed)

    def query(self, name: str, **parameters: Any) -> "pl.DataFrame":
        """Run a query of this project.

        Args:
            name: name of a file in `storage/queries`, without `.sql`.
            parameters: values of the query's `$names`.
        """
        return self.sql(sql(name), **parameters)

    def sql(self, query: str, **parameters: Any) -> "pl.DataFrame":
        """Run a DuckDB query over all tables and views.

        Args:
            query: SQL over the tables and the views of `storage/queries/views`.
            parameters: values of the query's `$names`.

        Raises:
            duckdb.Error: the SQL is invalid, or a table or column is unknown.
        """
        from flywheel import frames

        with stream_text(self.stored, query, **parameters) as batches:
            return frames.of(batches.read_all())
