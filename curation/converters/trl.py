"""TRL's conversational data with pictures: a row per trajectory, `messages` and `images`.

`messages` is a list of `{role, content: [{type: text, text} | {type: image}]}`, `images` fills its placeholders in
order; rows of `prompt` and `completion`, or of `prompt`, `chosen` and `rejected`, are read too: what is learnt is the
completion or the chosen reply, and the row stays with the trajectory.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import from_json

from curation.converters.chat import (
    CHAT_DIALECTS,
    CHAT_UNITS,
    SHOWN,
    Turn,
    Writing,
    chat_of,
    record_of,
    steps_of,
    texts_of,
)
from curation.converters.exchanged import OWN, Exchanged, Metadata, Picture, Place, Refused, metadata_of
from curation.converters.files import CONTEXT, Source, Target, fields_of, items_of, model_of
from curation.converters.format import Format, Read
from curation.converters.lessons import Lesson, Wholes, lessons_of, whole
from curation.converters.parquet import IMAGE, RowFile, image_of, json_of, picture_in, rows_of_any
from schemas.text import storable

FILE, COMPLETIONS = "trl.parquet", "trl-completions.parquet"
MESSAGES = pa.list_(
    pa.struct([("role", pa.string()), ("content", pa.list_(pa.struct([("type", pa.string()), ("text", pa.string())])))])
)
SCHEMA = pa.schema([("messages", MESSAGES), ("images", pa.list_(IMAGE)), (OWN, pa.string())])
STEPS = pa.schema([("prompt", MESSAGES), ("completion", MESSAGES), ("images", pa.list_(IMAGE)), (OWN, pa.string())])


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[dict[str, Any]] | None = None


def _object(value: Any) -> Any:
    """What a text of JSON holds; anything else as it is."""
    return from_json(value) if isinstance(value, str) else value


class _Row(BaseModel):
    model_config = ConfigDict(extra="allow")

    messages: list[_Message] | None = None
    prompt: list[_Message] | None = None
    completion: list[_Message] | None = None
    chosen: list[_Message] | None = None
    rejected: list[_Message] | None = None
    images: list[Any] | None = None
    image: Any = None
    flywheel: Annotated[Metadata | None, BeforeValidator(_object)] = None


class Trl(Format):
    """One Parquet file, or lines of JSON."""

    name = "trl"
    units = CHAT_UNITS
    dialects = CHAT_DIALECTS

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """One row per trajectory whose every reply is a target; of each target of others one of `prompt` and
        `completion`."""
        pictures = {"images": [{"_type": "Image"}]}
        steps = RowFile(target, COMPLETIONS, STEPS, pictures)
        others = RowFile(target, f"{CONTEXT}/{FILE}", SCHEMA, pictures)
        with RowFile(target, FILE, SCHEMA, pictures).begun() as rows, steps, others:
            for record in map(Exchanged.as_taught, records):
                (rows if whole(record) else others).write(self._row(record))
                for one in () if whole(record) else lessons_of(record):
                    steps.write(self._completion(one))
        target.write("README.md", _card(steps.there).encode())

    def _completion(self, one: Lesson) -> dict[str, Any]:
        writing = Writing(self.unit, self.dialect)
        turns = chat_of(one.record, one.step, SHOWN, writing)
        reply = Turn("assistant", writing.reply(one.record.steps[-1]))
        return {
            "prompt": [_message(turn) for turn in turns],
            "completion": [_message(reply)],
            "images": [image_of(turn.screen) for turn in turns if turn.screen],
            OWN: json_of(metadata_of(one.record, "", self.unit, self.dialect, one.step, copied=True)),
        }

    def _row(self, record: Exchanged) -> dict[str, Any]:
        writing = Writing(self.unit, self.dialect)
        last = len(record.steps) - 1
        turns = [*chat_of(record, last, last + 1, writing), Turn("assistant", writing.reply(record.steps[last]))]
        kept = record.extra.get(self.name, {})
        metadata = {**metadata_of(record, "", self.unit, self.dialect), **({"unit": kept["unit"]} if kept else {})}
        as_it_came = kept.get("row", {}).get("messages")
        return {
            "messages": (as_it_came and [_kept(message) for message in as_it_came])
            or [_message(turn) for turn in turns],
            "images": [image_of(step.screen) for step in record.steps],
            OWN: json_of(metadata),
        }

    def records(self, source: Source) -> Read:
        """One trajectory per row."""
        wholes = Wholes()
        for place, value in rows_of_any(source):
            try:
                row = model_of(_Row, value, place)
                record = self._record(row, source, place)
            except Refused as refused:
                yield place, refused
                continue
            if row.flywheel is None or not row.flywheel.copied:
                wholes.add(record)
                yield place, record
            elif missing := wholes.missing(record, place):
                yield place, missing

    def _record(self, row: _Row, source: Source, place: Place) -> Exchanged:
        unit = self.unit_of(row.flywheel, source, place)
        replied = row.completion or row.chosen or []
        messages = row.messages or [*(row.prompt or []), *replied]
        cells = row.images if row.images is not None else [] if row.image is None else [row.image]
        pictures = [picture_in(cell, source, place, f"images.{at}") for at, cell in enumerate(cells)]
        instruction, steps = steps_of(list(turns_of(messages, pictures, place)), unit, place)
        kept: dict[str, Any] = {}
        if row.flywheel is None:
            given = row.model_dump(mode="json", exclude_none=True, exclude={"images", "image", "flywheel"})
            kept = {"row": given, "unit": unit}
        return record_of(self.name, instruction, steps, row.flywheel, kept, place)


def _card(completions: bool) -> str:
    """What `datasets.load_dataset` reads of a folder whose files have different columns: a configuration for each."""
    files = {"trajectories": FILE} | ({"targets": COMPLETIONS} if completions else {})
    configs = "".join(f"- config_name: {name}\n  data_files: {file}\n" for name, file in files.items())
    return f"---\nconfigs:\n{configs}---\n"


def _message(turn: Turn) -> dict[str, Any]:
    part = {"type": "image", "text": None} if turn.screen else {"type": "text", "text": turn.text}
    return {"role": turn.role, "content": [part]}


def _kept(message: dict[str, Any]) -> dict[str, Any]:
    """A message as it came, its text as a part."""
    content = message.get("content") or ""
    parts = [fields_of(one) for one in items_of(content) or [{"type": "text", "text": content}]]
    return {
        "role": message["role"],
        "content": [{key: _text(one.get(key)) for key in ("type", "text")} for one in parts],
    }


def _text(value: object) -> str | None:
    """What the column of texts takes: a part that came with a number has its digits, as it was read."""
    return None if value is None else storable(str(value))


def turns_of(messages: Iterable[_Message], pictures: list[Picture], place: Place) -> Iterator[Turn]:
    """The turns of messages whose placeholders the pictures fill in order; where no message has one, they belong to the
    first of the user, as TRL puts them.

    Raises:
        Refused: more or fewer placeholders than pictures.
    """
    left = list(messages)
    parts = [_parts(message) for message in left]
    count = sum(part is None for one in parts for part in one)
    if not count:
        first = next((at for at, message in enumerate(left) if message.role == "user"), None)
        if first is not None:
            parts[first] = [*parts[first], *([None] * len(pictures))]
            count = len(pictures)
    if count != len(pictures):
        raise Refused(place, "images", f"{len(pictures)} pictures for {count} placeholders")
    filling = iter(pictures)
    for message, its in zip(left, parts, strict=True):
        for part in its:
            yield Turn(message.role, screen=next(filling)) if part is None else Turn(message.role, part)


def _parts(message: _Message) -> list[str | None]:
    """The texts of a message, and None for each placeholder."""
    if not isinstance(message.content, list):
        return [storable(message.content or "")]
    kinds = [(part.get("type"), part.get("text")) for part in message.content]
    texts = [None if kind == "image" else storable(str(text)) for kind, text in kinds if kind == "image" or text]
    return texts or [storable(texts_of(message.content))]
