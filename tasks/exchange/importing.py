"""Bringing a data set of others into the lake as an iteration of its own.

It is read twice. The first time nothing is written: every record is checked, and one that cannot be taken refuses
all, so that no half of a data set is ever trained on. What it holds gives it its name, `import:FORMAT:DIGEST`, and with
that its iteration: a file that is imported again is the import that it was, and one that a kill cut short goes on. The
second time its rows are written under keys that derive from what they hold.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from pydantic import BaseModel, ConfigDict

from curation.converters.exchanged import OWN, Exchanged, ImportedReview, RecordPlace, RecordRefused
from curation.converters.files import ImportSource, line_of
from curation.converters.format import FORMATS
from curation.converters.rows import Import, ImportedRows, rows_of
from curation.gates.registry import gates_of
from curation.reviews import standing
from environments.catalog import catalog, whole_catalog
from models.readers.reader import reader_class
from schemas.config import Config
from schemas.failure import LakeError, UsageError
from schemas.metrics import Metrics
from schemas.project_dir import home
from schemas.table import utc_now
from schemas.tables.review import Review
from schemas.tables.stage import IMPORTS, label_of
from schemas.tables.task import IMPORTED, JUDGED, GuiTask
from schemas.text import counted
from storage.lake import Lake
from tasks.running.console import bar
from tasks.running.run import Run, run_of
from tasks.running.stage import result_of, stage
from tasks.shared.reviews import Draft, require_words, reviews_of, submit

FOLDER = "imports"
"""Of the lake's blobs: a small file per import, which one writer alone can make."""
REFUSED = "refused.jsonl"
"""In the work folder: every record that the last import refused."""
MOST_REFUSED = 10_000
"""Records that this file lists."""
TOGETHER_BYTES = 16_000_000
"""Bytes of pictures that are written together."""
TOGETHER = 64
"""Trajectories that are written together at most."""


class Request(BaseModel):
    """What is to be imported."""

    model_config = ConfigDict(frozen=True)

    format: str
    """A name or a dotted path."""
    path: Path
    unit: str | None = None
    """Of coordinates, for records that do not say."""
    images: Path | None = None
    """The folder that pictures are named from."""
    demonstrations: bool = False
    """Records that do not say how they ended were successes."""


class ImportRecord(BaseModel):
    """An import, as its file in the lake has it."""

    model_config = ConfigDict(frozen=True)

    name: str
    """`import:FORMAT:DIGEST`."""
    demonstrations: bool


@task(name="check-import", cache_policy=NO_CACHE)
def check_import(config: Config, request: Request) -> str:
    """Reads all of it, writes nothing, and returns its name.

    Raises:
        UsageError: there is no such format or file; or a record cannot be taken: names the first by file, line and
            field, and the file that lists all.
        FlywheelError: a package of the reader of screens is missing.
    """
    gates_of(config.filter)
    reader_class(config.annotate.reader)
    form, held_out = FORMATS.class_of(request.format), _split(config, held_out=True)
    whole, refused = hashlib.sha256(), list[RecordRefused]()
    with bar() as progress:
        shown = progress.add_task("check", total=None, message="")
        for place, found in _read(request, _lake_of(config)):
            problem = found if isinstance(found, RecordRefused) else _unfit(found, held_out, place)
            if problem is None and not isinstance(found, RecordRefused):
                whole.update(found.digest_decided.encode())
            elif isinstance(problem, RecordRefused) and len(refused) < MOST_REFUSED:
                refused.append(problem)
            progress.advance(shown)
    if refused:
        raise _all_of(refused)
    if whole.digest() == hashlib.sha256().digest():
        raise UsageError(f"{request.path} holds no record.", "Name a file of this format, or its folder.")
    return f"import:{form.name}:{whole.hexdigest()[:16]}"


@task(name="claim-import", cache_policy=NO_CACHE)
def claim_import(config: Config, request: Request, name: str) -> int:
    """The iteration of an import, which is its own from now on.

    Raises:
        UsageError: it was imported with another outcome.
    """
    store = run_of(config).lake.blobs.store
    claim = ImportRecord(name=name, demonstrations=request.demonstrations)
    for number in count():
        file = f"{FOLDER}/{number:04d}.json"
        there = ImportRecord.model_validate_json(store.put_or_get(file, claim.model_dump_json().encode()))
        if there.name != name:
            continue
        if there != claim:
            was = "" if there.demonstrations else "out"
            problem = f"{request.path} is {label_of(IMPORTS - number)} already, with{was} --demonstrations."
            raise UsageError(problem, "Give the same option; people and judges can still say how they ended.")
        return IMPORTS - number
    raise AssertionError


def import_data_set(config: Config, request: Request, name: str, iteration: int) -> Metrics:
    """The stage that writes the rows of a checked import; raises as `check_import` if the files were changed since.

    Of one that was written before, only people's decisions are looked at: others may have been given since.
    """
    run = run_of(config)
    done = result_of(run.lake, iteration, "import")
    if done is None:
        return stage("import")(lambda run, at: _bring(run, at, request, name))(config, iteration)
    return {**done, **_bring_again(run, iteration, request, name)}


def _bring_again(run: Run, iteration: int, request: Request, name: str) -> Metrics:
    """Of an import that was written before, what of its numbers is new now."""
    of, _ = _import_of(run, iteration, request, name)
    new = decide_all(
        run.lake,
        (
            (_name_of(run.lake, one, of), found)
            for one in _taken(run.lake, request)
            if (found := _decided(run.lake, one))
        ),
    )
    text = f"{request.path.name} was imported already"
    return {"decisions": new, "say": text + (f"; {new} decisions of people are new" if new else "")}


def _import_of(run: Run, iteration: int, request: Request, name: str) -> tuple[Import, GuiTask]:
    """What its trajectories have in common, and the task of those that name none of the lake's."""
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
    of = Import(
        run.lake.lake_id,
        run.run_id,
        iteration,
        own.task_id,
        frozenset(_split(run.config)),
        name,
        request.demonstrations,
        utc_now(),
    )
    return of, own


def _bring(run: Run, iteration: int, request: Request, name: str) -> Metrics:
    of, own = _import_of(run, iteration, request, name)
    tasks = {one.task_id: one for one in (*catalog(run.config), own)}
    numbers = _write(run.lake, request, of, tasks)
    already = numbers["already"]
    text = f"{numbers['trajectories']} trajectories, {numbers['steps']} steps of {request.path.name}"
    more = f"; {already} were in the lake already" if already else ""
    if unread := numbers["unreadable"]:
        more += f"; {counted(unread, 'step')} without an action that could be read (kept as text, with the reason)"
    more += f"; {numbers['decisions']} decisions of people" if numbers["decisions"] else ""
    return {"format": name.split(":")[1], "path": str(request.path), "source": name, **numbers, "say": text + more}


def _write(lake: Lake, request: Request, of: Import, tasks: Mapping[str, GuiTask]) -> dict[str, int]:
    """Writes all, with the tasks that it is of, and counts what was new and what the lake had before this import."""
    mine, unread, theirs = dict[str, int](), dict[str, int](), Home()
    with bar() as progress:
        shown = progress.add_task("import", total=None, message="")
        for chunk in _chunks(lake, request, of, theirs):
            names = [rows.trajectory.trajectory_id for rows in chunk]
            where = {"trajectory_id": names}
            there = lake.read("trajectories", ["trajectory_id", "iteration"], where).to_pylist()
            others = {row["trajectory_id"] for row in there if row["iteration"] != of.iteration}
            theirs.names |= others
            new = [rows for rows in chunk if rows.trajectory.trajectory_id not in others]
            lake.append("tasks", [tasks[one] for one in sorted({rows.trajectory.task_id for rows in new})])
            lake.append("screenshots", [one for rows in new for one in rows.screenshots])
            lake.append("steps", [one for rows in new for one in rows.steps])
            lake.append("reflections", [one for rows in new for one in rows.reflections])
            lake.append("trajectories", [rows.trajectory for rows in new])
            theirs.decided += [(rows.trajectory.trajectory_id, rows.decided) for rows in chunk if rows.decided]
            mine |= {rows.trajectory.trajectory_id: rows.trajectory.n_steps for rows in new}
            unread |= {one.trajectory.trajectory_id: sum(step.action is None for step in one.steps) for one in new}
            progress.advance(shown, len(chunk))
    counts = {"trajectories": len(mine), "steps": sum(mine.values()), "already": len(theirs.names)}
    return {**counts, "unreadable": sum(unread.values()), "decisions": decide_all(lake, theirs.decided)}


def decide_all(lake: Lake, decided: Iterable[tuple[str, Sequence[ImportedReview]]]) -> int:
    """Writes people's decisions on stored trajectories; returns how many were new."""
    whole: dict[str, list[ImportedReview]] = defaultdict(list)
    for name, some in decided:
        whole[name] += some
    return sum(decide(lake, name, some) for name, some in whole.items())


def decide(lake: Lake, name: str, decided: Sequence[ImportedReview]) -> int:
    """Writes people's decisions on a stored trajectory, each once however often it is imported, and again where the
    person decided otherwise since; returns how many were new. Raises UsageError for one that makes no sense there."""
    new = 0
    for number, one in enumerate(decided):
        there = reviews_of(lake, name)
        if not _holds(one, there, decided[number + 1 :]):
            submit(lake, Draft(name, len(there), **asdict(one)))
            new += 1
    return new


def _holds(one: ImportedReview, there: Sequence[Review], later: Sequence[ImportedReview]) -> bool:
    """Whether a decision is the newest of its person on what it is about, but for `later` ones of the same import."""
    same = [number for number, review in enumerate(there) if _is(review, one)]
    if not same:
        return False
    held = [review for review in standing(there) if review.revision > there[same[-1]].revision]
    return all(any(_is(review, other) for other in later) for review in held if _replaces(review, one))


def _is(review: Review, one: ImportedReview) -> bool:
    return all(getattr(review, key) == value for key, value in asdict(one).items())


def _replaces(review: Review, one: ImportedReview) -> bool:
    """Whether a review of the same person is about the same: one step's reply, or the trajectory as a whole."""
    if review.person != one.person:
        return False
    words = {review.decision, one.decision} <= {"accept", "reject", "error_step"}
    contrary = words and (review.decision == "accept") != (one.decision == "accept")
    return contrary or (review.decision, review.step) == (one.decision, one.step)


@dataclass
class Home:
    """Trajectories that the lake has already."""

    names: set[str] = field(default_factory=set[str])
    decided: list[tuple[str, Sequence[ImportedReview]]] = field(
        default_factory=list[tuple[str, Sequence[ImportedReview]]]
    )
    """What people decided on trajectories, be they these or new ones."""


def _chunks(lake: Lake, request: Request, of: Import, theirs: Home) -> Iterator[list[ImportedRows]]:
    """The rows of all records, a few at a time; trajectories of this very lake that come home are left out."""
    chunk, weight = list[ImportedRows](), 0
    for found in _taken(lake, request):
        if _is_home(lake, found):
            theirs.names.add(found.about.trajectory_id)
            theirs.decided += [(found.about.trajectory_id, found.decided)]
            continue
        chunk.append(rows_of(found, of))
        weight += sum(len(one.png) for one in chunk[-1].screenshots)
        if weight > TOGETHER_BYTES or len(chunk) >= TOGETHER:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


def _is_home(lake: Lake, found: Exchanged) -> bool:
    """Whether a record is a trajectory of this very lake."""
    return _has(lake, found.about.lake, found.about.trajectory_id)


def _has(lake: Lake, lake_id: str, name: str) -> bool:
    return lake_id == lake.lake_id and lake.count("trajectories", {"trajectory_id": name}) > 0


def _decided(lake: Lake, found: Exchanged) -> Sequence[ImportedReview]:
    """What people decided on a record that comes in; corrections that it left this very lake with are here."""
    return found.decided if _is_home(lake, found) else found.decisions


def _name_of(lake: Lake, found: Exchanged, of: Import) -> str:
    """The id of a record's trajectory in the lake."""
    return found.about.trajectory_id if _is_home(lake, found) else rows_of(found, of).trajectory.trajectory_id


def _taken(lake: Lake, request: Request) -> Iterator[Exchanged]:
    """The records; raises UsageError for one that is refused."""
    for _, found in _read(request, lake):
        if isinstance(found, RecordRefused):
            raise _all_of([found])
        yield found


def _read(request: Request, lake: Lake | None) -> Iterator[tuple[RecordPlace, Exchanged | RecordRefused]]:
    @lru_cache(64)
    def stored(lake_id: str, name: str) -> bool:
        return lake is not None and _has(lake, lake_id, name)

    return FORMATS.class_of(request.format)().read(ImportSource(request.path, request.images, request.unit, stored))


def _lake_of(config: Config) -> Lake | None:
    """The lake, if there is one; none is made."""
    try:
        return Lake.open(config.lake, create=False)
    except LakeError:
        return None


def _split(config: Config, held_out: bool = False) -> set[str]:
    return {one.task_id for one in whole_catalog(config) if (one.split == "held_out") == held_out}


def _unfit(record: Exchanged, held_out: set[str], place: RecordPlace) -> RecordRefused | None:
    """Why a record may not be trained on, or what people decided on it not be kept; None where both may."""
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


def _all_of(refused: list[RecordRefused]) -> UsageError:
    """The error for records that were refused; all are listed in a file."""
    file = home() / REFUSED
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"file": one.place.file, one.place.counted: one.place.line, "field": one.field, "problem": one.problem}
        for one in refused
    ]
    file.write_text("".join(map(line_of, rows)), encoding="utf-8")
    more = f" {len(refused) - 1} more records are refused." if len(refused) > 1 else ""
    hint = f"Nothing was imported. Mend the file, or take the record out; all are listed in {file}."
    return UsageError(f"{refused[0]}.{more}", hint)
