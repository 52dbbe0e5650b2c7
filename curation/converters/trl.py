"""Reads and writes TRL's conversational data with pictures: a row per trajectory, `messages` and `images`.

`messages` is a list of `{role, content: [{type: text, text} | {type: image}]}`. A part that holds its own picture keeps
it; `images` fills the other placeholders in order (TRL 1.16.0, `data_utils.prepare_multimodal_messages`). `<image>` in
a text is a placeholder, too, as in LLaMA-Factory and ms-swift. In the text of a part, it is one only if the number of
pictures requires it. Rows of `prompt` and `completion`, or of `prompt`, `chosen` and `rejected`, are read, too. Their
target is the completion or the chosen reply, and the row is kept with the trajectory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BeforeValidator
from pydantic_core import from_json

from common.text import storable
from curation.converters.chat import (
    SHOWN,
    ChatFormat,
    ChatRow,
    ChatTurn,
    calls_of,
    chat_of,
    check_others,
    check_row,
    holds_more,
    message_of,
    row_of,
    split,
    steps_of,
    turns_of,
)
from curation.converters.exchanged import OWN, Exchanged, Metadata, Picture, RecordPlace, RecordRefused, metadata_of
from curation.converters.files import ImportSource, OpenModel, Target, fields_of, items_of, model_of
from curation.converters.format import Read, each
from curation.converters.lessons import Wholes, lessons_of, whole
from curation.converters.masks import is_masked, masks_of
from curation.converters.parquet import IMAGE, RowFile, image_of, json_of, name_of, picture_in, rows_of_any
from curation.converters.search import CONTEXT
from curation.converters.tokens import for_trainers, plain

FILE, COMPLETIONS = "trl.parquet", "trl-completions.parquet"
MESSAGES = pa.list_(
    pa.struct([("role", pa.string()), ("content", pa.list_(pa.struct([("type", pa.string()), ("text", pa.string())])))])
)
SCHEMA = pa.schema([("messages", MESSAGES), ("images", pa.list_(IMAGE)), (OWN, pa.string())])
STEPS = pa.schema([("prompt", MESSAGES), ("completion", MESSAGES), ("images", pa.list_(IMAGE)), (OWN, pa.string())])


class _TrlMessage(OpenModel):
    role: str
    content: str | list[dict[str, Any]] | None = None


def _object(value: Any) -> Any:
    """Returns the value of a JSON text; any other value unchanged."""
    return from_json(value) if isinstance(value, str) else value


class _TrlRow(OpenModel):
    messages: list[_TrlMessage] | None = None
    prompt: list[_TrlMessage] | None = None
    completion: list[_TrlMessage] | None = None
    chosen: list[_TrlMessage] | None = None
    rejected: list[_TrlMessage] | None = None
    images: list[Any] | None = None
    image: Any = None
    flywheel: Annotated[Metadata | None, BeforeValidator(_object)] = None


class Trl(ChatFormat):
    """TRL's format: a Parquet file, or lines of JSON."""

    name = "trl"
    tags = ("trl",)
    contents = (
        "A row of `trajectories` is a whole chat whose replies are all targets. A row of `targets` has one target as "
        "its `completion`, for trajectories with other steps."
    )
    loading = 'from datasets import load_dataset\n\nrows = load_dataset("DIR", "trajectories", split="train")'

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Writes a row for each trajectory whose replies are all targets, and else a row of `prompt` and `completion`
        for each target."""
        pictures = {"images": [{"_type": "Image"}]}
        steps = RowFile(target, COMPLETIONS, STEPS, pictures)
        others = RowFile(target, f"{CONTEXT}/{FILE}", SCHEMA, pictures)
        with RowFile(target, FILE, SCHEMA, pictures).begun() as rows, steps, others:
            for record in map(Exchanged.as_taught, records):
                (rows if whole(record) else others).write(self._row(record))
                for one in () if whole(record) else lessons_of(record):
                    steps.write(self._completion(one))
        files = {"trajectories": FILE} | ({"targets": COMPLETIONS} if steps.there else {})
        self.configs = [{"config_name": name, "data_files": file} for name, file in files.items()]

    def _completion(self, one: Exchanged) -> dict[str, Any]:
        shown = for_trainers(one)
        turns = chat_of(shown, len(one.steps) - 1, SHOWN, self.writing)
        reply = ChatTurn("assistant", self.writing.reply(shown.steps[-1]))
        return {
            "prompt": [_message(turn) for turn in turns],
            "completion": [_message(reply)],
            "images": [image_of(turn.screen) for turn in turns if turn.screen],
            OWN: json_of(metadata_of(one, "", self.unit, self.dialect, len(one.steps) - 1, copied=True)),
        }

    def _row(self, record: Exchanged) -> dict[str, Any]:
        shown, last, writing = for_trainers(record), len(record.steps) - 1, self.writing
        turns = [*chat_of(shown, last, last + 1, writing), ChatTurn("assistant", writing.reply(shown.steps[last]))]
        kept = record.extra.get(self.name, {})
        metadata = {**metadata_of(record, "", self.unit, self.dialect), **({"unit": kept["unit"]} if kept else {})}
        came = kept.get("row", {}).get("messages") or ()
        tags = _tags([_TrlMessage.model_validate(one) for one in came], len(record.steps), own=False)
        as_it_came = [] if any(map(holds_more, came)) else [_kept(one, tags) for one in came]
        slots = sum(part["type"] == "image" for message in as_it_came for part in message["content"])
        fits = as_it_came and slots in (len(record.steps), 0 if len(record.steps) == 1 else len(record.steps))
        return {
            "messages": as_it_came if fits else [_message(turn) for turn in turns],
            "images": [image_of(step.screen) for step in record.steps],
            OWN: json_of(metadata),
        }

    def records(self, source: ImportSource) -> Read:
        """Yields one trajectory per row."""
        wholes = Wholes()
        for place, found in each(source, rows_of_any(source), self._part):
            if isinstance(found, RecordRefused):
                yield place, found
            elif not found.copied:
                wholes.add(found.record)
                yield place, found.record
            elif missing := wholes.missing(found.record, place):
                yield place, missing

    def _part(self, value: Any, source: ImportSource, place: RecordPlace) -> ChatRow:
        check_row(value, WANTED, place)
        row = model_of(_TrlRow, value, place)
        _check_whole(row, place)
        unit = self.unit_of(row.flywheel, source, place)

        def picture(cell: _Cell) -> Picture:
            return picture_in(cell.value, source, place, cell.field)

        def readable(cell: _Cell) -> bool:
            try:
                return bool(picture(cell))
            except RecordRefused:
                return False

        chat, left = _placed(_messages(row, place), _pictures(row), readable, place)
        cells = _cells(chat, left)

        def read(number: int) -> Picture:
            return picture(cells[number])

        names = [name_of(cell.value) or "" for cell in cells]
        messages = [one.message for one in chat]
        instruction, steps = steps_of(turns_of(messages, names, read, place), unit, place, row.flywheel)
        kept: dict[str, Any] = {}
        if row.flywheel is None:
            for part in (part for one in _every(row) for part in _dicts(one.content)):
                for name in OWN_PICTURE:
                    part.pop(name, None)  # it is stored in a step
            given = row.model_dump(mode="json", exclude_none=True, exclude={"images", "image", "flywheel"})
            kept = {"row": given, "unit": unit}
        return row_of(self.name, instruction, steps, row.flywheel, kept, place)


def _check_whole(row: _TrlRow, place: RecordPlace) -> None:
    """Raise RecordRefused for a row of one step: this project writes such rows as `ui-tars`, and as `trl` only for
    targets."""
    known = row.flywheel
    if known is not None and known.step is not None and not (known.copied and row.messages is None):
        problem = "the row is one step of a trajectory, as `ui-tars` has it, and a row of `trl` is a whole trajectory"
        raise RecordRefused(place, f"{OWN}.step", problem)


def _message(turn: ChatTurn) -> dict[str, Any]:
    part = {"type": "image", "text": None} if turn.screen else {"type": "text", "text": turn.text}
    return {"role": turn.role, "content": [part]}


def _kept(message: dict[str, Any], tags: "_Tags") -> dict[str, Any]:
    """Returns an imported message with its content as parts, and with broken tokens in its texts."""
    content = message.get("content") or ""
    held = [fields_of(one) for one in items_of(content) or [{"type": "text", "text": content}]]
    splits = tags.split_in(message["role"], isinstance(content, str))
    parts = list[str | None]()
    for one in held:
        text = storable(str(one.get("text") or ""))
        parts += [None] if one.get("type") in PICTURED else split(text) if splits else [text]
    parts = [one for one in parts if one != ""] or [""]
    return {"role": message["role"], "content": [_part(one) for one in parts]}


def _part(text: str | None) -> dict[str, Any]:
    """Returns a part for a text, or a placeholder for None."""
    return {"type": "image" if text is None else "text", "text": None if text is None else plain(text)}


@dataclass(frozen=True, slots=True)
class _Cell:
    """A row's data for a picture."""

    value: Any
    field: str


@dataclass(frozen=True, slots=True)
class _ReadMessage:
    """A parsed message."""

    message: ChatTurn
    own: tuple[_Cell | None, ...] = ()
    """For each placeholder, the picture in its own part; None for the row's next picture."""
    plain: bool = False
    """Whether the content is a text instead of parts."""

    def in_prompt(self) -> "_ReadMessage":
        """Returns the message as part of a prompt."""
        return replace(self, message=replace(self.message, given=True))

    @property
    def replies(self) -> bool:
        """Whether the message is a reply."""
        return self.message.role == "assistant"

    def masked(self, off: bool) -> "_ReadMessage":
        """Returns the message, as context if `off`."""
        return replace(self, message=replace(self.message, masked=self.message.masked or off))


@dataclass(frozen=True, slots=True)
class _Tags:
    """Whether tags are placeholders in contents that are texts, and in texts of parts."""

    strings: bool
    texts: bool

    def split_in(self, role: str, plain: bool) -> bool:
        """Whether a message's texts are split at their tags; a reply's texts never are."""
        return role != "assistant" and (self.strings if plain else self.texts)


def _tags(messages: Sequence[_TrlMessage], pictures: int, own: bool = True) -> _Tags:
    """Find the texts whose tags are placeholders, by the number of a row's pictures.

    Args:
        messages: messages of the row.
        pictures: number of pictures that the row names.
        own: whether parts with their own picture need no picture of the row.
    """
    parts = [part for one in messages for part in _dicts(one.content) if part.get("type") in PICTURED]
    held = sum(_own(part, "") is not None for part in parts) if own else 0
    asked = [one for one in messages if one.role != "assistant"]
    strings = sum(_tagged(one.content) for one in asked if isinstance(one.content, str))
    texts = sum(_tagged(part.get("text")) for one in asked for part in _dicts(one.content))
    for left in (pictures - len(parts) + held, pictures - len(parts)):
        if left in (strings, strings + texts):
            return _Tags(strings=True, texts=left != strings)
    # If parts have all pictures, other placeholders are text; otherwise, differing counts are refused.
    literal = bool(held) and not pictures if own else len(parts) == pictures
    return _Tags(strings=not literal, texts=not literal)


def _tagged(text: object) -> int:
    return sum(one is None for one in split(text)) if isinstance(text, str) else 0


def _messages(row: _TrlRow, place: RecordPlace) -> list[_ReadMessage]:
    """Lists the messages of a row; messages of a prompt, and messages that the row or its label excludes from training,
    are context."""
    used = row.messages or [*(row.prompt or ()), *(row.completion or row.chosen or ())]
    tags = _tags(used, len(_pictures(row)))

    def read_list(name: str, messages: list[_TrlMessage] | None) -> list[_ReadMessage]:
        return [_read(one, f"{name}.{at}", place, tags) for at, one in enumerate(messages or [])]

    every, labelled = read_list("messages", row.messages), 1
    if not every:
        prompt = read_list("prompt", row.prompt)
        replied = read_list("completion", row.completion) or read_list("chosen", row.chosen)
        if not prompt:  # an implicit prompt: all messages before the last reply
            last = max((at for at, one in enumerate(replied) if one.replies), default=0)
            prompt, replied = replied[:last], replied[last:]
        every, labelled = [*(one.in_prompt() for one in prompt), *replied], sum(one.replies for one in replied)
    masks = masks_of(row.others, [one.replies for one in every], place, labelled=max(labelled, 1))
    return [one.masked(off) for one, off in zip(every, masks, strict=True)]


def _placed(
    chat: list[_ReadMessage], pictures: Sequence[_Cell], readable: Callable[[_Cell], bool], place: RecordPlace
) -> tuple[list[_ReadMessage], Sequence[_Cell]]:
    """Give the row's pictures placeholders if the texts have none for them.

    As in TRL, the first user turn whose content is a text gets a placeholder for each picture. If parts have as many
    pictures as the row, the row may repeat them. Parts then keep their own pictures, or all use the row's pictures if
    one of their own is unreadable.

    Returns:
        The messages, and the row's pictures for their placeholders.
    """
    held = [one for message in chat for one in message.own]
    own = [one for one in held if one is not None]
    if not pictures or len(held) - len(own) == len(pictures):
        return chat, pictures
    if own and len(held) == len(pictures):
        again = [name_of(one.value) for one in pictures]
        same = all(one is None or name_of(one.value) == at for one, at in zip(held, again, strict=True))
        if same or not all(map(readable, own)):
            return [replace(one, own=(None,) * len(one.own)) for one in chat], pictures
        if len(own) == len(held) and sorted(map(str, again)) == sorted(str(name_of(one.value)) for one in own):
            return chat, ()
    if len(held) > len(own):
        return chat, pictures
    users = [at for at, one in enumerate(chat) if one.message.role == "user"]
    users = [at for at in users if chat[at].plain] or ([] if own else users)
    if not users:
        return chat, pictures
    if not own:
        check_others([one.message for one in chat], place)
    asked, slots = chat[users[0]], (None,) * len(pictures)
    message = replace(asked.message, parts=[*slots, *asked.message.parts])
    asked = replace(asked, message=message, own=(*slots, *asked.own))
    return [*chat[: users[0]], asked, *chat[users[0] + 1 :]], pictures


def _pictures(row: _TrlRow) -> list[_Cell]:
    """Lists the pictures that a row names."""
    if row.images is None and row.image is not None:
        return [_Cell(row.image, "image")]
    return [_Cell(one, f"images.{at}") for at, one in enumerate(row.images or [])]


def _cells(chat: list[_ReadMessage], pictures: Sequence[_Cell]) -> list[_Cell]:
    """Lists the pictures in the order of placeholders, including pictures in parts, then the remaining pictures of the
    row."""
    left, cells = deque(pictures), list[_Cell]()
    for own in (own for one in chat for own in one.own):
        cells += [own] if own is not None else [left.popleft()] if left else []
    return [*cells, *left]


def _every(row: _TrlRow) -> list[_TrlMessage]:
    """Lists all messages of a row, including messages that are not part of the trajectory."""
    lists = (row.messages, row.prompt, row.completion, row.chosen, row.rejected)
    return [message for messages in lists for message in messages or ()]


def _dicts(content: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Lists the parts of a message; empty for a text."""
    return content if isinstance(content, list) else []


def _read(message: _TrlMessage, field: str, place: RecordPlace, tags: _Tags) -> _ReadMessage:
    """Parses a message.

    Args:
        message, field, place: the message, its field, and the place of its row.
        tags: which tags in texts are placeholders.

    Raises:
        RecordRefused: a part is neither text nor a picture.
    """
    given, parts, own = message.others, list[str | None](), list[_Cell | None]()
    listed = isinstance(message.content, list)
    splits = tags.split_in(message.role, not listed)
    content = message.content if isinstance(message.content, list) else [{"text": message.content or ""}]
    for at, part in enumerate(content):
        where = f"{field}.content.{at}" if listed else f"{field}.content"
        kind, text = part.get("type"), part.get("text")
        if kind in PICTURED:
            parts.append(None)
            own.append(_own(part, where))
        elif kind in (None, "text") or text is not None:
            text = storable(str(text or ""))
            around: list[str | None] = split(text) if splits else [text]
            parts += around
            own += [None] * around.count(None)
        else:
            problem = _INSTEAD.get(str(kind), "no text and no image: leave the part out, or write it as a text")
            raise RecordRefused(place, f"{where}.type", f"{str(kind)[:80]!r} is {problem}")
    parts = [*(one for one in parts if one != ""), *calls_of(given)] or [""]
    masked = is_masked({**given, "content": message.content}, place, field)
    return _ReadMessage(
        message_of(message.role, parts, field, given, masked),
        tuple(own),
        not listed,
    )


def _own(part: dict[str, Any], field: str) -> _Cell | None:
    """Returns the picture in a part: bytes, a file's name, or a data URL; None if the row names it."""
    name = next((name for name in OWN_PICTURE if part.get(name) is not None), None)
    if name is None:
        return None
    value, held = part[name], fields_of(part[name])
    if name == "base64" or held.get("data") is not None:
        data = str(held.get("data", value)).strip()
        value, held = data if data[:5].lower() == "data:" else f"data:;base64,{data}", {}
    return _Cell(held.get("url", value), f"{field}.{name}")


_CALL = "a tool's call: write it in the message's `tool_calls`"
_RESULT = "a call's result: write it as the text of a message of role `tool`"
_THOUGHT = "a thought: write it as the message's `reasoning_content`"
_INSTEAD = {
    **dict.fromkeys(("thinking", "redacted_thinking", "reasoning"), _THOUGHT),
    **dict.fromkeys(("tool_use", "tool_call", "function_call"), _CALL),
    **dict.fromkeys(("tool_result", "tool_response", "function_call_output"), _RESULT),
    **dict.fromkeys(("video", "video_url", "audio", "input_audio"), "no image: save a screen of it as an image"),
}
"""Types of parts that are neither a text nor a picture, with the field of a message for each."""
PICTURED = ("image", "image_url", "input_image")
"""Types of a part that is a picture's placeholder: TRL's, and those of OpenAI's chats."""
OWN_PICTURE = ("image", "image_url", "url", "path", "base64", "source")
"""Fields of such a part that hold the picture, in TRL's, OpenAI's, transformers' and Anthropic's forms."""
WANTED = ("messages", "prompt", "completion", "chosen")
"""Fields of a row that hold a chat."""
