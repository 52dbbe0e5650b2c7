# pyright: basic
# pyarrow has no types of its own
"""Reads and writes LeRobotDataset v3: Parquet shards of frames with screens, `meta/info.json`, tasks, episodes, stats.

Screens are features of dtype `image`, so no video is made. `action` is a vector (number of the action, x, y, to_x,
to_y; a missing fraction is -1), and `action_json` is the action itself. A frame is one action, or a text without one.
Frames of one reply have the same `reply_index`. `reply_screen` is false if the screen before the frame's action is
unknown; the frame then repeats the last known one. A data set without `action_json` has no actions of a graphical
interface and is refused. A data set has screens of a single size, since its readers batch them; an export with several
sizes is a folder of data sets, `WIDTHxHEIGHT/`.
"""

import io
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, Json, ValidationError

from common.text import Storable, strict_json
from curation.converters.chat import ChatRow, joined, key_of, record_of
from curation.converters.exchanged import (
    OWN,
    Exchanged,
    ExchangedStep,
    Metadata,
    Picture,
    RecordPlace,
    RecordRefused,
    instructed,
    metadata_of,
    without_action,
)
from curation.converters.files import ImportSource, OpenModel, Target, model_of
from curation.converters.format import Format, Read
from curation.converters.lerobot_stats import Stats
from curation.converters.parquet import IMAGE, image_of, json_of, picture_in, read_rows, with_features
from curation.converters.search import is_visible
from curation.converters.tokens import for_trainers
from schemas.action import Action, from_json, to_json
from schemas.failure import UsageError
from schemas.problem import named_problem

MIXED = "mixed"
"""Folder of trajectories whose screens have several sizes."""
VERSION, FPS, PER_CHUNK, MEGABYTES = "v3.0", 1, 1000, 100
SCREEN = "observation.images.screen"
NAMES: tuple[str, ...] = tuple(one.model_fields["type"].default for one in get_args(get_args(Action)[0]))
"""Actions by their number in `action`."""
VECTOR = ("type", "x", "y", "to_x", "to_y")
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_COUNTS = ("frame_index", "episode_index", "index", "task_index")
REPLY, REPLY_SCREEN = "reply_index", "reply_screen"
MEASURED = ("action", "timestamp", "next.reward", *_COUNTS, REPLY)
SCHEMA = pa.schema(
    [
        (SCREEN, IMAGE),
        ("action", pa.list_(pa.float32(), len(VECTOR))),
        ("action_json", pa.string()),
        ("thought", pa.string()),
        (OWN, pa.string()),
        ("next.reward", pa.float32()),
        ("next.done", pa.bool_()),
        ("next.success", pa.bool_()),
        ("timestamp", pa.float32()),
        *((name, pa.int64()) for name in (*_COUNTS, REPLY)),
        (REPLY_SCREEN, pa.bool_()),
    ]
)
FEATURES = {
    SCREEN: {"_type": "Image"},
    "action": {"_type": "Sequence", "length": len(VECTOR), "feature": {"_type": "Value", "dtype": "float32"}},
}
EPISODES = pa.schema(
    [
        ("episode_index", pa.int64()),
        ("tasks", pa.list_(pa.string())),
        ("length", pa.int64()),
        *((name, pa.int64()) for name in ("data/chunk_index", "data/file_index")),
        *((name, pa.int64()) for name in ("dataset_from_index", "dataset_to_index")),
        *((name, pa.int64()) for name in ("meta/episodes/chunk_index", "meta/episodes/file_index")),
    ]
)


class _Frame(OpenModel):
    action_json: Storable
    thought: Storable | None = None
    task_index: int
    frame_index: Annotated[int, Field(ge=0)]
    episode_index: int
    reply_index: int | None = None
    reply_screen: bool | None = None
    flywheel: Json[Metadata] | None = None
    success: Annotated[bool | None, Field(alias="next.success")] = None

    @property
    def named(self) -> bool:
        """Whether the frame names its trajectory."""
        return self.flywheel is not None and bool(self.flywheel.trajectory.trajectory_id)


class LeRobot(Format):
    """A data set's folder."""

    name = "lerobot"
    tags = ("LeRobot",)
    contents = (
        "A frame is one action, or a reply without one. `action` is a vector: the action's number, x, y, to_x, to_y. "
        "`action_json` is the action itself. Frames of one reply have the same `reply_index`."
    )
    loading = (
        "from lerobot.datasets.lerobot_dataset import LeRobotDataset\n\n"
        'data = LeRobotDataset("flywheel/export", root="DIR")'
    )
    assumed = "fraction"
    several = True

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write one episode per trajectory and one frame per action; each size of screens gives a data set.

        A step without an action is a frame, too.
        """
        with ExitStack() as opened:
            sets = dict[str, _DataSet]()
            for record in records:
                name = _size(record)
                if name not in sets:
                    sets[name] = opened.enter_context(_DataSet(self, target, name))
                sets[name].write(record)
        if len(sets) == 1:
            (only,) = sets
            for part in ("meta", "data"):
                (target.folder / only / part).rename(target.folder / part)
            (target.folder / only).rmdir()
            self.configs = [{"config_name": "default", "data_files": "data/*/*.parquet"}]
        elif sets:
            self.notes.append(f"one data set for each size of screen: {', '.join(f'{name}/' for name in sets)}")
            self.configs = [{"config_name": name, "data_files": f"{name}/data/*/*.parquet"} for name in sets]
            self.loading = self.loading.replace('"DIR"', f'"DIR/{next(iter(sets))}"')
        if MIXED in sets:
            self.notes.append("screens that change their size are read with batch_size=1")

    def frames(
        self, record: Exchanged, shown: Exchanged, task: int, episode: int, before: int
    ) -> Iterator[tuple[dict[str, Any], Picture]]:
        """Yield the rows of a trajectory, each with its screen.

        Args:
            record: the trajectory. shown: the same without tokens (`for_trainers`).
            task: number of its task. episode: its own number. before: number of frames of earlier episodes.
        """
        count, number = sum(max(len(step.actions), 1) for step in record.steps), 0
        reward = record.about.reward if record.about.reward is not None else float(bool(record.success))
        for at, step in enumerate(shown.steps):
            known = json_of(metadata_of(record, self.name, self.unit, step=at))
            for place, (screen, action) in enumerate(step.acted or [(step.screen, None)]):
                last = number == count - 1
                yield (
                    {
                        SCREEN: image_of(screen),
                        "action": _vector(action),
                        "action_json": step.text if action is None else to_json(action),
                        "thought": step.thought,
                        OWN: known,
                        "next.reward": reward if last else 0.0,
                        "next.done": last,
                        "next.success": last and bool(record.success),
                        "timestamp": number / FPS,
                        REPLY: at,
                        REPLY_SCREEN: place <= len(step.frames),
                        **dict(zip(_COUNTS, (number, episode, before + number, task), strict=True)),
                    },
                    screen,
                )
                number += 1

    def records(self, source: ImportSource) -> Read:
        """Yield one trajectory per episode.

        Raises:
            UsageError: the source is no LeRobot data set of version 3, or its screens are videos.
        """
        return joined(self._parts(source))

    def _parts(self, source: ImportSource) -> Iterator[tuple[RecordPlace, ChatRow | RecordRefused]]:
        for folder in _folders(source):
            yield from self._parts_of(source, folder)

    def _parts_of(self, source: ImportSource, folder: Path) -> Iterator[tuple[RecordPlace, ChatRow | RecordRefused]]:
        key = _screen_key(folder)
        tasks, lengths = _tasks(folder), _lengths(folder)
        held: list[tuple[RecordPlace, _Frame, ChatRow]] = []
        for place, value in _data(source, folder):
            try:
                frame = model_of(_Frame, value, place)
                part = self._part(frame, key, tasks, source, place)
            except RecordRefused as refused:
                yield place, refused
                continue
            if held and frame.episode_index != held[-1][1].episode_index:
                yield from _whole(held, lengths)
                held = []
            held.append((place, frame, part))
        yield from _whole(held, lengths)
        for episode in lengths:
            place = RecordPlace("meta/episodes")
            yield place, RecordRefused(place, "episode_index", f"no frame of episode {episode} can be read in data/")

    def _part(
        self, frame: _Frame, key: str, tasks: dict[int, str], source: ImportSource, place: RecordPlace
    ) -> ChatRow:
        cell = frame.others.get(key)
        screen = picture_in(cell, source, place, key)
        if frame.task_index not in tasks:
            raise RecordRefused(place, "task_index", f"meta/tasks.parquet has no task {frame.task_index}")
        instruction = instructed(tasks[frame.task_index], place, "task_index")
        step, known = _step(frame, screen), frame.flywheel
        others = {name: one for name, one in frame.others.items() if name not in {key, *SCHEMA.names}}
        if others:
            step = replace(step, extra={self.name: _plain(others)})
        foreign = (f"{place.file}:{frame.episode_index}", frame.frame_index)
        own, number = key_of(known, place) if frame.named else foreign
        return ChatRow(record_of(self.name, instruction, [step], known, {}, place), own, number)


def _size(record: Exchanged) -> str:
    """Return the folder of a trajectory's data set, by its screens' size, or `MIXED` for several sizes."""
    screens = [one for step in record.steps for one in (step.screen, *step.frames)]
    sizes = {(one.width, one.height) for one in screens}
    return MIXED if len(sizes) > 1 else "{}x{}".format(*sizes.pop())


def _folders(source: ImportSource) -> list[Path]:
    """Return the data sets of the folder and of those below it."""
    named = (file for file in source.folder.rglob("meta/info.json") if is_visible(file, source.folder))
    found = sorted(file.parent.parent for file in named) or [source.folder]
    parts = [folder / part for folder in found for part in ("data", "meta", "videos")]
    source.leave_out((), "read are data sets", lambda file: not any(file.is_relative_to(part) for part in parts))
    return found


def _data(source: ImportSource, folder: Path) -> Iterator[tuple[RecordPlace, Any]]:
    for file in sorted((folder / "data").glob("chunk-*/file-*.parquet")):
        yield from read_rows(source, file)


def _whole(
    held: list[tuple[RecordPlace, _Frame, ChatRow]], lengths: dict[int, int]
) -> Iterator[tuple[RecordPlace, ChatRow | RecordRefused]]:
    """Yield the frames of one episode, or a refusal if frames are missing, since the trajectory would have gaps.

    A found episode is removed from `lengths`.
    """
    if not held:
        return
    place, frame, _ = held[0]
    episode, length = frame.episode_index, lengths.pop(frame.episode_index, None)
    if length is None:
        yield (
            place,
            RecordRefused(place, "episode_index", f"meta/episodes has no episode {episode}, or it begins twice"),
        )
    elif [one.frame_index for _, one, _ in held] != list(range(length)):
        problem = f"{len(held)} frames of episode {episode} can be read in turn, and it has {length}"
        yield place, RecordRefused(place, "frame_index", problem)
    else:
        yield from _replies(held)


def _replies(held: list[tuple[RecordPlace, _Frame, ChatRow]]) -> Iterator[tuple[RecordPlace, ChatRow]]:
    """Yield the steps of an episode: consecutive frames with the same `reply_index` are one.

    The screen, the thought and the metadata are those of the first frame. A reply with a frame whose action cannot be
    read is the text of all of them. The outcome is `next.success` of the last frame; metadata of a lake has its own,
    since an export writes false for an unknown outcome.
    """
    last = held[-1][1]
    success = None if last.flywheel else last.success
    replies = groupby(enumerate(held), lambda one: _reply_of(one[1][1], one[0]))
    for number, (_, same) in enumerate(replies):
        frames = [frame for _, frame in same]
        place, first, part = frames[0]
        steps = [one.record.steps[0] for _, _, one in frames]
        step, actions = steps[0], [one.action for one in steps if one.action]
        if len(steps) > 1 and len(actions) == len(steps):
            known = zip(steps[1:], frames[1:], strict=True)
            between = tuple(one.screen for one, (_, frame, _) in known if frame.reply_screen is not False)
            step = replace(step, actions=tuple(actions), frames=between)
        elif len(steps) > 1:
            text = "\n".join(frame.action_json for _, frame, _ in frames)
            step = replace(step, actions=(), text=text, error=next((one.error for one in steps if one.error), None))
        at = part.step if first.named else number
        outcome = part.record.success if success is None else success
        yield place, replace(part, record=replace(part.record, steps=(step,), success=outcome), step=at)


def _reply_of(frame: _Frame, number: int) -> tuple[str, int]:
    """Return what frames of one reply have in common; a frame without `reply_index` is a reply of its own."""
    return ("frame", number) if frame.reply_index is None else ("reply", frame.reply_index)


def _step(frame: _Frame, screen: Picture) -> ExchangedStep:
    thought = frame.thought or ""
    if without_action(frame.flywheel, 1):
        return ExchangedStep(screen, thought, text=frame.action_json)
    try:
        return ExchangedStep(screen, thought, (from_json(frame.action_json),))
    except ValidationError as error:
        problem = f"{named_problem(error)} in {frame.action_json[:80]!r}"
        return ExchangedStep(screen, thought, text=frame.action_json, error=problem)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Convert cells to JSON values."""
    return json.loads(json.dumps(values, default=str))


def _vector(action: Action | None) -> list[float]:
    if action is None:
        return [-1.0] * len(VECTOR)
    fields = action.model_dump()
    return [float(NAMES.index(action.type)), *(float(fields.get(name, -1.0)) for name in VECTOR[1:])]


def _screen_key(folder: Path) -> str:
    """Return the feature with the screen; raise UsageError if there is none."""
    file = folder / "meta" / "info.json"
    try:
        info = json.loads(_content(file))
        features, version = dict(info["features"]), str(info["codebase_version"])
    except KeyError as error:
        raise _foreign(file, f"it has no `{error.args[0]}`") from error
    except (ValueError, TypeError) as error:
        raise _foreign(file, f"no JSON of an object with `features` ({error})") from error
    if not version.startswith("v3"):
        raise UsageError(f"{file}: `codebase_version` is {version}, and v3 is read.", "LeRobot converts older ones.")
    if "action_json" not in features:
        hint = "Only data sets of actions on a graphical interface can be imported."
        raise UsageError(f"{file}: `features` has no action_json.", hint)
    found = [name for name, one in features.items() if isinstance(one, dict) and one.get("dtype") == "image"]
    if len(found) != 1:
        raise UsageError(
            f"{file}: `features` has {len(found)} of dtype image, one is a screen.", "Videos are not read."
        )
    return found[0]


def _tasks(folder: Path) -> dict[int, str]:
    """Return the tasks' texts by their numbers; raise UsageError if they cannot be read."""
    file = folder / "meta" / "tasks.parquet"
    with _refusing(file, "no Parquet of `task` and `task_index`"):
        table = pq.read_table(io.BytesIO(_content(file)))
        texts = table["task" if "task" in table.column_names else "__index_level_0__"]
        if texts.null_count:
            raise TypeError("a task is null")
        return dict(zip(table["task_index"].to_pylist(), map(str, texts.to_pylist()), strict=True))


def _lengths(folder: Path) -> dict[int, int]:
    """Return the number of frames of each episode; raise UsageError if it cannot be read."""
    episodes = folder / "meta" / "episodes"
    lengths: dict[int, int] = {}
    for file in sorted(episodes.glob("chunk-*/file-*.parquet")):
        with _refusing(file, "no Parquet of `episode_index` and `length`"):
            table = pq.read_table(io.BytesIO(_content(file)), columns=["episode_index", "length"])
            lengths |= zip(table["episode_index"].to_pylist(), map(int, table["length"].to_pylist()), strict=True)
    if not lengths:
        raise _foreign(episodes, "it lists no episode")
    return lengths


@contextmanager
def _refusing(file: Path, wanted: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, KeyError, TypeError, UnicodeDecodeError) as error:
        raise _foreign(file, f"{wanted} ({str(error)[:200]})") from error


def _content(file: Path) -> bytes:
    """Return the content of a file of `meta`; raise UsageError if it is missing or cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        raise _foreign(file, "there is no such file" if missing else error.strerror or str(error)) from error


def _foreign(file: Path, problem: str) -> UsageError:
    hint = "Name the folder of a LeRobotDataset v3, the one that holds meta/ and data/."
    return UsageError(f"`--format lerobot`: {file} is not that of a LeRobot data set: {problem}.", hint)


class _DataSet:
    """Writer of one data set; used as a context.

    Args:
        form: the format.
        target: the export's folder.
        folder: folder of the data set in it.
    """

    def __init__(self, form: LeRobot, target: Target, folder: str) -> None:
        self._form, self._target, self._folder = form, target, folder
        self._tasks: dict[str, int] = {}
        self._stats, self._frames, self._episodes, self._shape = Stats(SCREEN), 0, 0, (0, 0)
        self._shards = _Shards(target, with_features(SCHEMA, FEATURES), folder)
        file = target.path(f"{folder}/meta/episodes/chunk-000/file-000.parquet")
        self._listed = pq.ParquetWriter(file, EPISODES)

    def __enter__(self) -> "_DataSet":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._shards.close()
        self._listed.close()
        if kind is None:
            _write_tasks(self._target.path(f"{self._folder}/meta/tasks.parquet"), self._tasks)
            info = _info(self._episodes, self._frames, len(self._tasks), self._shape)
            for name, content in (("stats", self._stats.whole()), ("info", info)):
                self._target.write(f"{self._folder}/meta/{name}.json", strict_json(content, indent=4).encode())

    def write(self, record: Exchanged) -> None:
        """Write an episode."""
        shown, frames = for_trainers(record), self._frames
        task = self._tasks.setdefault(shown.instruction, len(self._tasks))
        rows = list[dict[str, Any]]()
        first = record.steps[0].screen
        self._shape = self._shape if self._episodes else (first.height, first.width)
        for row, screen in self._form.frames(record, shown, task, self._episodes, frames):
            rows.append(row)
            self._stats.add({name: row[name] for name in MEASURED}, screen)
        chunk, number = self._shards.write(rows)
        ends = {"dataset_from_index": frames, "dataset_to_index": frames + len(rows)}
        places = {"data/chunk_index": chunk, "data/file_index": number}
        own = {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
        episode = {"episode_index": self._episodes, "tasks": [shown.instruction], "length": len(rows)}
        self._listed.write_table(pa.Table.from_pylist([{**episode, **places, **ends, **own}], schema=EPISODES))
        self._frames, self._episodes = frames + len(rows), self._episodes + 1


class _Shards:
    """Writer of the data's files, which have at most about `MEGABYTES` and a row group per episode."""

    def __init__(self, target: Target, schema: pa.Schema, folder: str) -> None:
        self._target, self._schema, self._folder = target, schema, folder
        self._number, self._bytes = -1, MEGABYTES * 10**6
        self._writer: pq.ParquetWriter | None = None

    def close(self) -> None:
        """End the last file."""
        if self._writer is not None:
            self._writer.close()

    def write(self, rows: list[dict[str, Any]]) -> tuple[int, int]:
        """Write an episode; return the numbers of its chunk and file."""
        table = pa.Table.from_pylist(rows, schema=self._schema)
        if self._bytes + table.nbytes > MEGABYTES * 10**6 or self._writer is None:
            if self._writer is not None:
                self._writer.close()
            self._number, self._bytes = self._number + 1, 0
            self._writer = pq.ParquetWriter(
                self._target.path(f"{self._folder}/{DATA_PATH.format(**self._place())}"), self._schema
            )
        self._writer.write_table(table)
        self._bytes += table.nbytes
        place = self._place()
        return place["chunk_index"], place["file_index"]

    def _place(self) -> dict[str, int]:
        return {"chunk_index": self._number // PER_CHUNK, "file_index": self._number % PER_CHUNK}


def _info(episodes: int, frames: int, tasks: int, shape: tuple[int, int]) -> dict[str, Any]:
    plain = {name: {"dtype": "int64", "shape": [1], "names": None} for name in (*_COUNTS, REPLY)}
    texts = {name: {"dtype": "string", "shape": [1], "names": None} for name in ("action_json", "thought", OWN)}
    ends = {
        name: {"dtype": "bool", "shape": [1], "names": None} for name in ("next.done", "next.success", REPLY_SCREEN)
    }
    floats = {name: {"dtype": "float32", "shape": [1], "names": None} for name in ("next.reward", "timestamp")}
    screen = {"dtype": "image", "shape": [*shape, 3], "names": ["height", "width", "channels"]}
    action = {"dtype": "float32", "shape": [len(VECTOR)], "names": list(VECTOR)}
    return {
        "codebase_version": VERSION,
        "robot_type": "gui",
        "total_episodes": episodes,
        "total_frames": frames,
        "total_tasks": tasks,
        "chunks_size": PER_CHUNK,
        "data_files_size_in_mb": MEGABYTES,
        "video_files_size_in_mb": 200,
        "fps": FPS,
        "splits": {"train": f"0:{episodes}"},
        "data_path": DATA_PATH,
        "video_path": None,
        "features": {SCREEN: screen, "action": action, **texts, **floats, **ends, **plain},
        OWN: {"unit": "fraction", "actions": list(NAMES)},
    }


def _write_tasks(path: Path, tasks: dict[str, int]) -> None:
    """Write tasks by their text, which is the index of the frame that pandas reads."""
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
        for name, kind, numpy in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ]
    metadata = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.2.0"}
    table = pa.table({"task_index": pa.array(tasks.values(), pa.int64()), "task": pa.array(tasks, pa.string())})
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(metadata)}), path)
