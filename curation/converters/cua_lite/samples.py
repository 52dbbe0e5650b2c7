"""Read cua-lite's samples as trajectories."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.text import Storable
from curation.converters.chat import record_of
from curation.converters.code import stated_outcome
from curation.converters.cua_lite.questions import KEPT, NOT_AN_ACTION, TOOLS, read_question
from curation.converters.cua_lite.reading import OutOfRange, PointerAt
from curation.converters.cua_lite.replies import PARTS, REASONING, STATUS, LiteRead, LiteReply, read_reply
from curation.converters.exchanged import (
    OWN,
    About,
    Exchanged,
    ExchangedStep,
    Metadata,
    Picture,
    RecordPlace,
    RecordRefused,
    StepAbout,
    instructed,
)
from curation.converters.files import OpenModel, fields_of, items_of, model_of, parsed
from curation.converters.tokens import from_export
from schemas.action import from_json
from schemas.problem import problem_of

T = TypeVar("T")
NO_SCREEN = "No screen was recorded."
"""Text of a result in place of an unknown screen."""
TYPES = ("use", "grounding.action")
"""Types of tasks whose rows are trajectories."""
READ = (*TYPES, *TOOLS)
"""Types of tasks whose rows are read."""
Pictured = Callable[[Any, str], Picture]
"""Function that returns the picture of a cell, by the cell and its field."""


class _Message(OpenModel):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class _SampleMetadata(BaseModel):
    model_config = ConfigDict(extra="forbid")

    metadata_kind: Literal["cua", "generic"]
    dims: list[str]
    extra_tool_schemas: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    valid_actions: list[str] | None = None
    others: dict[str, Any] = Field(default_factory=dict[str, Any])


class _SampleRow(OpenModel):
    images: list[Any]
    messages: Any
    metadata: Any


class _Exact(BaseModel):
    actions: list[Storable]
    text: Storable
    thought: Storable


@dataclass
class _SampleTurn:
    """A reply, and what followed it."""

    message: int
    reply: LiteReply
    screen: Picture
    fresh: bool
    """Whether the screen came after the reply before."""
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])


def exchanged_of_sample(value: Any, pictured: Pictured, place: RecordPlace) -> Exchanged:
    """Return the trajectory of a row, or its screen with a question about a place.

    Args:
        value: the row.
        pictured: returns the picture of a cell.
        place: file and number of the row.

    Raises:
        RecordRefused: a field is invalid or missing, or the row is of another type.
    """
    row = model_of(_SampleRow, value, place)
    metadata = _below("metadata", lambda: model_of(_SampleMetadata, _json(row.metadata, "", place), place), place)
    _check_kind(metadata, place)
    known = _known(metadata, place)
    others = {name: one for name, one in metadata.others.items() if name != OWN}
    reading = _SampleReader(row, place, pictured)
    reading.read(items_of(_json(row.messages, "messages", place)))
    steps = list(reading.steps(others))
    instruction = instructed(reading.instruction or "", place, "messages")
    kept: dict[str, Any] = {"metadata": metadata.model_dump(mode="json") | {"others": others}, "system": reading.system}
    columns = {name: one for name, one in row.others.items() if one is not None}
    kept["columns"] = json.loads(json.dumps(columns, default=str))
    kept = {name: one for name, one in kept.items() if one}
    if metadata.dims[1] in TOOLS:
        return _asked(metadata, instruction, steps, kept, reading, known, place)
    exact = fields_of(fields_of(metadata.others.get(OWN)).get("exact"))
    if known is not None:
        steps = [_exact_step(replace(one, extra={}), exact.get(str(at)), place) for at, one in enumerate(steps)]
    record = record_of(KEPT, instruction, steps, known, kept if known is None else {}, place)
    record = replace(record, after=reading.after)
    return record if known is not None else _outcome(record, others, reading.last_call)


def _asked(
    metadata: _SampleMetadata,
    instruction: str,
    steps: Sequence[ExchangedStep],
    kept: Mapping[str, Any],
    reading: "_SampleReader",
    known: Metadata | None,
    place: RecordPlace,
) -> Exchanged:
    """Return the screen and the question of a row about a place. Its data is kept also if a lake exported it."""
    at, calls = reading.only_reply
    question = read_question(metadata.dims[1], instruction, calls, f"messages.{at}", place)
    step = ExchangedStep(steps[0].screen, error=NOT_AN_ACTION, about=StepAbout(target=False), extra=steps[0].extra)
    about = known.trajectory if known else About()
    name = str(metadata.others.get("id") or "")
    record = Exchanged(name, instruction, (step,), about=about, extra={KEPT: kept}, questions=(question,))
    return from_export(record) if known else record


def _below(where: str, read: Callable[[], T], place: RecordPlace) -> T:
    """Return what `read` returns; a refusal's field gets a prefix."""
    try:
        return read()
    except RecordRefused as error:
        raise RecordRefused(place, ".".join(filter(None, (where, error.field))), error.problem) from error


def _json(value: Any, name: str, place: RecordPlace) -> Any:
    """Return the value of a JSON text; any other value as it is."""
    found = parsed(value.encode("utf-8", "replace"), place) if isinstance(value, str) else value
    if isinstance(found, RecordRefused):
        raise RecordRefused(place, name, found.problem)
    return found


def _check_kind(metadata: _SampleMetadata, place: RecordPlace) -> None:
    if metadata.metadata_kind != "cua":
        problem = f"{metadata.metadata_kind!r} samples have no screens: take them out"
        raise RecordRefused(place, "metadata.metadata_kind", problem)
    if len(metadata.dims) != 2 or metadata.dims[0] not in ("desktop", "browser", "mobile"):
        problem = f"{metadata.dims} is no platform (desktop, browser, mobile) and type of task"
        raise RecordRefused(place, "metadata.dims", problem)
    if metadata.dims[1] not in READ:
        problem = f"{metadata.dims[1][:80]!r} is no trajectory; {', '.join(READ)} are imported: take the row out"
        raise RecordRefused(place, "metadata.dims", problem)


def _known(metadata: _SampleMetadata, place: RecordPlace) -> Metadata | None:
    held = metadata.others.get(OWN)
    if held is None:
        return None
    try:
        return Metadata.model_validate(held)
    except ValidationError as error:
        where, problem = problem_of(error)
        raise RecordRefused(place, ".".join(filter(None, ("metadata.others", OWN, where))), problem) from error


def _outcome(record: Exchanged, others: Mapping[str, Any], last_call: str) -> Exchanged:
    """Return the trajectory with its outcome: an `episode_return` of at least 1 is a success.

    Without a return, the outcome is the status of the end, given by `terminate` or with a last text.
    """
    found = others.get("episode_return")
    name = str(others.get("id") or "")
    if isinstance(found, bool) or not isinstance(found, int | float):
        ends = record.steps[-1].actions if record.steps else ()
        stated = stated_outcome(ends[-1] if ends else None, "terminate" if STATUS in others else last_call)
        return replace(record, name=name, success=stated)
    about = record.about.model_copy(update={"reward": float(found)} if -1 <= found <= 1 else {})
    return replace(record, name=name, success=found >= 1, about=about)


def _exact_step(step: ExchangedStep, exact: Any, place: RecordPlace) -> ExchangedStep:
    if exact is None:
        return step
    held = model_of(_Exact, exact, place)
    try:
        actions = tuple(map(from_json, held.actions))
    except ValidationError as error:
        raise RecordRefused(place, f"metadata.others.{OWN}.exact", str(problem_of(error)[1])) from error
    return replace(step, actions=actions, text=held.text, thought=held.thought, error=None)


class _SampleReader:
    """Reads the messages of a row.

    Args:
        row: the row. place: its place. pictured: returns the picture of a cell.
    """

    def __init__(self, row: _SampleRow, place: RecordPlace, pictured: Pictured) -> None:
        self._row, self._place, self._pictured = row, place, pictured
        self.instruction: str | None = None
        self.system: list[Any] = []
        self.after: Picture | None = None
        """The screen after the last reply; None if there is none."""
        self._turns: list[_SampleTurn] = []
        self._screen: Picture | None = None
        self._fresh = False

    @property
    def last_call(self) -> str:
        """Name of the last reply's last tool call; empty without one."""
        calls = self._turns[-1].reply.tool_calls if self._turns else None
        return calls[-1].function.name if calls else ""

    @property
    def only_reply(self) -> tuple[int, list[Any]]:
        """Number of the message and calls of the only reply; raises RecordRefused if there are several."""
        if len(self._turns) > 1:
            where, problem = f"messages.{self._turns[1].message}", "a second reply: a row about a place has one"
            raise RecordRefused(self._place, where, problem)
        return self._turns[0].message, list(self._turns[0].reply.tool_calls or ())

    def read(self, messages: list[Any] | None) -> None:
        """Read all messages; raise RecordRefused for an invalid one."""
        if not messages:
            raise RecordRefused(self._place, "messages", "no list of messages")
        for at, value in enumerate(messages):
            where = f"messages.{at}"
            message = _below(where, partial(model_of, _Message, value, self._place), self._place)
            if message.role == "assistant":
                reply = _below(where, partial(model_of, LiteReply, value, self._place), self._place)
                _below(where, partial(self._reply, at, reply), self._place)
                continue
            if message.role == "system":
                self.system.append(value)
                continue
            parts = [{"type": "text", "text": message.content}] if isinstance(message.content, str) else message.content
            self._observe(message, parts or [], where)
        if not self._turns:
            raise RecordRefused(self._place, "messages", "no assistant message: a trajectory has at least one")
        self.after = self._screen if self._fresh else None

    def _reply(self, at: int, reply: LiteReply) -> None:
        if self._screen is None:
            raise RecordRefused(self._place, "", "no image comes before the reply: a step needs its screen")
        for number, part in enumerate(reply.content or ()):
            if part.get("type") not in PARTS:
                problem = f"{str(part.get('type'))[:80]!r} is no part of an assistant message ({', '.join(PARTS)})"
                raise RecordRefused(self._place, f"content.{number}.type", problem)
        self._turns.append(_SampleTurn(at, reply, self._screen, self._fresh or not self._turns))
        self._fresh = False

    def _observe(self, message: _Message, parts: list[dict[str, Any]], where: str) -> None:
        images = list[Picture]()
        for number, part in enumerate(parts):
            field_of = f"{where}.content.{number}"
            match part.get("type"):
                case "image":
                    images.append(self._image(part.get("index"), field_of))
                case "text" if isinstance(part.get("text"), str):
                    pass
                case "metadata":
                    pass
                case kind:
                    problem = f"{str(kind)[:80]!r} is no part of a {message.role} message (text, image, metadata)"
                    raise RecordRefused(self._place, f"{field_of}.type", problem)
        if message.role == "tool":
            self._result(message, parts, where)
        elif self.instruction is None:
            self.instruction = "\n".join(part["text"] for part in parts if part.get("type") == "text")
            if len(images) > 1:
                problem = f"{len(images)} images before the first reply: keep the screen, and take the others out"
                raise RecordRefused(self._place, f"{where}.content", problem)
        if images:
            self._screen, self._fresh = images[-1], True

    def _result(self, message: _Message, parts: list[dict[str, Any]], where: str) -> None:
        calls = {one.id for one in self._turns[-1].reply.tool_calls or ()} if self._turns else set[str]()
        if message.tool_call_id not in calls:
            problem = f"{str(message.tool_call_id)[:80]!r} is no call of the reply before: write its id"
            raise RecordRefused(self._place, f"{where}.tool_call_id", problem)
        self._turns[-1].results[str(message.tool_call_id)] = parts

    def _image(self, index: Any, where: str) -> Picture:
        images = self._row.images
        number = int(index) if isinstance(index, float) and index.is_integer() else index
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(images):
            problem = f"{str(index)[:80]} is no index of the row's {len(images)} images"
            raise RecordRefused(self._place, f"{where}.index", problem)
        return self._pictured(images[number], f"images.{number}")

    def steps(self, others: Mapping[str, Any]) -> Iterator[ExchangedStep]:
        """Yield the steps. A reply to a screen that another reply has answered is context."""
        pointer: PointerAt = None
        for number, turn in enumerate(self._turns):
            following = self._turns[number + 1] if number + 1 < len(self._turns) else None
            where = f"messages.{turn.message}"
            try:
                read = read_reply(turn.reply, where, pointer, others if following is None else None)
            except OutOfRange as error:
                field_of, _, problem = str(error).partition(": ")
                raise RecordRefused(self._place, field_of, problem) from error
            pointer = read.pointer
            answered = not turn.fresh and bool(self._turns[number - 1].reply.tool_calls)
            words = not read.actions and following is not None and not following.fresh
            yield ExchangedStep(
                turn.screen,
                read.thought,
                read.actions,
                read.text,
                read.error,
                about=StepAbout(target=False if answered or words else None),
                extra=_kept(turn),
                frames=self._frames(turn, read),
            )

    def _frames(self, turn: _SampleTurn, read: LiteRead) -> tuple[Picture, ...]:
        """Return the screens between the actions of a reply, up to the first that is unknown."""
        shots = list[Picture | None]()
        for call, effects in zip(turn.reply.tool_calls or (), read.counts, strict=False):
            parts = [
                part
                for part in turn.results.get(call.id, ())
                if part.get("type") == "image" or part.get("text") == NO_SCREEN
            ]
            known = [self._image(part["index"], "") if part.get("type") == "image" else None for part in parts]
            if len(known) != len(effects):
                known = [*[None] * (len(effects) - 1), known[-1] if known else None]
            shots += [shot for shot, effect in zip(known, effects, strict=True) if effect]
        between = takewhile(lambda shot: shot is not None, shots[:-1])
        return tuple(cast(Picture, shot) for shot in between) if len(read.actions) > 1 else ()


def _kept(turn: _SampleTurn) -> dict[str, Any]:
    """Return the values of a reply and its results that no column has."""
    content = [part for part in turn.reply.content or () if part.get("type") not in ("text", REASONING)]
    calls = [one.model_dump(mode="json") for one in turn.reply.tool_calls or ()]
    results = [_texts(turn.results.get(one.id, ())) for one in turn.reply.tool_calls or ()]
    kept = {
        "content": content,
        "native": bool(turn.reply.reasoning_content),
        "calls": calls,
        "results": results if any(results) else [],
        "others": turn.reply.others,
    }
    held = {name: one for name, one in kept.items() if one}
    return {KEPT: held} if held else {}


def _texts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the texts of a call's result."""
    return [part["text"] for part in parts if part.get("type") == "text" and part["text"] != NO_SCREEN]
