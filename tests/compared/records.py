"""Compare how we and the packages of other projects read records: Harbor, label-studio-sdk and lerobot.

`python -m tests.compared.records --harbor PYTHON --label-studio PYTHON --lerobot PYTHON`

Each PYTHON is the interpreter of an environment in which that package is installed (harbor 0.26.0 needs Python 3.12,
label-studio-sdk 2.1.2, lerobot 0.4.4 with `datasets`). It reads what it is given in a process of its own. Rows: per
package how many garbled records it and we read alike, and how they differ elsewhere.
"""

import argparse
import contextlib
import copy
import json
import math
import random
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import track
from typing_extensions import override

from benchmarks.harness import Bar, add_options, finish
from curation.converters.exchanged import Exchanged, ExchangedStep, RecordRefused, Sampled
from curation.converters.files import ImportSource, Target
from curation.converters.format import FORMATS
from models.families.dialects import parse_reply
from schemas.action import Click, Finished, Type, Wait
from schemas.failure import UsageError
from tests.unit.curation.converters.records import picture, written
from tests.unit.curation.converters.test_atif import agent, call, document

RECORDS, SHORT = 100_000, 2_000
AT_ONCE = 500
"""Records that are written, read here and read there in one go."""

ALIKE, NEITHER, THERE, HERE = "read alike", "refused by both", "read there only", "read here only"
DIFFERENT = "read differently"
KINDS = (ALIKE, NEITHER, THERE, HERE, DIFFERENT)

JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.5, 200, 1e308, "", "x", "3", "agent", "user", "image", "text", "point", "click",
    "ATIF-v1.0", "ATIF-v1.8", "ATIF-v9", "2026-13-01", [], {}, [1], ["click"], {"a": 1},
    [{"type": "text", "text": "a"}],
)  # fmt: skip


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each value within a JSON value is."""
    if at:
        yield at
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from paths(value[key], (*at, key))


def found(value: Any, at: Sequence[Any]) -> Any:
    """Return the value at a path."""
    for key in at:
        value = value[key]
    return value


def garbled(chance: random.Random, value: Any, most: int = 3) -> Any:
    """Return a copy with up to so many values removed, replaced, renamed, doubled, moved or of another type."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice([0, 1, 1, 1, 1, 2, 2, most])):
        if not (places := list(paths(value))):
            break
        *above, key = chance.choice(places)
        parent, change = found(value, above), chance.randrange(7)
        one = parent[key]
        if change == 0:
            del parent[key]
        elif change in (1, 2):
            parent[key] = copy.deepcopy(chance.choice(JUNK))
        elif change == 3:
            parent[key] = copy.deepcopy(found(value, chance.choice(places)))
        elif change == 4 and isinstance(parent, list):
            parent.insert(chance.randrange(len(parent) + 1), copy.deepcopy(one))
        elif change == 4:
            parent[f"{key}_"] = parent.pop(key)
        elif change == 5 and isinstance(one, str | int | float):
            parent[key] = f"{one}{chance.choice(['x', ' ', 'é'])}" if isinstance(one, str) else str(one)
        elif change == 6 and isinstance(parent, list):
            chance.shuffle(parent)
    return value


class Package(ABC):
    """A package whose reader runs in its own interpreter, next to the format of ours that reads the same files.

    Args:
        python: its interpreter.
        folder: an empty folder, deleted by the caller.
    """

    name: ClassVar[str]
    form: ClassVar[str]
    reader: ClassVar[str]
    """Its program: a JSON value a line in, what it reads as JSON a line out, None for a refusal."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.folder, self.format = folder, FORMATS.class_of(self.form)()
        self.chance = random.Random(35)
        log = (folder / "stderr").open("w")
        self._child = subprocess.Popen(
            [python, "-c", self.reader], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )

    def there(self, value: Any) -> Any:
        """What the package reads.

        Raises:
            UsageError: its program ended.
        """
        assert self._child.stdin and self._child.stdout
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(f"{json.dumps(value)}\n")
            self._child.stdin.flush()
        if not (line := self._child.stdout.readline()):
            last = (self.folder / "stderr").read_text().strip().rpartition("\n")[2]
            raise UsageError(f"{self._child.args[0]} cannot run {self.name}: {last}")  # pyright: ignore[reportIndexIssue]
        return json.loads(line)

    def close(self) -> None:
        """End its program."""
        assert self._child.stdin
        self._child.stdin.close()
        self._child.wait()

    @abstractmethod
    def compare(self, count: int) -> Iterator[str]:
        """Garble so many records, and yield for each how the two readers agree."""

    def here(self, path: Path) -> list[Exchanged | RecordRefused]:
        """What we read, refused or not."""
        return [one for _, one in self.format.read(ImportSource(path))]


class Harbor(Package):
    """`Trajectory` of Harbor, and the ATIF documents of agents and of our exports; it reads our exports again."""

    name, form = "Harbor", "atif"
    reader = """
import json, sys
from harbor.models.trajectories.trajectory import Trajectory
for line in sys.stdin:
    try:
        Trajectory.model_validate_json(line)
        read = True
    except ValueError:
        read = None
    print(json.dumps(read), flush=True)
"""

    def __init__(self, python: Path, folder: Path) -> None:
        super().__init__(python, folder)
        sampled = Sampled("Action: wait()", (5, 7, 9), (-0.5, -0.25, 0.0))
        steps = (
            ExchangedStep(picture(0), thought="so", actions=(Wait(),), sampled=sampled),
            ExchangedStep(picture(1), actions=(Click(x=0.5, y=0.25),)),
            ExchangedStep(picture(2), actions=(Finished(content="42"),)),
        )
        self._own = written(self.format, [Exchanged("t", "Wait.", steps, True)], folder / "own")
        own = [json.loads(file.read_text()) for file in sorted((self._own / "trajectories").glob("*.json"))]
        metrics = {"prompt_tokens": 5, "completion_tokens": 3, "completion_token_ids": [1, 2], "logprobs": [-0.1, -0.2]}
        self._seeds = [
            *own,
            *own,
            document(
                agent(call("computer", type="click", x=25, y=10, button="left"), shown=1),
                agent(call("computer", at="d", type="type", text="a"), shown=2),
                final_metrics={"extra": {"reward": 1.0}},
            ),
            document(
                agent(
                    call("computer_action", action="left_click", coordinate=[1, 2]),
                    call("computer_action", at="d", action="key", text="ctrl+c"),
                    shown=1,
                    metrics=metrics,
                ),
                agent(call("mark_task_complete", at="e", result="x")),
                name="computer-1",
            ),
            document(
                agent(
                    call("computer", type="click", x=5, y=5),
                    shown=3,
                    reasoning_content="I click.",
                    timestamp="2026-01-01T00:00:00Z",
                    is_copied_context=False,
                    llm_call_count=1,
                )
            ),
        ]

    @override
    def compare(self, count: int) -> Iterator[str]:
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            read, again = Path(made, "read"), Path(made, "again")
            shutil.copytree(self._own / "images", read / "trajectories" / "images")
            shutil.copytree(self._own / "images", read / "images")
            for number in range(6):
                (read / "trajectories" / f"{number}.png").write_bytes(picture(number).png)
            documents = [garbled(self.chance, self.chance.choice(self._seeds)) for _ in range(count)]
            for number, one in enumerate(documents):
                (read / "trajectories" / f"{number:06}.json").write_text(json.dumps(one))
            ours = self.here(read)
            assert len(ours) == count
            again.mkdir()
            self.format.write([one for one in ours if isinstance(one, Exchanged)], Target(again))
            exports = iter(sorted((again / "trajectories").glob("*.json")))
            for one, mine in zip(documents, ours, strict=True):
                theirs = self.there(one)
                if isinstance(mine, RecordRefused):
                    yield THERE if theirs else NEITHER
                    continue
                export = json.loads(next(exports).read_text())
                yield HERE if not theirs else ALIKE if self.there(export) else DIFFERENT


class LabelStudio(Package):
    """`Converter` of label-studio-sdk, and the tasks that our desk's project exports: a task's point or its action."""

    name, form = "label-studio-sdk", "label-studio"
    reader = """
import json, logging, sys, tempfile
logging.disable(logging.CRITICAL)
from label_studio_sdk.converter import Converter
from label_studio_sdk.converter.utils import convert_annotation_to_yolo_obb
project = '''<View><Text name="instruction" value="$instruction"/><Image name="image" value="$image"/>
<KeyPointLabels name="point" toName="image"><Label value="click"/></KeyPointLabels>
<RectangleLabels name="box" toName="image"><Label value="button"/></RectangleLabels>
<TextArea name="thought" toName="image"/><TextArea name="action" toName="image"/>
<Choices name="decision" toName="image"><Choice value="accept"/><Choice value="reject"/></Choices></View>'''
converter = Converter(project, tempfile.gettempdir())
for line in sys.stdin:
    try:
        read = []
        for annotation in converter.annotation_result_from_task(json.loads(line)):
            points, texts = [], []
            for name, values in annotation["output"].items() if annotation else ():
                for one in values:
                    if one["type"] == "KeyPointLabels":
                        label = (one.get("keypointlabels") or one.get("labels") or [None])[0]
                        points.append([label, one["x"] / 100, one["y"] / 100])
                    elif one["type"] == "RectangleLabels":
                        corners = convert_annotation_to_yolo_obb(one)
                        points.append(["click", *(sum(axis) / 4 for axis in zip(*corners))])
                    elif one["type"] == "TextArea" and name == "action":
                        texts += one["text"] if isinstance(one["text"], list) else [one["text"]]
            read.append({"points": points, "texts": texts})
        said = json.dumps(read)
    except Exception:
        said = "null"
    print(said, flush=True)
"""

    def _result(self, kind: str, control: str, **value: Any) -> dict[str, Any]:
        of = {"original_width": picture(0).width, "original_height": picture(0).height, "image_rotation": 0}
        return {"id": "r", "type": kind, "from_name": control, "to_name": "image", **of, "value": value}

    def _task(self, number: int) -> dict[str, Any]:
        choice = self.chance.choice
        place = {"x": choice([0, 50, 12.5, 99.9]), "y": choice([0, 25, 100])}
        label = choice(["click", "left_double", "right_single", "other"])
        point = self._result("keypointlabels", "point", **place, width=1.0, keypointlabels=[label])
        side = {"x": 10, "y": 20.5, "width": 20, "height": 10, "rotation": choice([0, 0, 30])}
        box = self._result("rectanglelabels", "box", **side, rectanglelabels=["button"])
        words = choice(["click(start_box='(500,250)')", "type(content='a')", "wait()"])
        text = self._result("textarea", "action", text=[words])
        thought = self._result("textarea", "thought", text=["so"])
        note = self._result("choices", "decision", choices=[choice(["accept", "reject"])])
        result = choice([[point], [box], [text], [point, note], [thought, point]])
        one = {"id": number, "completed_by": 1, "was_cancelled": False, "created_at": "2026-01-02T00:00:00Z"}
        data = {"image": "0.png", "instruction": "Press it."}
        return {"id": number, "data": data, "annotations": [{**one, "result": result}], "predictions": []}

    @override
    def compare(self, count: int) -> Iterator[str]:
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            Path(made, "0.png").write_bytes(picture(0).png)
            tasks = [garbled(self.chance, self._task(number)) for number in range(count)]
            Path(made, "tasks.json").write_text(json.dumps(tasks))
            read = {
                place.line: one for place, one in self.format.read(ImportSource(Path(made, "tasks.json")))
            }  # a task a line
            for number, task in enumerate(tasks, 1):
                mine, theirs = read[number], self.there(task)
                meant = [one for one in map(self._meant, theirs or ()) if one]
                if isinstance(mine, RecordRefused):
                    yield THERE if meant else NEITHER
                elif (done := mine.steps[0].action) is None:
                    yield DIFFERENT if meant and theirs is not None else ALIKE
                elif not meant:
                    yield HERE
                else:
                    yield ALIKE if any(alike(done.model_dump(), one) for one in meant) else DIFFERENT

    @staticmethod
    def _meant(annotation: dict[str, Any]) -> dict[str, Any] | None:
        """The action of an annotation as the SDK reads it: of its one point, or of its text."""
        points = [one for one in annotation["points"] if one[0] is not None]
        texts = [one for one in annotation["texts"] if isinstance(one, str) and one.strip()]
        if texts and not points:
            read = parse_reply(texts[-1]).first
            return read.model_dump() if read else None
        if len(points) != 1 or texts:
            return None
        ((label, x, y),) = points
        known = label if label in ("click", "left_double", "right_single") else None
        return {"type": known, "x": x, "y": y} if known and 0 <= x <= 1 and 0 <= y <= 1 else None


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two actions are equal, places to a millionth of the screen."""
    return one.keys() == other.keys() and all(
        math.isclose(one[key], value, abs_tol=1e-6) if isinstance(value, float) else one[key] == value
        for key, value in other.items()
    )


class LeRobot(Package):
    """`LeRobotDataset`, and our exports with other metadata, columns and rows: the steps of each episode."""

    name, form = "lerobot", "lerobot"
    reader = """
import json, logging, os, shutil, sys, tempfile, warnings
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
cache = tempfile.mkdtemp()
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": cache, "OMP_NUM_THREADS": "1"}
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
import datasets
datasets.disable_progress_bars()
from lerobot.datasets.lerobot_dataset import LeRobotDataset
for line in sys.stdin:
    try:
        rows = LeRobotDataset("a/b", root=json.loads(line))
        episodes = [int(rows[at]["episode_index"]) for at in range(len(rows))]
        read = [episodes.count(one) for one in sorted(set(episodes))]
    except BaseException:
        read = None
    shutil.rmtree(cache, ignore_errors=True)
    print(json.dumps(read), file=answer, flush=True)
"""

    def __init__(self, python: Path, folder: Path) -> None:
        super().__init__(python, folder)
        steps = (
            ExchangedStep(picture(1), "a", (Click(x=0.5, y=0.25),)),
            ExchangedStep(picture(2), "b", (Type(content="hi"),)),
            ExchangedStep(picture(3), "c", (Finished(),)),
        )
        records = [Exchanged(f"t{number}", f"Do {number}", steps, True) for number in range(2)]
        ((self._own),) = (file.parent for file in written(self.format, records, folder / "own").rglob("meta"))
        self._tables = {file.relative_to(self._own): pq.read_table(file) for file in self._own.rglob("*.parquet")}

    def _garble(self, made: Path) -> None:
        """Change the metadata or a table of a data set, once or twice."""
        for _ in range(self.chance.choice([1, 1, 2])):
            if self.chance.random() < 0.6:
                file = made / "meta" / "info.json"
                file.write_text(json.dumps(garbled(self.chance, json.loads(file.read_text()))))
                continue
            file = made / self.chance.choice(sorted(self._tables))
            table, change = pq.read_table(file), self.chance.randrange(6)
            if not table.column_names:
                continue
            name = self.chance.choice(table.column_names)
            at, of = table.column_names.index(name), table.schema.field(name)
            if change == 0:
                table = table.drop_columns([name])
            elif change == 1:
                table = table.slice(0, max(0, table.num_rows - 1))
            elif change == 2:
                table = pa.concat_tables([table, table.slice(0, 1)])
            elif change == 3:
                table = table.set_column(at, of, pa.nulls(table.num_rows, of.type))
            elif change == 4:
                table = table.take(list(reversed(range(table.num_rows))))
            else:
                values = table.column(at).to_pylist()
                self.chance.shuffle(values)
                table = table.set_column(at, of, pa.array(values, of.type))
            pq.write_table(table, file)

    @override
    def compare(self, count: int) -> Iterator[str]:
        for _ in range(count):
            with tempfile.TemporaryDirectory(dir=self.folder) as held:
                made = Path(held, "set")
                shutil.copytree(self._own, made)
                self._garble(made)
                theirs = self.there(str(made))
                try:
                    ours = self.here(made)
                except UsageError:
                    ours = []
                if not ours or any(isinstance(one, RecordRefused) for one in ours):
                    yield NEITHER if theirs is None else THERE
                elif theirs is None:
                    yield HERE
                else:
                    same = [len(one.steps) for one in ours if isinstance(one, Exchanged)] == theirs
                    yield ALIKE if same else DIFFERENT


PACKAGES: dict[str, type[Package]] = {"harbor": Harbor, "label-studio": LabelStudio, "lerobot": LeRobot}


MOST = {"harbor": 0.0, "label-studio": 0.02, "lerobot": 0.001}
"""Largest share of records that both read and that differ, per package; docs/compared.md has the reasons."""


def compared(package: Package, count: int) -> Counter[str]:
    """Count how a package and we read garbled records."""
    counts = Counter[str]()
    for begin in track(range(0, count, AT_ONCE), package.name):
        counts.update(package.compare(min(AT_ONCE, count - begin)))
    return counts


def main() -> int:
    """Garble, read, compare, print; exit code 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in PACKAGES:
        parser.add_argument(f"--{option}", type=Path, metavar="PYTHON", help="the interpreter that has it")
    parser.add_argument("--records", type=int, help=f"how many records; {RECORDS:,}, with --short {SHORT:,}")
    given = add_options(parser).parse_args()
    count = given.records or (SHORT if given.short else RECORDS)
    rows, bars = list[dict[str, Any]](), list[Bar]()
    for option, kind in PACKAGES.items():
        if (python := getattr(given, option.replace("-", "_"))) is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            package = kind(python, Path(folder))
            try:
                counts = compared(package, count)
            finally:
                package.close()
        rows.append({"package": package.name, **{one: counts[one] for one in KINDS}})
        bars.append(Bar(f"{package.name}: {DIFFERENT}, share", counts[DIFFERENT] / count, MOST[option], "lower"))
    return finish("records", rows, bars, given)


if __name__ == "__main__":
    raise SystemExit(main())
