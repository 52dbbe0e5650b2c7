"""Read a user's general questions about images, store them in the lake, and measure whether a training forgets them.

The file `general.samples` has a question a row. Its rows become rows of `annotations`, with the images in
`screenshots`: most are mixed into training (`general`), and the others are only measured (`general_held_out`). The
share of images `general.held_out` is chosen by their content, so an image is never on both sides. A changed file is
stored again as a whole, with a new version; trainings and measurements use the newest version.

A measurement asks a policy the held-out questions, and stores each answer as a row of `evaluations` in the suite
`general`. The success is compared with that of the policy that the training began from, on the same questions: the
training forgets if the 95 % interval of the paired difference has only drops of more than `general.max_drop`.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from common.picture import plain
from common.text import counted, same_words, storable
from curation.intervals import paired
from curation.pictures import difference_hash
from schemas.config import Config
from schemas.config.curating import GeneralConfig
from schemas.failure import UsageError
from schemas.observation import Observation
from schemas.table import utc_now
from schemas.tables.annotation import Annotation
from schemas.tables.evaluation import Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.screenshot import Screenshot
from schemas.tables.trajectory import SPLIT_STARTS
from storage.lake import Lake
from tasks.shared.policies import measured_ancestor, policies

if TYPE_CHECKING:  # a run's first checks need no model
    from models.vlm import VlmPolicy

T = TypeVar("T")
KEY = "general.samples"
SUITE = "general"
TRAINED, HELD_OUT = "general", "general_held_out"
FIELDS = ("image", "question", "answer")
SOURCE = "general"
"""Stored as the trajectory of the questions, which belong to none."""
TOGETHER = 64
"""Images that are written at once."""
CLOSEST = 0.01
"""Smallest distance between a drop and `general.max_drop` that a number of questions is computed for."""


@dataclass(frozen=True, slots=True)
class GeneralSample:
    """A question about an image, with its answer."""

    image: bytes
    """The picture's file."""
    question: str
    answer: str

    @property
    def digest(self) -> str:
        """Returns the sha256 of the picture's file."""
        return hashlib.sha256(self.image).hexdigest()

    def is_held_out(self, share: float) -> bool:
        """Whether the sample is measured instead of trained, given the share of such images."""
        return int(self.digest[:8], 16) < share * 16**8


def samples_of(config: GeneralConfig) -> Iterator[GeneralSample]:
    """Read the rows of the file, in order.

    Raises:
        UsageError: the file cannot be read, or a row has no image, question or answer. The message names the file, the
            row (from 1) and the field.
    """
    path = Path(config.samples).expanduser().absolute()
    for number, row in enumerate(_rows(path), 1):
        try:
            image = _image(row.get("image"), path.parent)
            yield GeneralSample(image, _text(row, "question"), _text(row, "answer"))
        except (OSError, ValueError, SyntaxError) as error:
            raise UsageError(
                f"`{KEY}`: {path}, row {number}: {error}.", "docs/general.md shows such a file."
            ) from error


def check_general(config: Config) -> str:
    """Check every row of the file, and describe the file.

    Raises:
        UsageError: as `samples_of`; or the file has no row, or no image to train or to measure.
    """
    if not config.general.samples:
        return "no general questions"
    sides = [one.is_held_out(config.general.held_out) for one in samples_of(config.general)]
    measured, trained = sum(sides), len(sides) - sum(sides)
    if not sides:
        raise UsageError(f"`{KEY}`: {config.general.samples} has no row.", "Write a question a row (docs/general.md).")
    if not measured or not trained:
        none, other = ("measured", "trained on") if not measured else ("trained on", "measured")
        raise UsageError(
            f"`general.held_out`: no image of {config.general.samples} is {none}; all {len(sides)} rows are {other}.",
            "Add rows with other images, or change general.held_out.",
        )
    return f"{trained} general questions to train on, {measured} to measure"


def store_general(config: Config, lake: Lake, iteration: int) -> None:
    """Store the file's questions and images in the lake, unless its newest version is stored already.

    Raises:
        UsageError: as `check_general`.
    """
    if not config.general.samples:
        return
    check_general(config)
    digest, newest = _digest(config.general), newest_version(lake)
    if newest.partition("-")[2] == digest:
        return
    version, now = f"{int(newest.partition('-')[0] or 0) + 1}-{digest}", utc_now()
    found = dict[str, Annotation]()
    for chunk in _chunks(samples_of(config.general), TOGETHER):
        pictures = dict[str, Screenshot]()
        for one in chunk:
            png, width, height = plain(one.image)
            name = hashlib.sha256(png).hexdigest()
            pictures[name] = Screenshot(
                sha256=name, iteration=iteration, png=png, width=width, height=height, phash=difference_hash(png)
            )
            key = hashlib.sha256("\n".join((version, name, one.question, one.answer)).encode()).hexdigest()[:24]
            found[key] = Annotation(
                annotation_id=key,
                trajectory_id=SOURCE,
                step=0,
                iteration=iteration,
                kind=HELD_OUT if one.is_held_out(config.general.held_out) else TRAINED,
                author="general",
                thought=one.answer,
                action=None,
                before=None,
                after=name,
                created_at=now,
                version=version,
                question=one.question,
            )
        lake.append("screenshots", pictures.values())
    lake.append("annotations", found.values())


def newest_version(lake: Lake) -> str:
    """Return the newest version of the questions in the lake; empty if there are none."""
    rows = lake.read("annotations", ["version"], {"kind": [TRAINED, HELD_OUT]})["version"].unique().to_pylist()
    return max(rows, key=lambda version: int(version.partition("-")[0]), default="")


def measure_general(config: Config, lake: Lake, version: str, iteration: int, load: "Callable[[], VlmPolicy]") -> None:
    """Ask a policy the held-out questions that it was not asked yet, and store its answers.

    Args:
        config: config with the number of questions.
        lake: the lake with the questions.
        version: version of the policy.
        iteration: iteration of the rows.
        load: loads the policy; called only if there are questions left.
    """
    newest = newest_version(lake)
    rows = [one for one in lake.rows(Annotation, {"kind": [HELD_OUT]}) if newest and one.version == newest]
    asked = {_task(one): one for one in rows}
    chosen = sorted(asked)[: config.general.measured]
    done = {one.task_id for one in lake.rows(Evaluation, {"policy_version": version, "suite": [SUITE]})}
    left = [task for task in chosen if task not in done]
    if not left:
        return
    policy = load()
    for tasks in _chunks(left, TOGETHER):
        pictures = _pictures(lake, [str(asked[task].after) for task in tasks])
        questions = [(asked[task].question or "", pictures[str(asked[task].after)]) for task in tasks]
        answered = zip(tasks, policy.answer(questions), strict=True)
        right = {task: same_words(reply, asked[task].thought) for task, reply in answered}
        lake.append("evaluations", [_row(version, task, ok, iteration) for task, ok in right.items()])


@dataclass(frozen=True, slots=True)
class GeneralCheck:
    """Success on general questions before and after a training, on the questions that both policies were asked."""

    parent: str
    questions: int
    before: float
    after: float
    low: float
    """Lower end of the 95 % interval of `after - before`, paired by question."""
    high: float
    max_drop: float

    @property
    def forgets(self) -> bool:
        """Whether the whole interval is below the bound."""
        return self.high < -self.max_drop - 1e-9

    @property
    def undecided(self) -> bool:
        """Whether the bound is within the interval, so that there are too few questions."""
        return not self.forgets and self.low < -self.max_drop - 1e-9

    @property
    def needed(self) -> int | None:
        """Returns the number of questions that would decide, with as many changed answers; None if it is decided.

        The interval's width falls with the root of the number.
        """
        if not self.undecided:
            return None
        change = self.after - self.before
        half, distance = max(self.high - change, change - self.low), abs(change + self.max_drop)
        return math.ceil(self.questions * (half / max(distance, CLOSEST)) ** 2)

    @property
    def interval(self) -> str:
        """Writes the change with its interval."""
        return f"{self.after - self.before:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"

    @property
    def verdict(self) -> str:
        """Compares the change with the bound; names the questions that are missing if there are too few."""
        bound = f"`general.max_drop` {self.max_drop:g}"
        if self.forgets:
            return f"it forgets: the drop is more than {bound}"
        if self.needed is None:
            return f"no drop of more than {bound}"
        return f"too few questions to compare the drop with {bound}: about {self.needed:,} are needed"

    @property
    def text(self) -> str:
        """Describes the comparison."""
        numbers = f"general questions {self.after:.3f}, before the training {self.before:.3f}"
        return f"{numbers}, change {self.interval} ({counted(self.questions, 'question')}): {self.verdict}"


def general_checks(lake: Lake) -> dict[str, GeneralCheck]:
    """Return the comparison of each measured policy with the policy that its training began from, oldest first."""
    asked = dict[str, dict[str, bool]]()
    for one in lake.rows(Evaluation, {"suite": [SUITE]}):
        asked.setdefault(one.policy_version, {})[one.task_id] = bool(one.success)
    made = policies(lake) if asked else {}
    found = {name: _compared(lake, row, asked) for name, row in made.items() if row.parent is not None}
    return {name: check for name, check in found.items() if check is not None}


def _compared(lake: Lake, row: PolicyVersion, asked: Mapping[str, Mapping[str, bool]]) -> GeneralCheck | None:
    parent = measured_ancestor(lake, row.parent).policy_version
    new, old = asked.get(row.policy_version, {}), asked.get(parent, {})
    shared = sorted(new.keys() & old.keys())
    if not shared:
        return None
    change = paired(*({(SUITE, at): side[task] for at, task in enumerate(shared)} for side in (new, old))).interval
    bound = GeneralConfig.model_validate(json.loads(row.config).get("general", {})).max_drop
    before, after = (sum(side[task] for task in shared) / len(shared) for side in (old, new))
    return GeneralCheck(parent, len(shared), before, after, change.low, change.high, bound)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read rows of a JSON Lines or Parquet file; raises UsageError."""
    hint = "Name a JSON Lines file (.jsonl) or a Parquet file (.parquet), as docs/general.md shows."
    number = 0
    if path.suffix.lower() not in (".jsonl", ".parquet"):
        raise UsageError(f"`{KEY}`: {path} is no JSON Lines or Parquet file.", hint)
    try:
        if path.suffix.lower() == ".parquet":
            yield from _parquet(path, hint)
            return
        with path.open(encoding="utf-8-sig") as lines:
            for line in filter(str.strip, lines):
                number += 1
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise UsageError(f"`{KEY}`: {path}, row {number}: {line.strip()[:40]} is no object.", hint)
                yield row
    except (OSError, UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise UsageError(f"`{KEY}`: {path} cannot be read: {error}.", hint) from error
    except json.JSONDecodeError as error:
        raise UsageError(f"`{KEY}`: {path}, row {number}: no JSON: {error}.", hint) from error


def _parquet(path: Path, hint: str) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        if missing := [name for name in FIELDS if name not in file.schema_arrow.names]:
            raise UsageError(f"`{KEY}`: {path} has no column `{missing[0]}`.", hint)
        for batch in file.iter_batches(TOGETHER, columns=list(FIELDS)):
            yield from batch.to_pylist()


def _text(row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"`{field}` is {'empty' if value in (None, '') or isinstance(value, str) else 'no text'}")
    return storable(value.strip())


def _image(value: Any, folder: Path) -> bytes:
    """Return the file of a picture: a path, bytes, or a struct with one of them as in Hugging Face's data sets."""
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if not value or not isinstance(value, str | bytes):
        raise ValueError("`image` is empty")
    if isinstance(value, str) and not (folder / value).is_file():
        raise ValueError(f"`image`: there is no file {folder / value}")
    content = value if isinstance(value, bytes) else (folder / value).read_bytes()
    try:
        with Image.open(BytesIO(content)) as picture:
            picture.verify()
    except Exception as error:  # Pillow raises SyntaxError, zlib.error, struct.error and more for a broken one
        raise ValueError("`image` is no picture that can be read") from error
    return content


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def _digest(config: GeneralConfig) -> str:
    """Return a digest of the rows and of their division into trained and held-out ones."""
    digest = hashlib.sha256(f"{config.held_out}".encode())
    for one in samples_of(config):
        digest.update("\n".join(("", one.digest, one.question, one.answer)).encode())
    return digest.hexdigest()[:16]


def _task(row: Annotation) -> str:
    """Return the task id of a question: the same for the same image, question and answer."""
    text = "\n".join((str(row.after), row.question or "", row.thought))
    return f"{SOURCE}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _pictures(lake: Lake, names: Iterable[str]) -> dict[str, Observation]:
    rows = lake.rows(Screenshot, {"sha256": sorted(set(names))})
    return {row.sha256: Observation(row.png, row.width, row.height, "") for row in rows}


def _row(version: str, task: str, right: bool, iteration: int) -> Evaluation:
    return Evaluation(
        policy_version=version,
        suite=SUITE,
        task_id=task,
        seed=SPLIT_STARTS["validation"],
        iteration=iteration,
        success=right,
        reward=float(right),
        n_steps=0,
        failure_boundary=None,
    )
