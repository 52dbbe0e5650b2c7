# pyright: basic
# pyarrow has no types of its own
"""Write and read data sets of cua-lite: a row per trajectory with `images`, `messages` and `metadata`, the last two as
JSON texts.

`cua-lite` writes the local layout: pictures in `images/` under the names of their sha256, and
`<platform>/<task_type>/<split>/<variant>.parquet` with their paths. `cua-lite-hub` writes the layout of the Hub: shards
with embedded pictures. Both read both layouts. The split `validation` has the trajectories whose seeds measure
policies; an import does not read it. Source: cua-lite @2602509, `lite/data/preproc/AGENTS.md`, `lite/data/staging.py`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from common.text import counted
from curation.converters.cua_lite.questions import TOOLS
from curation.converters.cua_lite.samples import READ, exchanged_of_sample
from curation.converters.cua_lite.writing import SampleWriter, WrittenSample
from curation.converters.exchanged import Exchanged, Picture, RecordPlace, RecordRefused
from curation.converters.files import ImportSource, Target, parsed
from curation.converters.format import Format, Read, each
from curation.converters.parquet import IMAGE, RowFile, RowShards, image_of, json_of, picture_in, read_rows
from curation.converters.search import PICTURES
from schemas.failure import UsageError

NAME = "flywheel"
"""Name of a written data set, and of its variant."""
ROOT = f"cua-lite/{NAME}"
"""Folder of a data set in the local layout, below the folder of all data sets."""
TRAIN, VALIDATION = "train", "validation"
LEFT_OUT: Mapping[str, str] = {"understanding": "answers about an image are no actions"}
FOLDED = "_folded"
"""Column of rows that share one picture, on the Hub."""
MOST_ROWS = 200
"""Maximum rows of a shard, as in cua-lite."""
LOCAL = pa.schema([("images", pa.list_(pa.string())), ("messages", pa.string()), ("metadata", pa.string())])
HUB = pa.schema([("images", pa.list_(IMAGE)), ("messages", pa.string()), ("metadata", pa.string())])
HUB_FOLDED = HUB.append(pa.field(FOLDED, pa.string()))
"""Columns of questions about places: a row for each image, with the samples that share it in `_folded`."""


class CuaLite(Format):
    """The local layout of cua-lite."""

    name = "cua-lite"
    units = ("thousandths",)
    assumed = "thousandths"
    several = True
    asks = True
    tags = ("cua-lite", "gui", "sft")
    contents = (
        "A row of `use` is a trajectory: `images`, and as JSON texts `messages` and `metadata`, as cua-lite has them. "
        "A reply is one assistant message, and its actions are one call of the tool `computer` or `mobile`. A row of "
        "`grounding.point` or `grounding.bbox` is a question about the place of an element."
    )
    loading = "# CUA_LITE_DATASETS_ROOT=DIR: `lite.train.export.export_sft` reads the folder below it"
    schema: ClassVar[Any] = LOCAL

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write a row for each trajectory."""
        writing, found = SampleWriter(self.unit), dict[tuple[str, str, str], None]()
        with ExitStack() as opened:
            files = dict[tuple[str, str, str], Any]()
            for record in records:
                split = VALIDATION if record.about.measures else TRAIN
                for sample in self._samples(writing, record):
                    key = (*sample.dims, split)
                    if key not in files:
                        files[key] = opened.enter_context(self._file(target, key))
                        found[key] = None
                    self._write(files[key], sample, target)
        self._finish(target, files)
        self.configs = _configs(found, self._below)
        if writing.as_text:
            self.notes.append(f"{counted(writing.as_text, 'step')} without a call of {self.name} became text")

    _below: ClassVar[str] = f"{ROOT}/"

    def _samples(self, writing: SampleWriter, record: Exchanged) -> Iterable[WrittenSample]:
        return writing.samples(record)

    def _file(self, target: Target, key: tuple[str, str, str]) -> Any:
        """Return the file of a partition, as a context."""
        return RowFile(target, f"{ROOT}/{'/'.join(key)}/{NAME}.parquet", LOCAL, {})

    def _write(self, file: Any, sample: WrittenSample, target: Target) -> None:
        names = [f"{ROOT}/{PICTURES}/{one.sha256[:2]}/{one.sha256}.png" for one in sample.images]
        for name, picture in zip(names, sample.images, strict=True):
            if not (target.folder / name).exists():
                target.write(name, picture.png)
        file.write({"images": names, "messages": json_of(sample.messages), "metadata": json_of(sample.metadata)})

    def _finish(self, target: Target, files: Mapping[Any, Any]) -> None:
        """Write the file from which cua-lite makes its card."""
        about = {
            "description": "Trajectories of a GUI agent, exported by flywheel; see its README.md.",
            "original_urls": [],
            "license": "See the README.md of the export.",
            "citation": "",
            "extra_notes": f"The split `{VALIDATION}` has trajectories whose seeds measure policies.",
        }
        target.write(f"{ROOT}/repo.json", json.dumps(about, indent=2).encode())

    def records(self, source: ImportSource) -> Read:
        """Yield one trajectory per row.

        Raises:
            UsageError: no file has trajectories to train on.
        """
        return each(source, _rows(source), self._part)

    def _part(self, value: Any, source: ImportSource, place: RecordPlace) -> Exchanged:
        def picture(cell: Any, field: str) -> Picture:
            return picture_in(_found(cell, source, place), source, place, field)

        return exchanged_of_sample(value, picture, place)


class CuaLiteHub(CuaLite):
    """The layout of cua-lite on the Hub."""

    name = "cua-lite-hub"
    read_by = "cua-lite"
    loading = 'from datasets import load_dataset\n\nrows = load_dataset("DIR", split="train")'
    _below: ClassVar[str] = ""

    def _file(self, target: Target, key: tuple[str, str, str]) -> Any:
        pattern = f"{'/'.join(key)}/{NAME}/shard-{{number:05d}}.parquet"
        schema = HUB_FOLDED if key[1] in TOOLS else HUB
        return RowShards(target, pattern, schema, {"images": [{"_type": "Image"}]}, MOST_ROWS)

    def _samples(self, writing: SampleWriter, record: Exchanged) -> Iterable[WrittenSample]:
        """Return the samples, with one for all questions about a screen."""
        return folded(writing.samples(record))

    def _write(self, file: Any, sample: WrittenSample, target: Target) -> None:
        images = [image_of(one) for one in sample.images]
        row = {"images": images, "messages": json_of(sample.messages), "metadata": json_of(sample.metadata)}
        if sample.dims[1] in TOOLS:
            members = sample.folded or ((sample.messages, sample.metadata),)
            row[FOLDED] = json_of([{"messages": json_of(one), "metadata": json_of(held)} for one, held in members])
        file.write(row, sum(len(one.png) for one in sample.images))

    def _finish(self, target: Target, files: Mapping[Any, Any]) -> None:
        """Add the number of shards to their names."""
        for shards in files.values():
            for file in shards.files:
                file.rename(file.with_name(f"{file.stem}-of-{len(shards.files):05d}.parquet"))


def folded(samples: Iterable[WrittenSample]) -> Iterator[WrittenSample]:
    """Yield samples, those of questions about one screen as one. Its messages are theirs, one after the other."""
    shared = dict[tuple[tuple[str, str], str], list[WrittenSample]]()
    for sample in samples:
        if sample.dims[1] in TOOLS:
            shared.setdefault((sample.dims, sample.images[0].sha256), []).append(sample)
        else:
            yield sample
    for members in shared.values():
        messages = [message for one in members for message in one.messages]
        yield replace(members[0], messages=messages, folded=tuple((one.messages, one.metadata) for one in members))


def _configs(found: Iterable[tuple[str, str, str]], below: str) -> list[dict[str, Any]]:
    """Return a configuration for each platform and type of task, named `PLATFORM.TYPE`, and before them `default`.

    The default has the trajectories, or the questions in an export without trajectories. It never has both, whose
    columns differ.
    """
    parts: dict[str, dict[str, list[str]]] = {}
    found = list(found)
    usual = [kind for kind in READ if any(kind == other for _, other, _ in found)][:1]
    for platform, kind, split in found:
        path = f"{below}{platform}/{kind}/{split}/**/*.parquet" if not below else f"{below}{platform}/{kind}/{split}/*"
        for name in (*(["default"] if kind in usual else []), f"{platform}.{kind}"):
            parts.setdefault(name, {}).setdefault(split, []).append(path)
    return [
        {"config_name": name, "data_files": [{"split": split, "path": paths} for split, paths in sorted(of.items())]}
        for name, of in parts.items()
    ]


def _found(cell: Any, source: ImportSource, place: RecordPlace) -> Any:
    """Return a picture's cell; a path is searched from each folder above the record's file.

    cua-lite writes paths from the folder of all data sets. If only the data set is there, the path begins at `images/`.
    """
    if not isinstance(cell, str):
        return cell
    names = [cell, cell[cell.rindex(f"/{PICTURES}/") + 1 :]] if f"/{PICTURES}/" in cell else [cell]
    above = PurePosixPath(place.file).parents
    return next((one for name in names for folder in above if source.holds(one := str(folder / name))), cell)


def _rows(source: ImportSource) -> Iterator[tuple[RecordPlace, Any]]:
    """Yield the rows of the files with trajectories to train on, and each row of a folded one."""
    read, left = list[Path](), list[tuple[str, str]]()
    for file in source.files(".parquet"):
        reason = _reason(file, source)
        if reason:
            left.append((source.named(file), reason))
        else:
            read.append(file)
    source.left_out += left
    if not read:
        listed = "; ".join(f"{name}: {reason}" for name, reason in left[:3])
        raise UsageError(
            f"{source.path} has no trajectories to train on ({listed}).",
            f"Name a folder with {', '.join(READ)} of the split `{TRAIN}`.",
        )
    for file in read:
        for place, row in read_rows(source, file):
            yield from ((place, one) for one in _unfolded(row, place))


def _reason(file: Path, source: ImportSource) -> str:
    """Return why a file is not read, with its number of rows; empty for one that is."""
    parts = PurePosixPath(source.named(file)).parts
    kind = next((one for one in parts if one in LEFT_OUT), "")
    if not kind and VALIDATION not in (*parts[:-1], file.stem):
        return ""
    try:
        count = counted(pq.read_metadata(file).num_rows, "row")
    except (pa.ArrowException, OSError):
        count = "rows"
    if kind:
        return f"{count} of `{kind}`: {LEFT_OUT[kind]}"
    return f"{count} of the split `{VALIDATION}`, which is not for training"


def _unfolded(row: Any, place: RecordPlace) -> list[Any]:
    """Return the rows that share the picture of a folded row; any other row as it is."""
    folded = row.get(FOLDED) if isinstance(row, dict) else None
    if folded is None:
        return [row]
    members = parsed(str(folded).encode("utf-8", "replace"), place)
    if isinstance(members, RecordRefused) or not isinstance(members, list):
        return [RecordRefused(place, FOLDED, "no JSON list of samples")]
    rest = {name: value for name, value in row.items() if name != FOLDED}
    return [{**rest, **one} if isinstance(one, dict) else RecordRefused(place, FOLDED, "no sample") for one in members]
