"""Read a lake's tables as Polars frames, its SQL views, and its trajectories with screenshots."""

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import polars as pl
import pyarrow as pa
from PIL import Image
from polars.io.plugins import register_io_source

from schemas.action import Action, from_json, to_json
from schemas.config import load_config
from schemas.failure import LakeError
from schemas.tables import TABLES
from schemas.tables.review import Decision, Review
from schemas.tables.step import Step
from storage.catalog import ask, stream_text
from storage.lake import Lake as StoredLake
from tasks.shared.reviews import Draft, reviews_of, submit
from tasks.shared.status import iterations
from tasks.shared.trajectories import stored

STAGES = ("collected", "valid", "judged", "reviewed", "selected")
"""Columns of `OpenLake.funnel`, from the first stage to the last."""


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """One trajectory with its steps, in order."""

    row: Mapping[str, Any]
    """Its row of the table `trajectories`."""
    steps: tuple[Step, ...]
    _lake: StoredLake

    def action(self, step: int) -> Action | None:
        """Return the action of a step; None where the reply held none."""
        text = self.steps[step].action
        return from_json(text) if text else None

    def image(self, step: int) -> Image.Image:
        """Decode the screenshot that the policy saw before a step.

        Raises:
            IndexError: no such step.
            LakeError: the lake does not hold the screenshot any more.
        """
        digest = self.steps[step].screenshot
        found = ask(self._lake, "screenshot", sha256=digest, iteration=None).to_pylist()
        if not found:
            raise LakeError(f"The lake has no screenshot {digest}.", "`flywheel doctor` lists missing files.")
        return Image.open(io.BytesIO(found[0]["png"]))


class OpenLake:
    """One lake: its tables, and reviewers' decisions. Frames are lazy: a query reads only the columns that it uses.

    Each method named after a table returns its rows as they are when the frame is collected. docs/tables.md lists the
    columns.
    """

    def __init__(self, lake: StoredLake) -> None:
        self._lake = lake

    @classmethod
    def open(cls, uri: str | None, config: str | None = None, keys: Mapping[str, Any] | None = None) -> "OpenLake":
        """Open a lake as `flywheel.open` does."""
        given = {**({} if uri is None else {"uri": uri}), **(keys or {})}
        overrides = [f"lake.{key}={json.dumps(value)}" for key, value in given.items()]
        return cls(StoredLake.open(load_config(config, overrides).lake, create=False))

    @property
    def uri(self) -> str:
        """The lake's absolute address."""
        return self._lake.uri

    @property
    def tables(self) -> dict[str, int]:
        """The tables that hold rows, each with its latest version."""
        return self._lake.versions()

    def table(self, name: str, version: int | None = None) -> pl.LazyFrame:
        """Scan a table.

        Args:
            name: its name.
            version: a version to pin, for example one of a policy's `data_versions`; the latest if not given.

        Raises:
            LakeError: unknown table; when collected, storage unreachable or a version whose files were removed.
        """
        if name not in TABLES:
            raise LakeError(f"There is no table `{name}`.", f"The tables are {', '.join(sorted(TABLES))}.")
        schema: pa.Schema = TABLES[name].schema

        def scan(
            columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _: int | None
        ) -> Iterator[pl.DataFrame]:
            needed = columns if columns is not None else schema.names
            read = dict.fromkeys([*needed, *(predicate.meta.root_names() if predicate is not None else ())])
            left = rows
            for batch in self._lake.batches(name, list(read), version=version):
                frame = cast(pl.DataFrame, pl.from_arrow(batch))
                frame = (frame if predicate is None else frame.filter(predicate)).select(needed)
                yield frame if left is None else frame.head(left)
                if left is not None and (left := left - frame.height) <= 0:
                    return

        empty = cast(pl.DataFrame, pl.from_arrow(schema.empty_table()))
        return register_io_source(scan, schema=empty.schema)

    def tasks(self) -> pl.LazyFrame:
        """Scan the tasks."""
        return self.table("tasks")

    def trajectories(self) -> pl.LazyFrame:
        """Scan the trajectories."""
        return self.table("trajectories")

    def steps(self) -> pl.LazyFrame:
        """Scan the steps of all trajectories."""
        return self.table("steps")

    def screenshots(self) -> pl.LazyFrame:
        """Scan the screenshots; select columns other than `png` where the picture is not needed."""
        return self.table("screenshots")

    def verdicts(self) -> pl.LazyFrame:
        """Scan the verdicts of all gates, judges and reviewers."""
        return self.table("verdicts")

    def annotations(self) -> pl.LazyFrame:
        """Scan the annotations of steps."""
        return self.table("annotations")

    def pairs(self) -> pl.LazyFrame:
        """Scan the preference pairs."""
        return self.table("pairs")

    def curriculum(self) -> pl.LazyFrame:
        """Scan the task weights of each iteration."""
        return self.table("curriculum")

    def policies(self) -> pl.LazyFrame:
        """Scan the policy versions."""
        return self.table("policies")

    def evaluations(self) -> pl.LazyFrame:
        """Scan the evaluations of policies, one row per seed."""
        return self.table("evaluations")

    def quality(self) -> pl.LazyFrame:
        """Scan the results of the data-quality expectations."""
        return self.table("quality")

    def trajectory(self, trajectory_id: str) -> StoredTrajectory:
        """Load one trajectory.

        Raises:
            LakeError: no trajectory has this id.
        """
        for row, steps in stored(self._lake, [trajectory_id]):
            return StoredTrajectory(row.model_dump(), tuple(steps), self._lake)
        raise LakeError(f"There is no trajectory {trajectory_id!r}.", "`lake.trajectories()` lists their ids.")

    def annotate(
        self,
        trajectory_id: str,
        decision: Decision,
        *,
        person: str,
        step: int | None = None,
        action: Action | None = None,
        thought: str | None = None,
        note: str = "",
        undoes: str | None = None,
    ) -> Review:
        """Record a reviewer's decision about a trajectory or one of its steps, as the annotation page does.

        Args:
            trajectory_id: the trajectory.
            decision: `accept` or `reject` the whole trajectory, `correct` a step, mark an `error_step`, add a `note`,
                or `undo` an earlier decision.
            person: the reviewer's name.
            step: the step, counted from 0, for `correct`, `error_step` and `note`.
            action: the right action of the step, for `correct`.
            thought: the thought that belongs to the right action.
            note: free text.
            undoes: the `review_id` of the decision to take back, for `undo`.

        Returns:
            The review as it is stored. `lake.table("reviews")` lists them.

        Raises:
            UsageError: no such trajectory or step, or arguments that the decision does not take; nothing is written.
            Conflict: another reviewer decided at the same time; nothing is written.
        """
        text = None if action is None else to_json(action)
        revision = len(reviews_of(self._lake, trajectory_id))
        draft = Draft(trajectory_id, revision, person, decision, step, text, thought, note, undoes=undoes)
        return submit(self._lake, draft)

    def curve(self) -> pl.DataFrame:
        """Return success by iteration.

        Returns:
            One row per iteration: `iteration`, `policy`, `success` in [0, 1] on the evaluation seeds with its 95 %
            interval `low` and `high`, `n` trajectories measured, `explorer` (its success), `promoted`, `trajectories`
            collected and `wall_s` seconds of all stages. Null where nothing was measured yet.
        """
        rows = [
            {
                "iteration": one.iteration,
                "policy": one.policy,
                "success": one.success,
                "low": one.ci and one.ci[0],
                "high": one.ci and one.ci[1],
                "n": one.n,
                "explorer": one.explorer,
                "promoted": one.promoted,
                "trajectories": one.trajectories,
                "wall_s": one.wall_s,
            }
            for one in iterations(self._lake)
        ]
        numbers = dict.fromkeys(("success", "low", "high", "explorer", "wall_s"), pl.Float64)
        counts = dict.fromkeys(("iteration", "n", "trajectories"), pl.Int64)
        order = ("iteration", "policy", "success", "low", "high", "n", "explorer", "promoted", "trajectories", "wall_s")
        kinds = {"policy": pl.String, "promoted": pl.Boolean, **numbers, **counts}
        return pl.DataFrame(rows, schema={name: kinds[name] for name in order})

    def funnel(self) -> pl.DataFrame:
        """Return how many trajectories of each iteration pass each stage, newest iteration first.

        Returns:
            `iteration`, `collected`, `valid`, `judged`, `reviewed` and `selected`, as counts.
        """
        found = cast(pl.DataFrame, pl.from_arrow(ask(self._lake, "funnel_people")))
        return found.select("iteration", *STAGES)

    def sql(self, query: str, **parameters: Any) -> pl.DataFrame:
        """Run a DuckDB query over all tables and views.

        Args:
            query: SQL; the tables and the views of `storage/queries/views` are there by name.
            parameters: values of the query's `$names`.

        Raises:
            duckdb.Error: not valid SQL, or an unknown table or column.
        """
        with stream_text(self._lake, query, **parameters) as batches:
            return cast(pl.DataFrame, pl.from_arrow(batches.read_all()))
