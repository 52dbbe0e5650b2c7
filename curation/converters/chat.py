"""Converts trajectories to chats and back, for the formats of UI-TARS, TRL and verl.

A chat has a system turn, the instruction, and for each step a screen and the reply to it. A reply is `Thought: ...` and
`Action: ...` in one of UI-TARS's dialects. Formats with a row per step show only the last screens, with all earlier
replies as text (UI-TARS, arXiv 2501.12326, Eq. 3). The reader then takes the reply to a row's last screen as the row's
step.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from common.text import Storable, counted, storable, strict_json
from curation.converters.exchanged import (
    Exchanged,
    ExchangedStep,
    Extra,
    ImportedReview,
    Metadata,
    Picture,
    RecordPlace,
    RecordRefused,
    StepAbout,
    instructed,
    with_metadata,
    without_action,
)
from curation.converters.files import OpenModel, fields_of, items_of
from curation.converters.format import Format, Read
from curation.converters.lessons import Wholes
from curation.converters.tokens import from_export
from curation.converters.units import extent_of, scale_of
from models.completion import MAX_ACTIONS, Completion
from models.families.dialects import DIALECTS, format_action, format_actions, format_reply, parse_reply
from models.families.prompt import SAMPLES, system_text
from models.families.thinking import REASONING, holds_call
from schemas.action import Action, Hotkey, Type

SHOWN = 5
"""Number of screens in a row of a step, as in all of UI-TARS's experiments."""
MARKS = ("<image>", "<video>", "<|vision_start|>")
"""Placeholder of a screen in a text."""
SLOT = re.compile(r"<\|vision_start\|>(?:(?!<\|vision_start\|>).)*?<\|vision_end\|>|<image>", re.DOTALL)
"""A placeholder of a picture: UI-TARS's, which cannot be nested, or that of LLaMA-Factory, ms-swift and verl."""
_OTHER = re.compile(r"<(video|audio)>")
"""Placeholders of LLaMA-Factory, ms-swift and verl for media that no step has; if a row's pictures match, they are
text."""
ROLES = ("system", "developer", "user", "assistant", "tool")
_SHARED = {"human": "user", "gpt": "assistant"}
"""ShareGPT's names of roles."""
_UNIT_NAMES = {
    "thousandths": "thousandths of the screen",
    "resized_pixels": "pixels of the screen as it is shown to you",
}


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One turn of a chat: a text or a screen; `turns_of` sets them for a message of a row, from its parts."""

    role: str
    text: str = ""
    screen: Picture | None = None
    parts: Sequence[str | None] = ()
    """Texts of the row's message, and None for each placeholder of a picture."""
    field: str = "messages"
    """Field of the record that has the turn; for a message of a row, without `content`."""
    masked: bool = False
    """Whether the row puts no loss on the turn, so that it is context."""
    thought: str = ""
    """Thought of a reply, if the record has it separately from the text."""
    given: bool = False
    """Whether the turn is part of a prompt, so that it is context."""
    calls: bool = False
    """Whether the record has a tool call separately from the text."""


def message_of(
    role: str, parts: Sequence[str | None], field: str, message: Mapping[str, Any], masked: bool = False
) -> ChatTurn:
    """Make the turn of a row's message.

    Args:
        role, parts, field, masked: as in `ChatTurn`.
        message: the message's other fields, which may hold a thought and calls.
    """
    thought, calls = thought_of(message), bool(calls_of(message))
    return ChatTurn(role, parts=parts, field=field, masked=masked, thought=thought, calls=calls)


def thought_of(message: Mapping[str, Any]) -> str:
    """Returns the thought that a reply has separately from its text; empty if it has none."""
    given = (message.get(name) for name in REASONING)
    return next((storable(one) for one in given if isinstance(one, str) and one.strip()), "")


def calls_of(message: Mapping[str, Any]) -> list[str]:
    """The tool calls of a reply, as OpenAI's chats hold them, each as a text.

    A call is an object or its JSON: of a function, a custom tool, or the `function_call` of older chats.
    """
    listed = _unwritten(message.get("tool_calls"))
    held = [*(items_of(listed) or [listed]), message.get("function_call")]
    given = [fields_of(_unwritten(one)) for one in held]
    calls = [
        fields_of(_unwritten(one.get("function"))) or fields_of(_unwritten(one.get("custom"))) or one for one in given
    ]
    return [storable(f"{one['name']}({_arguments(one)})") for one in calls if one.get("name")]


def _unwritten(value: object) -> object:
    """Parse a text that may be JSON; another value, and a text that is none, stays as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _arguments(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments", call.get("input"))
    text = arguments.strip() if isinstance(arguments, str) else ""
    return text or strict_json(arguments or {}, ensure_ascii=False)


def reply_of(text: str, message: Mapping[str, Any]) -> str:
    """Returns the text of a reply, followed by its tool calls."""
    return "\n".join(filter(None, (text, *calls_of(message))))


def holds_more(message: Mapping[str, Any]) -> bool:
    """Return whether a message has a thought or a call in addition to its content."""
    return bool(thought_of(message) or calls_of(message))


class RowMessage(OpenModel):
    """A message of a row whose content is a text."""

    role: str
    content: Storable | None = None


def content_of(message: RowMessage, place: RecordPlace, field: str) -> str:
    """Return the text of a message, which may be missing next to a thought or a call, as in OpenAI's chats.

    Raises:
        RecordRefused: it is missing, and the message holds nothing else.
    """
    if message.content is None and not holds_more(message.others):
        raise RecordRefused(place, f"{field}.content", "it is missing; write the message's text, or its `tool_calls`")
    return message.content or ""


def split(text: str) -> list[str | None]:
    """Returns the texts between placeholders, and None for each placeholder."""
    first, *others = SLOT.split(text)
    return [first, *(part for one in others for part in (None, one))]


def check_row(row: object, wanted: Sequence[str], place: RecordPlace) -> None:
    """Check that a row has a chat, and no media other than pictures.

    Args:
        row: an object; other values are refused elsewhere.
        wanted: fields of which the row needs at least one.
        place: file and line of the row.

    Raises:
        Refused: the row has none of these fields, or an empty one, or videos or sounds.
    """
    if not isinstance(row, Mapping):
        return
    fields = {name: value for name, value in cast(Mapping[str, Any], row).items() if value is not None}
    for name in ("videos", "video", "audios", "audio"):
        if fields.get(name):
            raise RecordRefused(
                place, name, "a step shows images alone: put them in `images`, and leave this field out"
            )
    if not any(name in fields for name in wanted):
        has = ", ".join(sorted(str(name)[:40] for name in fields)[:12]) or "nothing"
        what = f"it is missing; the row has {has}. Write the chat as `{wanted[0]}`, each of `role` and `content`"
        raise RecordRefused(place, wanted[0], what)
    held = [name for name in wanted if name in fields]
    if all(items_of(fields[name]) == [] for name in held):
        raise RecordRefused(place, held[0], "it is empty: write the messages of the chat, each of `role` and `content`")


@dataclass(frozen=True, slots=True)
class Writing:
    """Form of written replies."""

    unit: str
    dialect: str

    def action(self, action: Action, screen: Picture) -> str:
        """Returns an action's text."""
        return format_action(action, self.dialect, sides=scale_of(self.unit, screen.width, screen.height))

    def reply(self, step: ExchangedStep) -> str:
        """Returns a step's reply with all its actions; one that could not be parsed keeps its recorded text."""
        if not step.actions:
            return step.text
        sides = scale_of(self.unit, step.screen.width, step.screen.height)
        return format_reply(step.thought, format_actions(step.actions, self.dialect, sides=sides))

    def system(self, screen: Picture) -> str:
        """Returns the system prompt: the task and the actions."""
        return system_text([self.action(action, screen) for action in SAMPLES], _UNIT_NAMES[self.unit])


class ChatFormat(Format):
    """A format of chats."""

    units = ("thousandths", "resized_pixels")
    several = True
    dialects = DIALECTS

    @property
    def writing(self) -> Writing:
        """Form of written replies."""
        return Writing(self.unit, self.dialect)


def chat_of(record: Exchanged, end: int, shown: int, writing: Writing) -> list[ChatTurn]:
    """Builds the chat up to the screen of step `end`, with `shown` of the last screens.

    Args:
        record: without tokens (`for_trainers`). end, shown: the step, and the number of screens.
        writing: form of written replies.
    """
    steps = record.steps[: end + 1]
    turns = [ChatTurn("system", writing.system(steps[0].screen)), ChatTurn("user", record.instruction)]
    for number, step in enumerate(steps):
        if number > end - shown:
            turns.append(ChatTurn("user", screen=step.screen))
        if number < end:
            turns.append(ChatTurn("assistant", writing.reply(step)))
    return turns


def read_reply(text: str, screen: Picture, unit: str, place: RecordPlace, field: str) -> ExchangedStep:
    """Makes the step of a reply to a screen.

    Raises:
        Refused: a point is outside of the screen.
    """
    read = parse_reply(text, scale_of(unit, screen.width, screen.height))
    if not read.actions and read.error and "or equal to" in read.error:
        outside = f"{read.error}: outside of {extent_of(unit, screen.width, screen.height)}"
        raise RecordRefused(place, field, f"{outside}; --unit names another unit")
    return step_of(read, screen, MAX_ACTIONS)


def step_of(read: Completion, screen: Picture, most: int = 1) -> ExchangedStep:
    """The step of a reply that was read; a text and Enter are one action.

    A reply with more than `most` actions stays a text: the next screen shows the result of all of them, so that the
    first ones alone would be another step.
    """
    about = StepAbout(unused=", ".join(read.unused))
    match (*read.actions, *read.dropped):
        case ():
            return ExchangedStep(screen, text=read.text, error=read.error)
        case (Type() as typed, Hotkey(key="enter" | "return")):
            actions = (Type(content=typed.content.removesuffix("\n") + "\n"),)
        case actions if len(actions) > most:
            return ExchangedStep(screen, text=read.text, error=f"{len(actions)} actions in one reply")
        case actions:
            pass
    return ExchangedStep(screen, read.thought, actions, about=about)


def turns_of(
    messages: Sequence[ChatTurn], names: Sequence[str], read: Callable[[int], Picture], place: RecordPlace
) -> list[ChatTurn]:
    """Fill the placeholders of messages with the pictures of their row, in order.

    Args:
        messages: messages of the row.
        names: the row's names of its pictures.
        read: returns a picture by its number.
        place: file and line of the row.

    Raises:
        Refused: a role is unknown, a turn has two placeholders, a reply has a placeholder, or the numbers of
            placeholders and pictures differ. The message names the turn, or the first unused picture.
    """
    turns, filled = list[ChatTurn](), 0
    for message in messages:
        if message.role not in ROLES:
            known = _SHARED.get(message.role)
            problem = f"{message.role[:80]!r} is none of {', '.join(ROLES)}" + (f"; write {known!r}" if known else "")
            raise RecordRefused(place, f"{message.field}.role", problem)
        where, slots = f"{message.field}.content", sum(part is None for part in message.parts)
        if slots > 1:
            raise RecordRefused(place, where, f"{slots} screens in one turn; a step has one")
        if slots and message.role == "assistant":
            raise RecordRefused(place, where, "a screen in a reply")
        if slots and filled == len(names):
            check_others(messages, place)
            problem = f"a screen of which `images` names no image (it has {counted(filled, 'image')})"
            raise RecordRefused(place, where, problem)
        screen = read(filled) if slots else None
        filled += slots
        texts = [part for part in message.parts if part is not None]
        text = "\n".join(filter(None, (one.strip() for one in texts))) if slots else "\n".join(texts)
        turns.append(replace(message, text=text, screen=screen, field=where))
    if filled < len(names):
        check_others(messages, place)
        counts = f"{counted(len(names), 'image')} for {counted(filled, 'placeholder')}"
        raise RecordRefused(place, f"images.{filled}", f"{counts}; {names[filled][:200]!r} is left over")
    return turns


def check_others(messages: Iterable[ChatTurn], place: RecordPlace) -> None:
    """Raise Refused if a row's pictures do not match and a text has a placeholder of a video or a sound."""
    for message in messages:
        found = message.role != "assistant" and _OTHER.search("\n".join(filter(None, message.parts)))
        if found:
            problem = f"a placeholder {found[0]}; a step shows one image: name it, and put `<image>`"
            raise RecordRefused(place, f"{message.field}.content", problem)


def steps_of(
    turns: Sequence[ChatTurn], unit: str, place: RecordPlace, known: Metadata | None
) -> tuple[str, list[ExchangedStep]]:
    """Return the instruction and the steps; replies before the first screen are none.

    A policy acts once on a screen. After an acting reply, another acting reply belongs to a screen that the chat does
    not show, so it is context. Words before an acting target, and words after any acting reply, are context, too. A
    masked reply is context, and answers its screen only if a tool's result follows it.

    Args:
        turns: the chat.
        unit: unit of its coordinates.
        place: file and line of the row.
        known: value of `flywheel`.

    Raises:
        Refused: there is no instruction, a screen has no reply, or a point is outside of the screen.
    """
    instruction, screen, replied, acted, answered = "", None, True, False, False
    steps: list[ExchangedStep] = []
    words, replies = list[int](), _replies(turns)
    texts = without_action(known, replies)
    earlier = range(0 if known is None or known.step is None else replies - 1)
    for turn in turns:
        if turn.screen is not None:
            if not replied:
                raise RecordRefused(place, turn.field, "two screens without a reply between them")
            screen, replied, acted, answered, words = turn.screen, False, False, False, []
        acted = acted or (turn.role == "tool" and answered)
        if turn.role == "user" and turn.text.strip() and not instruction:
            instruction = turn.text
        elif turn.role == "assistant":
            replied = True
            if screen is not None:
                number, step = len(steps), ExchangedStep(screen, text=turn.text)
                if number not in texts:
                    step = _read(turn, screen, unit, place, strict=number not in earlier)
                step = replace(step, thought=step.thought or turn.thought)
                acts = turn.calls or bool(step.actions) or holds_call(turn.text)
                context = turn.masked or turn.given or acted or (answered and not acts)
                steps.append(_context(step) if context else step)
                if acts and not context:
                    for at in words:
                        steps[at] = _context(steps[at])
                if not acts and not context:
                    words.append(len(steps) - 1)
                answered = answered or acts
                acted = acted or (acts and not turn.masked)
    instructed(instruction, place, _field(turns))
    if not replied:
        raise RecordRefused(place, _field(turns), "a screen without a reply")
    return instruction, steps


def _replies(turns: Sequence[ChatTurn]) -> int:
    """Count the replies to the screens of a chat."""
    first = next((at for at, one in enumerate(turns) if one.screen is not None), len(turns))
    return sum(one.role == "assistant" for one in turns[first:])


def _read(turn: ChatTurn, screen: Picture, unit: str, place: RecordPlace, strict: bool) -> ExchangedStep:
    """Read a reply; one to an earlier screen of an exported row, whose own row has its facts, is never refused."""
    try:
        return read_reply(turn.text, screen, unit, place, turn.field)
    except RecordRefused as outside:
        if strict:
            raise
        return ExchangedStep(screen, text=turn.text, error=outside.problem)


def _context(step: ExchangedStep) -> ExchangedStep:
    return replace(step, about=step.about.model_copy(update={"target": False}))


def _field(turns: Sequence[ChatTurn]) -> str:
    return turns[0].field.partition(".")[0] if turns else "messages"


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A row of a trajectory, whose own step is the last step of `record`."""

    record: Exchanged
    key: str
    """Identity of the row's trajectory."""
    step: int
    """Number of the row's step."""
    copied: bool = False
    """Whether the whole trajectory is elsewhere in the same export."""


def joined(rows: Iterator[tuple[RecordPlace, ChatRow | RecordRefused]]) -> Read:
    """Joins consecutive rows to trajectories, with each row's own step. A row without its predecessors is a separate
    trajectory of the steps in its chat, and only the last of them is a target."""
    place, held, wholes = RecordPlace(""), None, Wholes()
    for at, part in rows:
        if isinstance(part, RecordRefused):
            yield at, part
            continue
        if part.copied:
            if missing := wholes.missing(part.record, at):
                yield at, missing
            continue
        if held is not None and part.key == held.key and part.step == held.step + 1 == len(held.record.steps):
            steps = (*held.record.steps, part.record.steps[-1])
            decided = (*held.record.decided, *part.record.decided)
            record = replace(held.record, steps=steps, after=part.record.after, decided=decided)
            held = ChatRow(record, held.key, part.step)
        else:
            if held is not None:
                yield place, held.record
            place, held = at, replace(part, record=_from(part.record, part.step))
        wholes.add(held.record)
    if held is not None:
        yield place, held.record


def _from(record: Exchanged, step: int) -> Exchanged:
    """Makes the record of a row of step `step` without the rows before it; its earlier steps are context."""
    last = len(record.steps) - 1
    if step <= last:
        return record
    replayed = max(last, min(record.about.replayed - (step - last), last + 1))
    return replace(record, about=record.about.model_copy(update={"replayed": replayed}))


def record_of(
    name: str,
    instruction: str,
    steps: Sequence[ExchangedStep],
    known: Metadata | None,
    kept: Extra,
    place: RecordPlace,
    decided: Sequence[ImportedReview] = (),
    exact: bool = False,
) -> Exchanged:
    """Makes the trajectory of a row with its metadata; for a row of one step, the metadata belongs to the row's last
    step.

    Args:
        name: name of the format. instruction, steps: content of the row.
        known: value of `flywheel`.
        kept: other data of the row.
        place: file and line of the row.
        decided: reviewers' decisions on the trajectory.
        exact: whether the format keeps texts exactly; other formats break tokens in texts
            (`curation.converters.tokens`).

    Raises:
        Refused: the metadata has more or fewer steps.
    """
    called = known.trajectory.trajectory_id if known else ""
    extra = {name: kept} if kept else {}
    record = Exchanged(called, instruction, tuple(steps), decided=tuple(decided), extra=extra)
    record = record if known is None or exact else from_export(record)
    if known is None or known.step is None or not steps:
        return with_metadata(record, known, place)
    own = with_metadata(replace(record, steps=record.steps[-1:]), known, place).steps
    whole = with_metadata(record, known.model_copy(update={"steps": []}), place)
    return replace(whole, steps=(*whole.steps[:-1], *own))


def row_of(
    name: str, instruction: str, steps: Sequence[ExchangedStep], known: Metadata | None, kept: Extra, place: RecordPlace
) -> ChatRow:
    """Make the row of a trajectory; the arguments are as in `record_of`."""
    copied = known is not None and known.copied
    return ChatRow(record_of(name, instruction, steps, known, kept, place), *key_of(known, place), copied)


def key_of(known: Metadata | None, place: RecordPlace) -> tuple[str, int]:
    """Returns the identity of a row's trajectory, and the number of its step."""
    if known is None or known.step is None or not known.trajectory.trajectory_id:
        return f"{place.file}:{place.line}", 0
    return f"{known.trajectory.lake}/{known.trajectory.trajectory_id}", known.step
