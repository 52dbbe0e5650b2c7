"""Write trajectories as cua-lite's samples: chats with tool calls, and their metadata.

A reply is one assistant message. Its screens follow in tool messages, one for each call: the screens after its actions,
as far as they are known. A last reply that only ends the trajectory is a text, `Done.` or the answer. Values without a
place are in `metadata.others.flywheel`; actions and texts that a reader would not get back are in its `exact`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import ValidationError

from curation.converters.cua_lite.calls import Call, Platform, schemas_of, write_calls
from curation.converters.cua_lite.questions import KEPT, TOOLS, question_rows
from curation.converters.cua_lite.reading import OutOfRange, PointerAt
from curation.converters.cua_lite.replies import (
    DONE,
    REASON,
    REASONING,
    STATUS,
    LiteReply,
    is_same,
    named_call,
    read_reply,
)
from curation.converters.cua_lite.samples import NO_SCREEN
from curation.converters.exchanged import OWN, Exchanged, ExchangedStep, Picture, metadata_of
from curation.converters.files import fields_of, items_of
from curation.converters.tokens import for_trainers
from schemas.action import TERMINAL, Action, to_json

EMPTY = "(no text)"
"""Text of a reply without one."""
PHONE = ("press_home", "press_back", "press_enter", "press_menu", "press_recent", "open_app", "long_press")
"""Actions that only a phone has."""
WEB = ("navigate", "navigate_back")


@dataclass(frozen=True, slots=True)
class WrittenSample:
    """A row."""

    images: list[Picture]
    messages: list[dict[str, Any]]
    metadata: dict[str, Any]
    folded: tuple[tuple[list[dict[str, Any]], dict[str, Any]], ...] = ()
    """Messages and metadata of each sample that shares the image, if the row stands for several."""

    @property
    def dims(self) -> tuple[str, str]:
        """Platform and type of task."""
        return tuple(self.metadata["dims"])


class SampleWriter:
    """Writes samples, and counts the steps that became text.

    Args:
        unit: unit of written coordinates.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self.as_text = 0
        """Number of steps with actions that have no call."""

    def samples(self, record: Exchanged) -> Iterator[WrittenSample]:
        """Yield the sample of a trajectory, if it has replies, and a sample for each question about a place."""
        kept = fields_of(record.extra.get(KEPT))
        dims = fields_of(kept.get("metadata")).get("dims") or [_platform(record), "use"]
        asks = dims[1] in TOOLS
        if not asks:
            yield self.sample(record)
        asked = question_rows(for_trainers(record), kept if asks else {}, cast(Platform, dims[0]))
        for step, messages, metadata in asked:
            yield WrittenSample([record.steps[step].screen], messages, metadata)

    def sample(self, record: Exchanged) -> WrittenSample:
        """Return the sample of a trajectory."""
        shown, kept = for_trainers(record), fields_of(record.extra.get(KEPT))
        held = fields_of(kept.get("metadata"))
        dims = held.get("dims") or [_platform(record), "use"]
        chat = _Chat(cast(Platform, dims[0]), [*kept.get("system", [])])
        chat.ask(shown)
        for at, step in enumerate(shown.steps):
            chat.reply(step, shown.steps[at + 1].screen if at + 1 < len(shown.steps) else None, record.after)
        self.as_text += chat.as_text
        others = {**_facts(record), **fields_of(held.get("others")), **_outcome(record), **chat.others}
        own = metadata_of(record, "", self._unit)  # with what is kept of imported samples
        others[OWN] = {**own, "exact": exact} if (exact := chat.exact) else own
        schemas: list[Any] = items_of(held.get("extra_tool_schemas")) or []
        named = {fields_of(fields_of(one).get("function")).get("name") for one in schemas}
        schemas += [one for one in schemas_of(chat.calls) if one["function"]["name"] not in named]
        metadata: dict[str, Any] = {
            "metadata_kind": "cua",
            "dims": [*dims],
            "extra_tool_schemas": schemas,
            "valid_actions": held.get("valid_actions"),
            "others": others,
        }
        return WrittenSample(chat.images, chat.messages, metadata)


PORTRAIT = 1.6
"""Height of a screen, in widths, from which it counts as a phone's: phones begin at 16:9."""


def _platform(record: Exchanged) -> str:
    types = {action.type for step in record.steps for action in step.actions}
    screen = record.steps[0].screen
    phone = types & {*PHONE} or screen.height >= PORTRAIT * screen.width
    return "mobile" if phone else "browser" if types & {*WEB} else "desktop"


def _facts(record: Exchanged) -> dict[str, Any]:
    about, screen = record.about, record.steps[0].screen
    return {
        "id": about.trajectory_id or record.name or record.digest,
        **({"task_id": about.task_id} if about.task_id else {}),
        "resolution": [screen.width, screen.height],
        "source": OWN,
    }


def _outcome(record: Exchanged) -> dict[str, Any]:
    if record.about.reward is not None:
        return {"episode_return": record.about.reward}
    return {} if record.success is None else {"episode_return": float(record.success)}


@dataclass
class _Chat:
    """Messages of a sample that is written."""

    platform: Platform
    messages: list[dict[str, Any]]
    images: list[Picture] = field(default_factory=list[Picture])
    calls: list[Call] = field(default_factory=list[Call])
    others: dict[str, Any] = field(default_factory=dict[str, Any])
    exact: dict[str, Any] = field(default_factory=dict[str, Any])
    """Actions, text and thought of steps that a reader would not get back, by their number."""
    as_text: int = 0
    _places: dict[str, int] = field(default_factory=dict[str, int])
    _pointer: PointerAt = None
    _replies: int = 0

    def ask(self, shown: Exchanged) -> None:
        """Add the user's message."""
        content = [self._image(shown.steps[0].screen), {"type": "text", "text": shown.instruction}]
        self.messages.append({"role": "user", "content": content})

    def reply(self, step: ExchangedStep, following: Picture | None, after: Picture | None) -> None:
        """Add a reply and its results.

        Args:
            step: the step.
            following: the next step's screen; None for the last step.
            after: the screen after the last step.
        """
        kept, last = fields_of(step.extra.get(KEPT)), following is None
        final = last and len(step.actions) == 1 and step.actions[0].type in TERMINAL
        calls = None if final else self._calls(step, kept)
        native = bool(kept.get("native"))
        content = [{"type": REASONING, "text": step.thought}] if step.thought and not native else []
        content += kept.get("content", [])
        message: dict[str, Any] = {"role": "assistant"}
        if calls is None:
            content.append({"type": "text", "text": self._text(step, final)})
        if content:
            message["content"] = content
        if native and step.thought:
            message["reasoning_content"] = step.thought
        if calls is not None:
            message["tool_calls"] = calls
        self.messages.append(message)
        self._keep_exact(step, message, last)
        if calls is not None and not (last and after is None and not step.frames):
            self._results(step, calls, following or after, kept)
            if last:
                self.others["terminated"] = True
        elif calls is None and following is not None:
            self.messages.append({"role": "user", "content": [self._image(following)]})
        self._replies += 1

    def _calls(self, step: ExchangedStep, kept: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Return the reply's calls with their ids; None for a text."""
        given = items_of(kept.get("calls"))
        if given and is_same(given, step.actions, self._pointer):
            self.calls += [named_call(one) for one in given]
            return given
        if not step.actions:
            return None
        written = write_calls(step.actions, self.platform)
        if written is None:
            self.as_text += 1
            return None
        first = len(self.calls)
        self.calls += written
        return [
            {"id": f"call_{first + at:04d}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for at, (name, arguments) in enumerate(written)
        ]

    def _text(self, step: ExchangedStep, final: bool) -> str:
        if final:
            action = step.actions[0]
            said = str(getattr(action, "content", ""))
            if action.type == "call_user":
                self.others |= {STATUS: "failure", **({REASON: said} if said.strip() else {})}
            return said if said.strip() else DONE
        text = step.text or "\n".join(f"{OWN}.{one.type}({_arguments(one)})" for one in step.actions)
        return text if text.strip() else EMPTY

    def _results(
        self, step: ExchangedStep, calls: Sequence[Any], following: Picture | None, kept: Mapping[str, Any]
    ) -> None:
        """Add a tool message for each call, with the known screens after its actions."""
        counts = [len(items_of(named_call(one)[1].get("actions")) or [one]) for one in calls]
        shots = [*step.frames, *[None] * (sum(counts) - 1 - len(step.frames)), following][: sum(counts)]
        texts = items_of(kept.get("results")) or []
        first = 0
        for at, (call, count) in enumerate(zip(calls, counts, strict=True)):
            screens, first = shots[first : first + count], first + count
            if all(one is None for one in screens[:-1]):
                screens = screens[-1:]
            content = [self._image(one) if one else {"type": "text", "text": NO_SCREEN} for one in screens]
            content += [{"type": "text", "text": text} for text in (texts[at] if at < len(texts) else ())]
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    def _image(self, picture: Picture) -> dict[str, Any]:
        place = self._places.setdefault(picture.sha256, len(self.images))
        if place == len(self.images):
            self.images.append(picture)
        return {"type": "image", "index": place}

    def _keep_exact(self, step: ExchangedStep, message: Mapping[str, Any], last: bool) -> None:
        """Keep a step's actions, text and thought where a reader of the message would get others."""
        ending = {STATUS: "failure", REASON: self.others.get(REASON)} if STATUS in self.others else {}
        try:
            read = read_reply(LiteReply.model_validate(message), "", self._pointer, ending if last else None)
        except (OutOfRange, ValidationError):
            read = None
        if read is not None:
            self._pointer = read.pointer
        same = read is not None and (read.actions, read.thought) == (step.actions, step.thought)
        if not same or (not step.action and read is not None and read.text != step.text):
            actions = [*map(to_json, step.actions)]
            self.exact[str(self._replies)] = {"actions": actions, "text": step.text, "thought": step.thought}


def _arguments(action: Action) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in action.model_dump(exclude={"type"}).items())
