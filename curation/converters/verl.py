"""Reads and writes verl's Parquet: a row per step, with the chat as the prompt and the reply as the ground truth.

`{data_source, prompt: [{role, content}], images, ability, reward_model: {style, ground_truth}, extra_info}`; `<image>`
in a content is the placeholder of the next picture. In this project's texts, a space is added to texts that look like a
placeholder.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field, Json

from common.text import Storable
from curation.converters.chat import (
    MARKS,
    SHOWN,
    SLOT,
    ChatFormat,
    ChatRow,
    ChatTurn,
    RowMessage,
    chat_of,
    check_row,
    content_of,
    holds_more,
    joined,
    message_of,
    reply_of,
    row_of,
    split,
    steps_of,
    turns_of,
)
from curation.converters.exchanged import OWN, Exchanged, Metadata, Picture, RecordPlace, metadata_of
from curation.converters.files import ImportSource, OpenModel, Target, fields_of, model_of
from curation.converters.format import Read, each
from curation.converters.lessons import corrected, lessons_of, whole
from curation.converters.masks import masks_of
from curation.converters.parquet import IMAGE, RowFile, image_of, json_of, name_of, picture_in, rows_of_any
from curation.converters.search import CONTEXT
from curation.converters.tokens import for_trainers, plain, plain_between

FILE = "verl.parquet"
SCREEN = MARKS[0]
SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("images", pa.list_(IMAGE)),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", pa.struct([("split", pa.string()), ("index", pa.int64()), (OWN, pa.string())])),
    ]
)


class _VerlReward(OpenModel):
    style: Storable | None = None
    ground_truth: Storable


class _Info(OpenModel):
    split: Storable | None = None
    index: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    flywheel: Json[Metadata] | None = None


class _VerlRow(OpenModel):
    data_source: Storable | None = None
    ability: Storable | None = None
    prompt: list[RowMessage]
    images: list[Any] = Field([])
    reward_model: _VerlReward
    extra_info: _Info | None = None


class Verl(ChatFormat):
    """verl's format: a Parquet file, and another one for trajectories with steps that are no targets."""

    name = "verl"

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write one row per target."""
        pictures, indices = {"images": [{"_type": "Image"}]}, count()
        others = RowFile(target, f"{CONTEXT}/{FILE}", SCHEMA, pictures)
        with RowFile(target, FILE, SCHEMA, pictures).begun() as rows, others:
            for record in map(Exchanged.as_taught, records):
                for row in self._rows_of(record, indices):
                    (rows if whole(record) else others).write(row)
                for row in () if whole(record) else self._copies(record, indices):
                    rows.write(row)

    def _rows_of(self, record: Exchanged, indices: Iterator[int]) -> Iterator[dict[str, Any]]:
        if _came(record):
            yield self._as_it_came(record, next(indices))
            return
        for number in range(len(record.steps)):
            yield self._row(record, number, next(indices))

    def _copies(self, record: Exchanged, indices: Iterator[int]) -> Iterator[dict[str, Any]]:
        """Yield a row for each target; the target of an imported row is its last step."""
        came = _came(record)
        if came and record.is_target(len(record.steps) - 1):
            yield self._as_it_came(record, next(indices), copied=True)
        for one in corrected(record) if came else lessons_of(record):
            yield self._row(one, len(one.steps) - 1, next(indices), copied=True)

    def _row(self, record: Exchanged, number: int, index: int, copied: bool = False) -> dict[str, Any]:
        shown = for_trainers(record)
        turns = chat_of(shown, number, SHOWN, self.writing)
        metadata = metadata_of(record, "", self.unit, self.dialect, number, copied)
        return {
            "data_source": record.about.task_id or record.name,
            "prompt": [{"role": one.role, "content": SCREEN if one.screen else one.text} for one in turns],
            "images": [image_of(one.screen) for one in turns if one.screen],
            "ability": "gui",
            "reward_model": {"style": "rule", "ground_truth": self.writing.reply(shown.steps[number])},
            "extra_info": {"split": "train", "index": index, OWN: json_of(metadata)},
        }

    def _as_it_came(self, record: Exchanged, index: int, copied: bool = False) -> dict[str, Any]:
        """Return a record's imported row; columns that verl does not have are kept in this project's metadata."""
        kept = record.extra[self.name]
        row, metadata = (
            fields_of(kept["row"]),
            {**metadata_of(record, "", self.unit, self.dialect, copied=copied), "unit": kept["unit"]},
        )
        info, reward = fields_of(row.get("extra_info")), fields_of(row["reward_model"])
        return {
            "data_source": row.get("data_source"),
            "prompt": [{"role": one["role"], "content": plain_between(one["content"], SLOT)} for one in row["prompt"]],
            "images": [image_of(step.screen) for step in record.steps],
            "ability": row.get("ability"),
            "reward_model": {"style": reward.get("style"), "ground_truth": plain(reward["ground_truth"])},
            "extra_info": {"split": info.get("split"), "index": info.get("index", index), OWN: json_of(metadata)},
        }

    def records(self, source: ImportSource) -> Read:
        """Yield one trajectory per row, or per rows of one trajectory of this project."""
        return joined(each(source, rows_of_any(source), self._part))

    def _part(self, value: Any, source: ImportSource, place: RecordPlace) -> ChatRow:
        check_row(value, ("prompt",), place)
        row = model_of(_VerlRow, value, place)
        known = row.extra_info.flywheel if row.extra_info else None
        unit = self.unit_of(known, source, place)
        prompt = [_read(one, f"prompt.{at}", place) for at, one in enumerate(row.prompt)]

        def read(number: int) -> Picture:
            return picture_in(row.images[number], source, place, f"images.{number}")

        turns = turns_of(prompt, [name_of(cell) or "" for cell in row.images], read, place)
        off = masks_of(row.others, [one.role == "assistant" for one in turns] + [True], place, labelled=1)
        reply = ChatTurn("assistant", row.reward_model.ground_truth, masked=off[-1], field="reward_model.ground_truth")
        instruction, steps = steps_of([*turns, reply], unit, place, known)
        kept: dict[str, Any] = {}
        if known is None:
            kept = {"row": row.model_dump(mode="json", exclude={"images"}, exclude_unset=True), "unit": unit}
        return row_of(self.name, instruction, steps, known, kept, place)


def _read(message: RowMessage, field: str, place: RecordPlace) -> ChatTurn:
    """Parse a message of a prompt, all of which is context."""
    parts = split(reply_of(content_of(message, place, field), message.others))
    return replace(message_of(message.role, parts, field, message.others), given=True)


def _came(record: Exchanged) -> bool:
    """Whether a record was imported as a row that fits verl's columns, with a placeholder for each picture of its
    steps."""
    kept = record.extra.get(Verl.name)
    if not kept or any(map(holds_more, kept["row"]["prompt"])):  # more than verl's columns have
        return False
    return sum(len(SLOT.findall(one["content"])) for one in kept["row"]["prompt"]) == len(record.steps)
