"""TRL's conversational data with pictures: a row per trajectory, `messages` and `images`.

`messages` is a list of `{role, content: [{type: text, text} | {type: image}]}`, `images` fills its placeholders in
order; rows of `prompt` and `completion`, or of `prompt`, `chosen` and `rejected`, are read too: what is learnt is the
completion or the chosen reply, and the row stays with the trajectory.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import from_json

from curation.converters.chat import (
    CHAT_DIALECTS,
    CHAT_UNITS,
    SHOWN,
    Message,
    Turn,
    Writing,
    chat_of,
    is_masked,
    record_of,
    steps_of,
    turns_of,
)
from curation.converters.exchanged import OWN, Exchanged, Metadata, Picture, Place, Refused, metadata_of
from curation.converters.files import CONTEXT, Source, Target, fields_of, items_of, model_of
from curation.converters.format import Format, Read
from curation.converters.lessons import Lesson, Wholes, lessons_of, whole
from curation.converters.parquet import IMAGE, RowFile, image_of, json_of, name_of, picture_in, rows_of_any
from curation.converters.tokens import for_trainers, plain
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
    label: Any = None
    """True or false says whether the last reply is a desirable one; anything else is a class."""
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
        writing, shown = Writing(self.unit, self.dialect), for_trainers(one.record)
        turns = chat_of(shown, one.step, SHOWN, writing)
        reply = Turn("assistant", writing.reply(shown.steps[-1]))
        return {
            "prompt": [_message(turn) for turn in turns],
            "completion": [_message(reply)],
            "images": [image_of(turn.screen) for turn in turns if turn.screen],
            OWN: json_of(metadata_of(one.record, "", self.unit, self.dialect, one.step, copied=True)),
        }

    def _row(self, record: Exchanged) -> dict[str, Any]:
        writing, shown = Writing(self.unit, self.dialect), for_trainers(record)
        last = len(record.steps) - 1
        turns = [*chat_of(shown, last, last + 1, writing), Turn("assistant", writing.reply(shown.steps[last]))]
        kept = record.extra.get(self.name, {})
        metadata = {**metadata_of(record, "", self.unit, self.dialect), **({"unit": kept["unit"]} if kept else {})}
        as_it_came = [_kept(message) for message in kept.get("row", {}).get("messages") or ()]
        slots = sum(part["type"] == "image" for message in as_it_came for part in message["content"])
        fits = as_it_came and slots in (len(record.steps), 0 if len(record.steps) == 1 else len(record.steps))
        return {
            "messages": as_it_came if fits else [_message(turn) for turn in turns],
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
        field, messages = _messages(row, place)
        cells = _cells(row)

        def read(number: int) -> Picture:
            return picture_in(cells[number], source, place, f"images.{number}")

        names = [name_of(cell) or "" for cell in cells]
        instruction, steps = steps_of(turns_of(_placed(messages, len(cells)), names, read, place, field), unit, place)
        kept: dict[str, Any] = {}
        if row.flywheel is None:
            for part in (part for one in _said(row) for part in _dicts(one.content)):
                part.pop("image", None)  # its own picture, which is a step's now
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
    """A message as it came, its text as a part, without tokens."""
    content = message.get("content") or ""
    parts = [fields_of(one) for one in items_of(content) or [{"type": "text", "text": content}]]
    return {
        "role": message["role"],
        "content": [{key: _text(one.get(key)) for key in ("type", "text")} for one in parts],
    }


def _text(value: object) -> str | None:
    """What the column of texts takes: a part that came with a number has its digits, as it was read."""
    return None if value is None else plain(storable(str(value)))


def _messages(row: _Row, place: Place) -> tuple[str, list[Message]]:
    """The field of a row's messages, and the messages; of a prompt, or where the completion is labelled as undesirable,
    the replies are context."""
    if row.messages:
        said = [_read(one, f"messages.{at}", place) for at, one in enumerate(row.messages)]
        before = [replace(one, masked=True) for one in said[:-1]] if isinstance(row.label, bool) else said[:-1]
        return "messages", [*before, replace(said[-1], masked=said[-1].masked or row.label is False)]
    last = "completion" if row.completion else "chosen"
    prompt = [_read(one, f"prompt.{at}", place) for at, one in enumerate(row.prompt or [])]
    replied = [_read(one, f"{last}.{at}", place) for at, one in enumerate(row.completion or row.chosen or [])]
    if not prompt:  # an implicit prompt: what stands before the last reply
        prompt, replied = replied[:-1], replied[-1:]
    return "prompt", [
        *(replace(one, masked=True) for one in prompt),
        *(replace(one, masked=one.masked or row.label is False) for one in replied),
    ]


def _placed(messages: list[Message], pictures: int) -> list[Message]:
    """The messages; where none has a placeholder, the first of the user has one for each picture, as TRL puts them."""
    first = next((at for at, message in enumerate(messages) if message.role == "user"), None)
    if first is None or any(None in message.parts for message in messages):
        return messages
    asked = replace(messages[first], parts=[*([None] * pictures), *messages[first].parts])
    return [*messages[:first], asked, *messages[first + 1 :]]


def _cells(row: _Row) -> list[Any]:
    """The pictures of a row in the order of their placeholders, of which some hold their own; then those that are
    left."""
    left = list(row.images if row.images is not None else [] if row.image is None else [row.image])
    cells = list[Any]()
    messages = row.messages or [*(row.prompt or []), *(row.completion or row.chosen or [])]
    for part in (part for message in messages for part in _dicts(message.content)):
        own = part.get("image") if part.get("type") == "image" else None
        if own is not None:
            cells.append(own)
        elif part.get("type") in PICTURED and left:
            cells.append(left.pop(0))
    return [*cells, *left]


def _said(row: _Row) -> list[_Message]:
    """All messages of a row, of which some are no part of the trajectory."""
    lists = (row.messages, row.prompt, row.completion, row.chosen, row.rejected)
    return [message for messages in lists for message in messages or ()]


def _dicts(content: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The parts of a message; none of a text."""
    return content if isinstance(content, list) else []


def _read(message: _Message, field: str, place: Place) -> Message:
    """A message; raises Refused where a part is neither text nor a picture, which nothing here could show."""
    masked = is_masked(message.model_extra or {})
    if not isinstance(message.content, list):
        return Message(message.role, [storable(message.content or "")], masked)
    parts = list[str | None]()
    for at, part in enumerate(message.content):
        kind, text = part.get("type"), part.get("text")
        if kind in PICTURED:
            parts.append(None)
        elif kind in (None, "text") or text is not None:
            parts += [storable(str(text))] if text else []
        else:
            raise Refused(place, f"{field}.content.{at}.type", f"{str(kind)[:80]!r}: a part is a text or a picture")
    return Message(message.role, parts or [""], masked)


PICTURED = ("image", "image_url", "input_image")
"""Types of a part that is a picture's placeholder: TRL's, and those of OpenAI's chats."""
