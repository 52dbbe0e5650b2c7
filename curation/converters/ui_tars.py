"""Reads and writes UI-TARS's messages (`data/training_example.json` of bytedance/UI-TARS): a row per step.

`{messages: [{role, content, loss_mask}], images: [...]}`; a turn of a screen is `<|vision_start|>...<|vision_end|>`,
and `images` names the pictures of these turns in order. The loss is on the row's reply. UI-TARS's example is a bare
list of messages, which has no pictures and is therefore refused. Coordinates are thousandths of the screen (UI-TARS
1.0, Doubao) or pixels of the screen after `smart_resize` (1.5). Records of other projects do not state the unit, so the
command must give it.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import Field

from curation.converters.chat import (
    SHOWN,
    SLOT,
    ChatFormat,
    ChatRow,
    ChatTurn,
    RowMessage,
    chat_of,
    check_row,
    content_of,
    joined,
    message_of,
    reply_of,
    row_of,
    split,
    steps_of,
    turns_of,
)
from curation.converters.exchanged import (
    OWN,
    Exchanged,
    Metadata,
    Picture,
    RecordPlace,
    instructed,
    metadata_of,
)
from curation.converters.files import ImportSource, OpenModel, Target, items_of, line_of, model_of
from curation.converters.format import Read, each
from curation.converters.lessons import corrected
from curation.converters.masks import is_masked, masks_of
from curation.converters.search import JSON_LINES
from curation.converters.tokens import for_trainers, plain, plain_between
from models.families.thinking import REASONING

FILE = "ui-tars.jsonl"
SCREEN = "<|vision_start|><|image_pad|><|vision_end|>"
HEADING = "## User Instruction\n"


class _UiTarsRow(OpenModel):
    messages: list[RowMessage]
    images: list[str] = Field([])
    flywheel: Metadata | None = None


class UiTars(ChatFormat):
    """UI-TARS's format: a file of lines and a folder of pictures."""

    name = "ui-tars"

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write one line per step, without a loss if it is no target, and one line per correction.

        An imported line is exported unchanged.
        """
        with target.path(FILE).open("w", encoding="utf-8") as lines:
            for record in map(Exchanged.as_taught, records):
                last = len(record.steps) - 1
                for number in [last] if _as_it_came(record) else range(last + 1):
                    lines.write(line_of(self._row(record, number, target)))
                for one in corrected(record):
                    lines.write(line_of(self._row(one, len(one.steps) - 1, target, copied=True)))

    def _row(self, record: Exchanged, number: int, target: Target, copied: bool = False) -> dict[str, Any]:
        kept = _as_it_came(record)
        metadata = metadata_of(record, self.name, self.unit, self.dialect, None if kept else number, copied)
        if kept:
            images = [target.picture(step.screen) for step in record.steps]
            own = {**metadata, "unit": kept.get("unit", self.unit)}
            return {
                **kept,
                "messages": _masked([_plain(one) for one in kept["messages"]], record),
                "images": images,
                OWN: own,
            }
        shown = for_trainers(record)
        system, asked, *rest = chat_of(shown, number, SHOWN, self.writing)
        opening = ChatTurn("user", f"{system.text}\n\n{HEADING}{asked.text}")
        turns = [opening, *rest, ChatTurn("assistant", self.writing.reply(shown.steps[number]))]
        learned = len(turns) if copied or record.is_target(number) else None
        messages = [
            {"role": turn.role, "content": SCREEN if turn.screen else turn.text, "loss_mask": int(place == learned)}
            for place, turn in enumerate(turns, 1)
        ]
        return {
            "messages": messages,
            "images": [target.picture(one.screen) for one in turns if one.screen],
            OWN: metadata,
        }

    def records(self, source: ImportSource) -> Read:
        """Yield one trajectory per row, or per rows of one trajectory of this project."""
        return joined(each(source, source.rows(*JSON_LINES, ".json"), self._part))

    def _part(self, value: Any, source: ImportSource, place: RecordPlace) -> ChatRow:
        value = value if items_of(value) is None else {"messages": value}  # a bare list of messages
        check_row(value, ("messages",), place)
        row = model_of(_UiTarsRow, value, place)
        known, unit = row.flywheel, self.unit_of(row.flywheel, source, place)
        replies = [one.role == "assistant" for one in row.messages]
        off = masks_of(row.others, replies, place, labelled=1)
        messages = [_read(one, f"messages.{at}", off[at], place) for at, one in enumerate(row.messages)]

        def read(number: int) -> Picture:
            return source.picture(row.images[number], place, f"images.{number}")

        prompt, steps = steps_of(turns_of(messages, row.images, read, place), unit, place, known)
        kept: dict[str, Any] = {}
        if known is None or known.step is None:
            kept = {"messages": [one.model_dump(exclude_none=True) for one in row.messages], "unit": unit}
            kept |= row.others
        asked = prompt.split(HEADING, 1)[-1]
        instruction = instructed(asked.strip() if kept else asked, place, "messages")
        return row_of(self.name, instruction, steps, known, kept, place)


def _masked(messages: list[dict[str, Any]], record: Exchanged) -> list[dict[str, Any]]:
    """Return imported messages, without a loss on replies that are no targets; the last replies belong to the steps."""
    replies = [place for place, one in enumerate(messages) if one["role"] == "assistant"][-len(record.steps) :]
    steps = range(len(record.steps) - len(replies), len(record.steps))
    others = {place for place, step in zip(replies, steps, strict=True) if not record.is_target(step)}
    return [{**one, "loss_mask": 0} if place in others else one for place, one in enumerate(messages)]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """Return an imported message, without tokens other than its pictures' placeholders."""
    content = message.get("content") or ""
    reply = message["role"] == "assistant"
    thoughts = {name: plain(one) for name in REASONING if isinstance(one := message.get(name), str)}
    return {**message, **thoughts, "content": plain(content) if reply else plain_between(content, SLOT)}


def _read(message: RowMessage, field: str, off: bool, place: RecordPlace) -> ChatTurn:
    """Parse a message; a reply has no placeholders.

    Args:
        message, field: the message, and the name of its field.
        off: whether its row excludes it from training.
        place: the place of its row.

    Raises:
        RecordRefused: a mask has no known meaning.
    """
    reply, given = message.role == "assistant", message.others
    content = content_of(message, place, field)
    parts = [reply_of(content, given)] if reply else split(content)
    masked = is_masked(given, place, field)
    return message_of(message.role, parts, field, given, off or masked)


def _as_it_came(record: Exchanged) -> dict[str, Any] | None:
    """Return a record's imported row; None if there is none, or if its placeholders differ from the steps' pictures."""
    kept = record.extra.get(UiTars.name)
    if not kept:
        return None
    asked = [one.get("content") or "" for one in kept["messages"] if one["role"] != "assistant"]
    return kept if sum(len(SLOT.findall(one)) for one in asked) == len(record.steps) else None
