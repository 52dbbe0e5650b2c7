# pyright: basic
# pyarrow has no types of its own
"""Read and write data sets of Hugging Face's `datasets`: a row per step in `steps/`, a row per trajectory in
`trajectories/`.

Both are Parquet shards with embedded pictures, `SPLIT-NNNNN.parquet`. The split `test` has the trajectories whose seeds
measure policies, and `train` has the others. An import reads only the steps of `train`. The rows of a trajectory follow
each other, and each has the number of the trajectory's steps, so that missing rows are noticed.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, Json, ValidationError

from common.text import Storable, counted
from curation.converters.chat import record_of
from curation.converters.exchanged import (
    MOST_STEPS,
    OWN,
    Exchanged,
    ExchangedStep,
    Metadata,
    Picture,
    RecordPlace,
    RecordRefused,
    StepAbout,
    instructed,
    metadata_of,
)
from curation.converters.files import ImportSource, OpenModel, Target, model_of
from curation.converters.format import Format, Read, each
from curation.converters.parquet import IMAGE, RowShards, image_of, json_of, picture_in, read_rows
from curation.converters.tokens import for_trainers
from schemas.action import from_json, point_of, to_json
from schemas.failure import UsageError
from schemas.problem import named_problem

PARTS = STEPS, TRAJECTORIES = "steps", "trajectories"
"""Configurations, and their folders."""
TRAIN, TEST = "train", "test"
_OF_TRAJECTORY = (
    ("task_id", pa.string()),
    ("seed", pa.int64()),
    ("reward", pa.float64()),
    ("success", pa.bool_()),
    ("route", pa.string()),
    ("policy", pa.string()),
    ("policy_version", pa.string()),
    ("iteration", pa.int32()),
)
SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("step", pa.int32()),
        ("n_steps", pa.int32()),
        ("image", IMAGE),
        ("instruction", pa.string()),
        ("thought", pa.string()),
        ("actions", pa.list_(pa.string())),
        ("action_type", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("text", pa.string()),
        ("error", pa.string()),
        ("target", pa.bool_()),
        *_OF_TRAJECTORY,
        ("frames", pa.list_(IMAGE)),
        ("after", IMAGE),
        (OWN, pa.string()),
    ]
)
WHOLE = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("instruction", pa.string()),
        ("n_steps", pa.int32()),
        ("first_image", IMAGE),
        ("last_image", IMAGE),
        ("actions", pa.list_(pa.string())),
        *_OF_TRAJECTORY,
        ("reason", pa.string()),
        ("termination", pa.string()),
        ("failure_boundary", pa.string()),
        ("failure_reason", pa.string()),
        ("wall_s", pa.float64()),
    ]
)
_PICTURE = {"_type": "Image"}
PICTURES = {
    STEPS: {"image": _PICTURE, "frames": [_PICTURE], "after": _PICTURE},
    TRAJECTORIES: {"first_image": _PICTURE, "last_image": _PICTURE},
}


_CONTENTS = """\
| column of `steps` | |
| --- | --- |
| `trajectory_id`, `step`, `n_steps` | the trajectory, the step's number from 0, the number of its steps |
| `image` | the screen before the actions |
| `instruction`, `thought` | the task in words; the thought, which may be empty; `flywheel` may name its author |
| `actions` | the actions of the reply as JSON; `action_type`, `x` and `y` are of the first action |
| `text`, `error` | the reply where it has no action or several; why an action could not be performed |
| `target` | whether the step is to be imitated |
| `reward`, `success`, `route`, `task_id`, `seed`, `policy`, `policy_version`, `iteration` | of the trajectory |
| `frames`, `after` | the screens between several actions; the screen after the last step, if known and not left out |

The configuration `trajectories` has a row per trajectory, with its first and last screen. The split `test` has \
trajectories that measure policies: do not train on it."""


class _StepRow(OpenModel):
    trajectory_id: Annotated[Storable, Field(min_length=1)]
    step: Annotated[int, Field(ge=0, lt=MOST_STEPS)]
    n_steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = None
    image: Any
    instruction: Storable
    thought: Storable | None = None
    actions: list[Storable] | None = None
    text: Storable | None = None
    error: Storable | None = None
    target: bool | None = None
    success: bool | None = None
    frames: list[Any] | None = None
    after: Any = None
    flywheel: Json[Metadata] | None = None


class HuggingFace(Format):
    """The folder of a data set for `datasets.load_dataset` and the Hub."""

    name = "hf"
    assumed = "fraction"
    several = True
    contents = _CONTENTS
    loading = 'from datasets import load_dataset\n\nsteps = load_dataset("DIR", "steps", split="train")'

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write a row for each step and a row for each trajectory."""
        with ExitStack() as opened:
            files = dict[tuple[str, str], RowShards]()

            def shards(part: str, split: str) -> RowShards:
                if (part, split) not in files:
                    schema = SCHEMA if part == STEPS else WHOLE
                    one = RowShards(target, f"{part}/{split}-{{number:05d}}.parquet", schema, PICTURES[part])
                    files[part, split] = opened.enter_context(one)
                return files[part, split]

            for record in records:
                split = TEST if record.about.measures else TRAIN
                shown = for_trainers(record)
                for row in self._rows(record, shown):
                    shards(STEPS, split).write(row, _bytes(row))
                row = _whole(record, shown)
                shards(TRAJECTORIES, split).write(row, _bytes(row))
        self.configs = [_config(part, [split for split in (TRAIN, TEST) if (part, split) in files]) for part in PARTS]

    def _rows(self, record: Exchanged, shown: Exchanged) -> Iterator[dict[str, Any]]:
        """Yield a row per step. `shown` is the trajectory without tokens (`for_trainers`)."""
        about, last = _about(record), len(record.steps) - 1
        for at, step in enumerate(shown.steps):
            point = point_of(step.actions[0]) if step.actions else None
            yield {
                "trajectory_id": _id(record),
                "step": at,
                "n_steps": last + 1,
                "image": image_of(step.screen),
                "instruction": shown.instruction,
                "thought": step.thought,
                "actions": [*map(to_json, step.actions)],
                "action_type": step.actions[0].type if step.actions else None,
                "x": point[0] if point else None,
                "y": point[1] if point else None,
                "text": step.text,
                "error": step.error,
                "target": record.is_target(at),
                **about,
                "frames": [*map(image_of, step.frames)],
                "after": image_of(record.after) if record.after and at == last else None,
                OWN: json_of(
                    metadata_of(record, "", self.unit, step=at)
                ),  # with imported columns: shards share a schema
            }

    def records(self, source: ImportSource) -> Read:
        """Yield one trajectory for all consecutive rows with its id.

        Raises:
            UsageError: no file has rows of steps.
        """
        held: list[tuple[RecordPlace, _StepRow, Exchanged]] = []
        for place, part in each(source, _step_rows(source), self._part):
            if isinstance(part, RecordRefused):
                yield place, part
                continue
            row, record = part
            if held and held[-1][1].trajectory_id != row.trajectory_id:
                yield _joined(held)
                held = []
            held.append((place, row, record))
        if held:
            yield _joined(held)

    def _part(self, value: Any, source: ImportSource, place: RecordPlace) -> tuple[_StepRow, Exchanged]:
        row = model_of(_StepRow, value, place)
        others = {name: one for name, one in row.others.items() if name not in SCHEMA.names and one is not None}
        step = replace(_step(row, source, place), extra={self.name: _plain(others)} if others else {})
        instruction = instructed(row.instruction, place, "instruction")
        if row.flywheel is not None and row.flywheel.step != row.step:
            raise RecordRefused(place, f"{OWN}.step", f"{row.flywheel.step}, and the row's `step` is {row.step}")
        known = row.flywheel
        record = record_of(self.name, instruction, [step], known, {}, place)
        after = picture_in(row.after, source, place, "after") if row.after is not None else None
        name = record.name or row.trajectory_id
        success = record.success if row.success is None else row.success
        return row, replace(record, name=name, success=success, after=after)


def _config(part: str, splits: Iterable[str]) -> dict[str, Any]:
    """Return a configuration for `datasets`, with its splits."""
    files = [{"split": split, "path": f"{part}/{split}-*.parquet"} for split in splits]
    return {"config_name": part, **({"default": True} if part == STEPS else {}), "data_files": files}


def _id(record: Exchanged) -> str:
    return record.about.trajectory_id or record.name or record.digest


def _about(record: Exchanged) -> dict[str, Any]:
    about = record.about
    values = about.model_dump(include={name for name, _ in _OF_TRAJECTORY})
    return {**values, "success": record.success if record.success is not None else about.success}


def _whole(record: Exchanged, shown: Exchanged) -> dict[str, Any]:
    """Return the row of a trajectory."""
    about = record.about
    return {
        "trajectory_id": _id(record),
        "instruction": shown.instruction,
        "n_steps": len(record.steps),
        "first_image": image_of(record.steps[0].screen),
        "last_image": image_of(record.after or record.steps[-1].screen),
        "actions": [to_json(action) for step in shown.steps for action in step.actions],
        **_about(record),
        **about.model_dump(include={"reason", "termination", "failure_boundary", "failure_reason", "wall_s"}),
    }


def _bytes(row: dict[str, Any]) -> int:
    """Return the number of bytes of a row's pictures."""
    cells = [one for value in row.values() for one in (value if isinstance(value, list) else [value])]
    return sum(len(one["bytes"]) for one in cells if isinstance(one, dict))


def _step_rows(source: ImportSource) -> Iterator[tuple[RecordPlace, Any]]:
    """Yield the rows of the files with steps, without those of the split `test`."""
    found = source.files(".parquet")
    steps = [file for file in found if _holds_steps(file)]
    read = [file for file in steps if source.path == file or not file.name.startswith(f"{TEST}-")]
    if not read:
        wanted = ", ".join(("trajectory_id", "step", "image", "instruction", "actions"))
        raise UsageError(
            f"{source.path} has no Parquet with the columns {wanted}.",
            "Name the folder of a data set with a row per step; the split `test` measures policies.",
        )
    source.leave_out(read, "read are steps to train on", lambda file: file in steps or file not in found)
    for file in read:
        yield from read_rows(source, file)


def _holds_steps(file: Path) -> bool:
    """Return whether a file has a column `step`, or is damaged, so that its rows are refused with the reason."""
    try:
        return "step" in pq.read_schema(file).names
    except (pa.ArrowException, OSError):
        return True


def _step(row: _StepRow, source: ImportSource, place: RecordPlace) -> ExchangedStep:
    screen = picture_in(row.image, source, place, "image")
    frames = tuple(picture_in(one, source, place, f"frames.{at}") for at, one in enumerate(row.frames or ()))
    about, thought, text = StepAbout(target=False if row.target is False else None), row.thought or "", row.text or ""
    try:
        actions = tuple(map(from_json, row.actions or ()))
    except ValidationError as error:
        text = text or "\n".join(row.actions or ())
        problem = f"{named_problem(error)} in {text[:80]!r}"
        return ExchangedStep(screen, thought, text=text, error=row.error or problem, about=about)
    return ExchangedStep(screen, thought, actions, text, row.error, about=about, frames=_between(frames, len(actions)))


def _between(frames: tuple[Picture, ...], actions: int) -> tuple[Picture, ...]:
    """Return the screens between a step's actions; none for a step with one action."""
    return frames[: max(actions - 1, 0)]


def _joined(
    held: list[tuple[RecordPlace, _StepRow, Exchanged]],
) -> tuple[RecordPlace, Exchanged | RecordRefused]:
    """Return the trajectory of consecutive rows, or a refusal if rows are missing or out of order."""
    place, first, record = held[0]
    numbers, count = [row.step for _, row, _ in held], first.n_steps or len(held)
    if numbers != list(range(count)):
        found = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
        problem = (
            f"the rows of {first.trajectory_id[:80]!r} have the steps {found}, and it has {counted(count, 'step')}: "
            "keep its rows together, complete and in order"
        )
        return place, RecordRefused(place, "step", problem)
    steps = tuple(one.steps[0] for _, _, one in held)
    return place, replace(record, steps=steps, after=held[-1][2].after)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Convert cells to JSON values."""
    return json.loads(json.dumps(values, default=str))
