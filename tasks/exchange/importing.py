"""Import a data set of another project into the lake, as an iteration with a negative number.

An import reads the data set twice. The first pass checks every record and writes nothing. One unusable record refuses
the whole data set, so no training uses a part of a data set. The second pass writes the rows under keys derived from
their content.

An import is named `import:FORMAT:DIGEST`, by a digest of its content, and each name has one iteration. A repeated
import therefore continues or repeats the earlier import.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import count, islice, takewhile
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from common.process import home
from common.text import counted
from curation.converters.exchanged import OWN, Exchanged, ImportedReview, RecordPlace, RecordRefused
from curation.converters.files import ImportSource, RecordedAs, line_of
from curation.converters.format import FORMATS
from curation.converters.rows import Import, ImportedRows, id_of, recording_of, rows_of, screenshot_of
from curation.converters.units import UNITS
from curation.gates.registry import gates_of
from curation.reviews import standing
from environments.catalog import catalog, whole_catalog
from models.readers import reader_class
from schemas.config import Config
from schemas.config.curating import VideoConfig
from schemas.failure import FlywheelError, LakeError, UsageError
from schemas.table import Metrics, utc_now
from schemas.tables.review import Review
from schemas.tables.screenshot import Screenshot
from schemas.tables.stage import IMPORTS, StageResult, label_of
from schemas.tables.task import IMPORTED, JUDGED, GuiTask
from storage.lake import Lake
from tasks.running.boundary import flow_task
from tasks.running.console import bar
from tasks.running.run import Run, run_of
from tasks.running.stage import result_of, stage
from tasks.shared.reviews import Draft, require_words, reviews_of, submit

FOLDER = "imports"
"""Folder among the lake's blobs. Each import has one file in it, which only one writer can create."""
REFUSED = "refused.jsonl"
"""File in the work folder with the refused records of the last import."""
MOST_REFUSED = 10_000
"""Maximum number of records in the file of refused records."""
TOGETHER_BYTES = 16_000_000
"""Bytes of pictures after which a chunk of trajectories is written."""
TOGETHER = 64
"""Maximum number of trajectories in a chunk."""


_LAST = "recheck"
"""Last stage of an import."""


class Request(BaseModel):
    """A requested import."""

    model_config = ConfigDict(frozen=True)

    format: str
    """Name or dotted path of the format."""
    path: Path
    unit: str | None = None
    """Unit of coordinates, for records that name no unit."""
    images: Path | None = None
    """Folder that relative names of pictures start from."""
    demonstrations: bool = False
    """Whether records without an outcome count as successes."""
    instruction: str = ""
    """Instruction of recordings that have none."""
    license: str = ""
    """Licence of recordings that have none."""
    video: VideoConfig = VideoConfig()
    """How recordings are read."""


class CheckedImport(BaseModel):
    """A checked data set."""

    model_config = ConfigDict(frozen=True)

    name: str
    """`import:FORMAT:DIGEST`."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Files below its folder that look like records and are not read, each with the reason."""


class ImportRecord(BaseModel):
    """Content of the file of an import in the lake."""

    model_config = ConfigDict(frozen=True)

    name: str
    """`import:FORMAT:DIGEST`."""
    demonstrations: bool


class ImportResult(StageResult):
    """Counts of the records of an imported data set. Each record counts once."""

    format: str
    path: str
    source: str
    """`import:FORMAT:DIGEST`."""
    trajectories: int
    """Number of new trajectories."""
    steps: int
    already: int
    """Number of trajectories that the lake had before the import."""
    repeated: int
    """Number of records that equal an earlier record of the data set."""
    unreadable: int
    """Number of steps without a readable action."""
    without_outcome: int = 0
    """Number of new trajectories without an outcome."""
    recordings: int = 0
    """Number of new screen recordings, with and without an event log."""
    frames: int = 0
    """Number of their kept frames."""
    questions: int = 0
    """Number of new questions about places on screens. The screen of each is a trajectory without an action."""
    forgotten: int = 0
    """Number of records that `flywheel forget` removed earlier; they are not imported again."""
    decisions: int
    """Number of new decisions of reviewers."""

    def __str__(self) -> str:
        new, already, repeated = self.trajectories, self.already, self.repeated
        count, file = counted(new or already, "trajectory", "trajectories"), Path(self.path).name
        if new:
            parts = [f"{count}, {counted(self.steps, 'step')} of {file}"]
            parts += [f"{already} {'was' if already == 1 else 'were'} in the lake already"] if already else []
        else:
            parts = [f"{count} of {file} {'is' if already == 1 else 'are'} in the lake already"]
        if self.recordings:
            shown = f"{counted(self.recordings, 'recording')} with {counted(self.frames, 'frame')}"
            parts = [*(parts if new or already else []), shown]
        if repeated:
            parts.append(f"{counted(repeated, 'record')} {'is' if repeated == 1 else 'are'} the same as an earlier one")
        if self.questions:
            parts.append(f"{counted(self.questions, 'question')} about places")
        if self.forgotten:
            parts.append(f"{counted(self.forgotten, 'record')} forgotten earlier, left out")
        if self.unreadable:
            unread = f"{counted(self.unreadable, 'step')} without an action that could be read"
            parts.append(f"{unread} (kept as text, with the reason)")
        if self.decisions:
            parts.append(f"{self.decisions} decisions of people{'' if new else ' are new'}")
        return "; ".join(parts)


@flow_task("check-import")
def check_import(config: Config, request: Request) -> CheckedImport:
    """Read the whole data set without writing, and return its name and the files that are left out.

    Raises:
        UsageError: the format or file does not exist, or a record is unusable. The message then has the file, line and
            field of the first unusable record, and the path of the file that lists all.
        FlywheelError: a package that the screen reader needs is missing.
    """
    gates_of(config.filter)
    reader_class(config.annotate.reader)
    form, held_out = FORMATS.class_of(request.format), _split(config, held_out=True)
    whole, refused = hashlib.sha256(), list[RecordRefused]()
    source = _source(request, _lake_of(config))
    try:
        with bar() as progress:
            shown = progress.add_task("check", total=None, message="")
            for place, found in form().read(source):
                problem = found if isinstance(found, RecordRefused) else _refusal(found, held_out, place)
                if problem is None and not isinstance(found, RecordRefused):
                    whole.update(found.digest_decided.encode())
                elif isinstance(problem, RecordRefused) and len(refused) < MOST_REFUSED:
                    refused.append(problem)
                progress.advance(shown)
    except UsageError as error:
        raise UsageError(error.problem + _format_of(_formats_of(request)), error.hint) from error
    empty = whole.digest() == hashlib.sha256().digest()
    if refused:
        raise _error_of(refused, _formats_of(request) if empty else ())
    if empty:
        problem = f"{request.path} holds no record.{_format_of(_formats_of(request))}"
        raise UsageError(problem, "Name a file of this format, or its folder.")
    return CheckedImport(name=f"import:{form.name}:{whole.hexdigest()[:16]}", left_out=tuple(source.left_out))


@flow_task("find-new")
def has_new(config: Config, request: Request, name: str) -> bool:
    """Return whether an import has a trajectory that the lake lacks, or was begun and is not finished.

    Raises:
        UsageError: it was imported with `--demonstrations` and is requested without, or it is not finished and was
            begun without.
    """
    lake = run_of(config).lake
    store = lake.blobs.store
    for number in takewhile(lambda number: store.exists(_claim(number)), count()):
        there = ImportRecord.model_validate_json(store.get(_claim(number)))
        if there.name == name:
            unfinished = result_of(lake, IMPORTS - number, _LAST) is None
            _check_outcome(there, request, IMPORTS - number, unfinished)
            return unfinished
    records, forgotten = _taken(lake, request), lake.forgotten()
    while chunk := list(islice(records, TOGETHER)):
        theirs = [one for one in chunk if not _is_own(lake, one)]
        names = {id_of(lake.lake_id, one) for one in theirs if one.steps} - forgotten
        if names and lake.count("trajectories", {"trajectory_id": sorted(names)}) < len(names):
            return True
        recorded = {id_of(lake.lake_id, one) for one in theirs if one.recording} - forgotten
        if recorded and lake.count("recordings", {"recording_id": sorted(recorded)}) < len(recorded):
            return True
    return False


@flow_task("claim-import")
def claim_import(config: Config, request: Request, name: str) -> int:
    """Assign an iteration to an import permanently, and return the iteration.

    Raises:
        UsageError: the data set was begun with another value of `--demonstrations`.
    """
    store = run_of(config).lake.blobs.store
    claim = ImportRecord(name=name, demonstrations=request.demonstrations)
    for number in count():
        found = store.put_or_get(_claim(number), claim.model_dump_json().encode())
        there = ImportRecord.model_validate_json(found)
        if there.name != name:
            continue
        _check_outcome(there, request, IMPORTS - number, unfinished=True)
        return IMPORTS - number
    raise AssertionError


def mark_demonstrations(lake: Lake, name: str) -> None:
    """Record that an import's trajectories without an outcome count as successes, as if it had begun so."""
    store = lake.blobs.store
    for number in takewhile(lambda number: store.exists(_claim(number)), count()):
        there = ImportRecord.model_validate_json(store.get(_claim(number)))
        if there.name == name and not there.demonstrations:
            store.put(_claim(number), there.model_copy(update={"demonstrations": True}).model_dump_json().encode())


def _check_outcome(there: ImportRecord, request: Request, iteration: int, unfinished: bool) -> None:
    label = label_of(iteration)
    if there.demonstrations and not request.demonstrations:
        ids = f"flywheel trajectories --iteration={iteration} --ids"
        raise UsageError(
            f"{request.path} is {label} already, with --demonstrations.",
            f"Give the same option. Or decide on it: `{ids} | flywheel trajectories decide reject --ids -`.",
        )
    if unfinished and request.demonstrations and not there.demonstrations:
        raise UsageError(
            f"{request.path} is {label}, which was begun without --demonstrations and is not finished.",
            "Finish it by the command without the option. Then repeat the command with it.",
        )


def _claim(number: int) -> str:
    return f"{FOLDER}/{number:04d}.json"


def import_data_set(config: Config, request: Request, name: str, iteration: int) -> Metrics:
    """Run the stage that writes the rows of a checked import.

    A repeated import only adds new decisions of reviewers. Raises the errors of `check_import` if the files changed
    after the check.
    """
    run = run_of(config)
    done = result_of(run.lake, iteration, "import")
    if done is None:
        return stage("import")(lambda run, at: _import_records(run, at, request, name))(config, iteration)
    return {**done, **_resume_import(run, request, name).stored}


def import_decisions(config: Config, request: Request, name: str) -> Metrics:
    """Write the reviewers' decisions of a data set, without a new iteration. The lake has all of its trajectories."""
    return _resume_import(run_of(config), request, name).stored


def _resume_import(run: Run, request: Request, name: str) -> ImportResult:
    """Write the reviewers' decisions of a data set. The lake has all of its trajectories."""
    theirs = Home()
    for one in _taken(run.lake, request):
        own = _is_own(run.lake, one)
        known = one.about.trajectory_id if own else id_of(run.lake.lake_id, one)
        theirs.names.add(known)
        theirs.records += 1
        if found := one.decided if own else one.decisions:  # without corrections that this lake exported
            theirs.decided.append((known, found))
    new = write_decisions(run.lake, theirs.decided)
    already = len(theirs.names)
    counts = {"already": already, "repeated": theirs.records - already, "decisions": new}
    return _result(request, name, {"trajectories": 0, "steps": 0, **counts, "unreadable": 0})


def _result(request: Request, name: str, counts: Mapping[str, int]) -> ImportResult:
    return ImportResult(format=name.split(":")[1], path=str(request.path), source=name, **counts)


def _import_records(run: Run, iteration: int, request: Request, name: str) -> ImportResult:
    """Write the rows of an import. Trajectories without a known task get a task of the import."""
    _, kind, digest = name.split(":")
    own = GuiTask(
        task_id=f"{IMPORTED}/{kind}-{digest[:8]}",
        environment=IMPORTED,
        template=f"{kind}-{digest[:8]}",
        instruction="{}",
        tags=[kind],
        split="train",
        max_steps=1000,
        verifier=JUDGED,
        lineage=name,
    )
    known = frozenset(_split(run.config))
    lake_id, given = run.lake.lake_id, request.demonstrations
    of = Import(lake_id, run.run_id, iteration, own.task_id, known, name, given, utc_now())
    tasks = {one.task_id: one for one in (*catalog(run.config), own)}
    return _result(request, name, _write(run.lake, request, of, tasks))


def _write(lake: Lake, request: Request, of: Import, tasks: Mapping[str, GuiTask]) -> dict[str, int]:
    """Write all rows and their tasks, and return the counts of records: new, already in the lake, or repeated."""
    mine, unread, theirs, open_ = dict[str, int](), dict[str, int](), Home(), set[str]()
    asked = dict[str, int]()
    films = _Films(lake, of)
    with bar() as progress:
        shown = progress.add_task("import", total=None, message="")
        for chunk in _chunks(lake, request, of, theirs, films):
            names = [rows.trajectory.trajectory_id for rows in chunk]
            where = {"trajectory_id": names}
            there = lake.read("trajectories", ["trajectory_id", "iteration"], where).to_pylist()
            others = {row["trajectory_id"] for row in there if row["iteration"] != of.iteration}
            theirs.names |= others
            once = {rows.trajectory.trajectory_id: rows for rows in reversed(chunk)}
            new = [rows for name, rows in once.items() if name not in others and name not in mine]
            lake.append("tasks", [tasks[one] for one in sorted({rows.trajectory.task_id for rows in new})])
            lake.append("screenshots", [one for rows in new for one in rows.screenshots])
            lake.append("steps", [one for rows in new for one in rows.steps])
            lake.append("reflections", [one for rows in new for one in rows.reflections])
            lake.append("annotations", [one for rows in new for one in rows.annotations])
            lake.append("trajectories", [rows.trajectory for rows in new])
            theirs.decided += [(rows.trajectory.trajectory_id, rows.decided) for rows in chunk if rows.decided]
            mine |= {rows.trajectory.trajectory_id: rows.trajectory.n_steps for rows in new}
            asked |= {one.trajectory.trajectory_id: len(one.annotations) for one in new if one.annotations}
            acting = [one for one in new if not one.annotations]
            unread |= {one.trajectory.trajectory_id: sum(not step.actions for step in one.steps) for one in acting}
            open_ |= {one.trajectory.trajectory_id for one in acting if one.trajectory.success is None}
            progress.advance(shown, len(chunk))
    counts = {"trajectories": len(mine), "steps": sum(mine.values()), "already": len(theirs.names)}
    counts["repeated"] = theirs.records - len(mine) - len(theirs.names) - films.alone - theirs.forgotten
    counts["forgotten"] = theirs.forgotten
    counts |= {"recordings": films.count, "frames": films.frames}
    counts |= {"without_outcome": len(open_), "questions": sum(asked.values())}
    return {**counts, "unreadable": sum(unread.values()), "decisions": write_decisions(lake, theirs.decided)}


def write_decisions(lake: Lake, decided: Iterable[tuple[str, Sequence[ImportedReview]]]) -> int:
    """Write reviewers' decisions about stored trajectories, and return the number of new decisions."""
    whole: dict[str, list[ImportedReview]] = defaultdict(list)
    for name, some in decided:
        whole[name] += some
    return sum(decide(lake, name, some) for name, some in whole.items())


def decide(lake: Lake, name: str, decided: Sequence[ImportedReview]) -> int:
    """Write reviewers' decisions about a stored trajectory, and return the number of new decisions.

    A repeated import writes a decision again only if the reviewer made a different decision in between.

    Raises:
        UsageError: a decision is not possible for this trajectory.
    """
    new = 0
    for number, one in enumerate(decided):
        there = reviews_of(lake, name)
        if not _is_stored(one, there, decided[number + 1 :]):
            submit(lake, Draft(name, len(there), **asdict(one)))
            new += 1
    return new


def _is_stored(one: ImportedReview, there: Sequence[Review], later: Sequence[ImportedReview]) -> bool:
    """Whether the lake has a decision as the newest of its reviewer on its subject, apart from the `later`
    decisions."""
    same = [number for number, review in enumerate(there) if _equals(review, one)]
    if not same:
        return False
    held = [review for review in standing(there) if review.revision > there[same[-1]].revision]
    return all(any(_equals(review, other) for other in later) for review in held if _replaces(review, one))


def _equals(review: Review, one: ImportedReview) -> bool:
    return all(getattr(review, key) == value for key, value in asdict(one).items())


def _replaces(review: Review, one: ImportedReview) -> bool:
    """Return whether an imported decision replaces a review: by the same reviewer, on the same step or trajectory."""
    if review.person != one.person:
        return False
    words = {review.decision, one.decision} <= {"accept", "reject", "error_step"}
    contrary = words and (review.decision == "accept") != (one.decision == "accept")
    return contrary or (review.decision, review.step) == (one.decision, one.step)


@dataclass
class Home:
    """Trajectories of an import that the lake already has."""

    names: set[str] = field(default_factory=set[str])
    records: int = 0
    """Number of records read, new and repeated records included."""
    forgotten: int = 0
    """Number of records that were forgotten."""
    decided: list[tuple[str, Sequence[ImportedReview]]] = field(
        default_factory=list[tuple[str, Sequence[ImportedReview]]]
    )
    """Reviewers' decisions on old and new trajectories."""


@dataclass
class _Films:
    """Writes the recordings of an import: their frames one after the other, then the row that names them."""

    lake: Lake
    of: Import
    count: int = 0
    """Number of new recordings."""
    alone: int = 0
    """Number of them without a trajectory."""
    frames: int = 0

    def write(self, record: Exchanged) -> None:
        """Write the recording of a record, if it has one that the lake lacks."""
        if record.recording is None:
            return
        name = id_of(self.lake.lake_id, record)
        if self.lake.count("recordings", {"recording_id": name}):
            return
        frames, times, held, weight = list[str](), list[float](), dict[str, Screenshot](), 0
        for second, picture in record.recording.frames():
            frames.append(picture.sha256)
            times.append(second)
            held[picture.sha256] = screenshot_of(picture, self.of.iteration)
            weight += len(picture.png)
            if weight > TOGETHER_BYTES:
                self.lake.append("screenshots", list(held.values()))
                held, weight = {}, 0
        self.lake.append("screenshots", list(held.values()))
        self.lake.append("recordings", [recording_of(record, self.of, frames, times)])
        self.count, self.frames = self.count + 1, self.frames + len(frames)
        self.alone += not record.steps


def _chunks(lake: Lake, request: Request, of: Import, theirs: Home, films: _Films) -> Iterator[list[ImportedRows]]:
    """Yield the rows of all records in chunks, without trajectories that this lake exported, and write recordings."""
    chunk, weight = list[ImportedRows](), 0
    forgotten = lake.forgotten()
    for found in _taken(lake, request):
        theirs.records += 1
        if id_of(lake.lake_id, found) in forgotten:
            theirs.forgotten += 1
            continue
        if _is_own(lake, found):
            theirs.names.add(found.about.trajectory_id)
            theirs.decided += [(found.about.trajectory_id, found.decided)]
            continue
        films.write(found)
        if not found.steps:
            continue
        chunk.append(rows_of(found, of))
        weight += sum(len(one.png) for one in chunk[-1].screenshots)
        if weight > TOGETHER_BYTES or len(chunk) >= TOGETHER:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


def foreign_ids(lake: Lake, request: Request) -> Iterator[str]:
    """Yield the ids that a data set's records have in the lake, without trajectories that this lake exported."""
    return (id_of(lake.lake_id, one) for one in _taken(lake, request) if one.steps and not _is_own(lake, one))


def _is_own(lake: Lake, found: Exchanged) -> bool:
    """Whether this lake exported a record and still has its trajectory."""
    return _has(lake, found.about.lake, found.about.trajectory_id)


def _has(lake: Lake, lake_id: str, name: str) -> bool:
    return lake_id == lake.lake_id and lake.count("trajectories", {"trajectory_id": name}) > 0


def _taken(lake: Lake, request: Request) -> Iterator[Exchanged]:
    """Yield the records. Raise UsageError for a refused record."""
    for _, found in _read(request, lake):
        if isinstance(found, RecordRefused):
            raise _error_of([found])
        yield found


def _read(request: Request, lake: Lake | None) -> Iterator[tuple[RecordPlace, Exchanged | RecordRefused]]:
    return FORMATS.class_of(request.format)().read(_source(request, lake))


def _source(request: Request, lake: Lake | None) -> ImportSource:
    @lru_cache(64)
    def stored(lake_id: str, name: str) -> bool:
        return lake is not None and _has(lake, lake_id, name)

    recorded = RecordedAs(request.instruction, request.license, request.video)
    return ImportSource(request.path, request.images, request.unit, stored, recorded)


def _formats_of(request: Request) -> list[str]:
    """Return other formats that can read the first record; empty if the requested format can read it."""
    if _reads(request):
        return []
    named = [name for name in FORMATS.names if not FORMATS.class_of(name).read_by]
    return [name for name in named if _reads(request.model_copy(update={"format": name}))]


def _format_of(formats: Sequence[str]) -> str:
    """Return a space and a sentence that proposes these formats; empty if there are none."""
    return f" This looks like {' or '.join(formats)}: give `--format {formats[0]}`." if formats else ""


def _reads(request: Request) -> bool:
    """Return whether the requested format can read the first record, in any unit."""
    assumed = FORMATS.class_of(request.format).assumed
    for unit in [request.unit or assumed] if request.unit or assumed else UNITS:
        try:
            _, found = next(_read(request.model_copy(update={"unit": unit}), None), (None, None))
        except FlywheelError:
            return False
        if isinstance(found, Exchanged):
            return True
    return False


def _lake_of(config: Config) -> Lake | None:
    """Return the lake, or None if there is no lake."""
    try:
        return Lake.open(config.lake, create=False)
    except LakeError:
        return None


def _split(config: Config, held_out: bool = False) -> set[str]:
    return {one.task_id for one in whole_catalog(config) if (one.split == "held_out") == held_out}


def _refusal(record: Exchanged, held_out: set[str], place: RecordPlace) -> RecordRefused | None:
    """Return the reason to refuse a record: training may not use it, or its decisions cannot be stored. Else None."""
    name = record.about.task_id
    if name in held_out:
        return RecordRefused(
            place, f"{OWN}.trajectory.task_id", f"{name} is held out (`suite.held_out`): it makes no data"
        )
    for one in record.decisions:
        try:
            require_words(one, record.about.failure_boundary)
        except UsageError as error:
            return RecordRefused(place, f"a decision of {one.person}", str(error))
    return None


def _error_of(refused: list[RecordRefused], formats: Sequence[str] = ()) -> UsageError:
    """Write all refused records to a file, and return the error.

    Args:
        refused: the refused records.
        formats: other formats that can read the first record.
    """
    file = home() / REFUSED
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"file": one.place.file, one.place.counted: one.place.line, "field": one.field, "problem": one.problem}
        for one in refused
    ]
    file.write_text("".join(map(line_of, rows)), encoding="utf-8")
    more = f" {len(refused) - 1} more records are refused." if len(refused) > 1 else ""
    more += _format_of(formats)
    hint = f"Nothing was imported. Repair the file, or take the record out; all are listed in {file}."
    return UsageError(f"{refused[0]}.{more}", hint)
