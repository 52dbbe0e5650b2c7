"""Screen recordings: a video file, an event log next to it, and a record of both in `recordings.jsonl`.

The events are merged into actions (`curation.events`), and each action is a step whose screen is the last frame before
the action began. Without an event log, a recording has frames and no steps.

A record: `{video, events, instruction, success, license, start, screen}`. Without records, each video file of a folder
is a recording. Its event log is the file `NAME.jsonl` next to it, or the folder's `events.jsonl` with `metadata.json`,
as AgentNet's recorder writes them.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from pydantic import ValidationError

from common.picture import png_of, rgb_of
from common.text import Storable
from curation.converters.exchanged import (
    OWN,
    Exchanged,
    ExchangedStep,
    Metadata,
    Picture,
    Recorded,
    RecordPlace,
    RecordRefused,
    metadata_of,
    with_metadata,
)
from curation.converters.files import ImportSource, OpenModel, Target, fields_of, line_of, model_of
from curation.converters.format import Format, Read, each
from curation.converters.units import fraction_of
from curation.events import PAUSES, POINTED, SLACK_S, InputEvent, TimedActions, actions_of
from curation.timeline import ACT_S, THINK_S
from curation.video import (
    SUFFIXES,
    Shot,
    VideoFacts,
    VideoRefused,
    facts_of,
    frames_of,
    kept,
    last_before,
    write_video,
)
from schemas.failure import UsageError
from schemas.problem import named_problem

RECORDS, EVENTS, METADATA = "recordings.jsonl", "events.jsonl", "metadata.json"
LOG = ".jsonl"
"""Suffix of an event log that is named after its video."""
PIECE = 1 << 20
"""Bytes of a file that are read at a time."""


class _RecordingLine(OpenModel):
    video: str
    events: str | None = None
    """Name of the event log; if null, the log next to the video, if any. Empty for no log."""
    instruction: Storable = ""
    success: bool | None = None
    license: Storable = ""
    start: float | None = None
    """Time of the event log at the first frame."""
    screen: tuple[int, int] | None = None
    """Width and height of the screen in the event log's pixels; the video's if null."""
    flywheel: Metadata | None = None


@dataclass(frozen=True, slots=True)
class _Log:
    """An event log with its clock and its pixels."""

    file: Path
    start: float
    screen: tuple[int, int] | None


class RecordingFormat(Format):
    """Screen recordings with event logs."""

    name = "recording"
    assumed = "pixels"
    units = ("fraction",)
    several = True

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write a video and an event log for each trajectory. The log has a line for each step, with its actions."""
        with target.path(RECORDS).open("w", encoding="utf-8") as lines:
            for number, record in enumerate(records):
                name = f"{number:05d}"
                lines.write(line_of(self._written(record, target, name)))

    def _written(self, record: Exchanged, target: Target, name: str) -> dict[str, Any]:
        times, now = list[tuple[float, float]](), 0.0
        for step in record.steps:
            shown = now if step.shown_s is None else step.shown_s
            began = shown + THINK_S if step.began_s is None else step.began_s
            times.append((shown, began))
            now = began + ACT_S
        shots = [(shown, step.screen) for (shown, _), step in zip(times, record.steps, strict=True)]
        end = now if record.steps and record.steps[-1].began_s is None else max(now, times[-1][1] + ACT_S)
        shots += [(end, record.after)] if record.after else []
        size = record.steps[0].screen.width, record.steps[0].screen.height
        write_video(target.path(f"{name}.mp4"), _fitted(shots, size), end + ACT_S)
        events = (
            {
                "time": round(began, 3),
                "kind": "actions",
                "actions": [action.model_dump() for action in step.actions],
                **({"thought": step.thought} if step.thought else {}),
                **({"text": step.text} if step.text else {}),
            }
            for (_, began), step in zip(times, record.steps, strict=True)
        )
        target.write(f"{name}{LOG}", "".join(map(line_of, events)).encode())
        success = {} if record.success is None else {"success": record.success}
        own = metadata_of(record, self.name, self.unit)
        return {"video": f"{name}.mp4", "instruction": record.instruction, **success, OWN: own}

    def records(self, source: ImportSource) -> Read:
        """Yield one trajectory for each recording."""
        return each(source, _lines(source), _record)


def _fitted(shots: Iterable[tuple[float, Picture]], size: tuple[int, int]) -> Iterator[tuple[float, Image.Image]]:
    """Yield pictures of one size; a screen of another size is scaled."""
    for second, shot in shots:
        image = rgb_of(shot.png)
        yield second, image if image.size == size else image.resize(size)


def _lines(source: ImportSource) -> Iterator[tuple[RecordPlace, Any]]:
    """Yield the records of `recordings.jsonl`, or a record for each video file."""
    if source.path.is_file():
        if source.path.suffix.lower() in SUFFIXES:
            yield RecordPlace(source.named(source.path)), {"video": source.path.name}
        elif source.path.suffix.lower() == LOG:
            yield from source.records(source.path)
        else:
            problem = f"{source.path} is no video (*{', *'.join(SUFFIXES)}) and no {RECORDS}."
            raise UsageError(problem, "Name a video file, its folder, or a file of records.")
        return
    every = source.files(*SUFFIXES, LOG)
    records = [one for one in every if one.name == RECORDS]
    videos = [one for one in every if one.suffix.lower() in SUFFIXES]
    if not records and not videos:
        problem = f"{source.path} has neither {RECORDS} nor a video file (*{', *'.join(SUFFIXES)})."
        raise UsageError(problem, f"Name the folder of the videos, or write {RECORDS}.")
    source.leave_out(every, f"read are {RECORDS} and video files", lambda one: one.name != METADATA)
    for file in records:
        yield from source.records(file)
    for file in videos if not records else ():
        yield RecordPlace(source.named(file)), {"video": str(file.relative_to(source.path))}


def _record(value: Any, source: ImportSource, place: RecordPlace) -> Exchanged:
    line, given = model_of(_RecordingLine, value, place), source.recorded
    file = _file(line.video, source, place, "video")
    try:
        facts = facts_of(file)
    except VideoRefused as error:
        raise RecordRefused(place, "video", f"{line.video}: {error}") from error
    if facts.seconds > given.video.max_seconds:
        problem = f"a recording of {facts.seconds:,.0f} s, and at most {given.video.max_seconds:,.0f} s are taken"
        raise RecordRefused(place, "video", f"{problem}: cut it, or raise `video.max_seconds`")
    log = _log_of(line, file, source, place)
    done = [] if log is None else _done(log, facts, source)
    instruction = line.instruction or given.instruction
    if done and not instruction.strip():
        raise RecordRefused(
            place, "instruction", "no instruction: give `--instruction TEXT`, or write it in the record"
        )
    try:
        shown = list(_pictures(frames_of(file), [*(one.begin_s for one in done), math.inf]))
    except VideoRefused as error:
        raise RecordRefused(place, "video", f"{line.video}: {error}") from error
    steps = [_step(one, screen) for one, screen in zip(done, shown, strict=False)]
    extra = {RecordingFormat.name: {"license": line.license or given.license, **line.others}}
    recorded = Recorded(
        source=source.named(file),
        sha256=_sha256(file),
        license=line.license or given.license,
        width=shown[-1].width,
        height=shown[-1].height,
        rate=facts.rate,
        seconds=facts.seconds,
        fps=given.video.fps,
        frames=_reader(file, given.video.fps),
    )
    record = Exchanged(
        file.stem,
        instruction,
        tuple(steps),
        line.success,
        shown[-1] if steps else None,
        extra=extra,
        recording=recorded,
    )
    return with_metadata(record, line.flywheel, place)


def _step(done: TimedActions, screen: Picture) -> ExchangedStep:
    turned = {} if done.scrolled is None else {"scrolled": list(done.scrolled)}
    error = None if done.actions else "the event log has no action here"
    held = {"second": round(done.begin_s, 3), **turned}
    return ExchangedStep(
        screen, done.thought, done.actions, done.text, error, extra={RecordingFormat.name: held}, began_s=done.begin_s
    )


def _reader(file: Path, fps: float) -> Callable[[], Iterator[tuple[float, Picture]]]:
    def read() -> Iterator[tuple[float, Picture]]:
        for second, image in kept(frames_of(file), fps):
            yield second, Picture(png_of(image), image.width, image.height)

    return read


def _pictures(shots: Iterable[Shot], times: Sequence[float]) -> Iterator[Picture]:
    """Yield the screen before each time. A frame that several actions share is one picture."""
    last: tuple[Shot, Picture] | None = None
    for shot in last_before(shots, times):
        if last is None or last[0] is not shot:
            image = shot.image
            last = shot, Picture(png_of(image), image.width, image.height)
        yield last[1]


def _sha256(file: Path) -> str:
    found = hashlib.sha256()
    with file.open("rb") as content:
        while piece := content.read(PIECE):
            found.update(piece)
    return found.hexdigest()


def _file(name: str, source: ImportSource, place: RecordPlace, field: str) -> Path:
    """Return a file of a record, whose name is data; raise RecordRefused if it leads out of the folder or nowhere."""
    try:
        for folder in dict.fromkeys((source.folder / Path(place.file).parent, source.folder)):
            file = (folder / name).resolve()
            if not file.is_relative_to(source.folder.resolve()):
                problem = f"{name[:200]!r} leads out of the folder of the records: put the file into it"
                raise RecordRefused(place, field, problem)
            if file.is_file():
                return file
    except (OSError, ValueError) as error:
        if isinstance(error, RecordRefused):
            raise
        raise RecordRefused(place, field, f"{name[:200]!r} is not a file name: {error}") from error
    raise RecordRefused(place, field, f"there is no file {name[:200]!r} in {source.folder}: name it from there")


def _log_of(line: _RecordingLine, video: Path, source: ImportSource, place: RecordPlace) -> _Log | None:
    """Return the event log of a recording; None without one."""
    if line.events is not None:
        file = _file(line.events, source, place, "events") if line.events else None
    else:
        theirs = video.with_name(EVENTS)
        alone = sum(one.suffix.lower() in SUFFIXES for one in video.parent.iterdir()) == 1
        nearby = [video.with_suffix(LOG), *([theirs] if alone else [])]
        file = next((one for one in nearby if one.is_file()), None)
    if file is None:
        return None
    known, described = dict[str, Any](), file.with_name(METADATA)
    if described.is_file() and file.name == EVENTS:
        known = fields_of(source.document(described)[1])
    wide, high = known.get("screen_width"), known.get("screen_height")
    theirs = (int(wide), int(high)) if isinstance(wide, int) and isinstance(high, int) else None
    started = known.get("video_start_timestamp")
    start = line.start if line.start is not None else started if isinstance(started, int | float) else 0.0
    return _Log(file, float(start), line.screen or theirs)


def _done(log: _Log, facts: VideoFacts, source: ImportSource) -> list[TimedActions]:
    """Read an event log into actions.

    Raises:
        RecordRefused: an event is invalid, its place is outside of the screen, or its time outside of the recording.
    """
    wide, high = log.screen or (facts.width, facts.height)
    events = list[InputEvent]()

    def fraction(x: float, y: float) -> tuple[float, float]:
        return fraction_of(x, y, "pixels", wide, high)

    for place, value in source.records(log.file):
        if fields_of(value).get("action") in PAUSES:
            continue
        event = model_of(InputEvent, value, place)
        event.time = _inside(event.time - log.start, facts, place)
        for x, y in ((event.x, event.y), (event.to_x, event.to_y)) if event.kind in POINTED else ():
            if x is not None and y is not None:
                try:
                    fraction(x, y)
                except ValueError as error:
                    problem = f"{error}; write the screen's width and height as `screen` into {RECORDS}"
                    raise RecordRefused(place, "x", problem) from error
        events.append(event)
    try:
        return actions_of(events, fraction)
    except ValidationError as error:
        raise RecordRefused(RecordPlace(source.named(log.file)), "", named_problem(error)) from error
    except ValueError as error:
        raise RecordRefused(RecordPlace(source.named(log.file)), "key", str(error)) from error


def _inside(second: float, facts: VideoFacts, place: RecordPlace) -> float:
    """Return an event's time within the recording; raise RecordRefused for one outside of it."""
    if not -SLACK_S <= second <= facts.seconds + SLACK_S:
        problem = (
            f"{second:,.1f} s lies outside of the recording of {facts.seconds:,.1f} s: count times from the first "
            f"frame, or write the log's time at the first frame as `start` into {RECORDS}"
        )
        raise RecordRefused(place, "time", problem)
    return min(max(second, 0.0), facts.seconds)
