"""Read one reply of cua-lite: an assistant message with tool calls, or with a text alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from common.text import Storable, strict_json
from curation.converters.cua_lite.calls import Call
from curation.converters.cua_lite.reading import NotAnAction, OutOfRange, PointerAt, read_call
from curation.converters.files import OpenModel, fields_of
from schemas.action import Action, action_of

DONE = "Done."
"""Text of a last reply that only ends the trajectory."""
REASONING, DESCRIPTION = "inline_reasoning", "action_description"
PARTS = ("text", DESCRIPTION, REASONING, "history_summary", "metadata")
"""Types of parts of an assistant message."""
STATUS, REASON = "terminate_status", "terminate_reason"
"""Fields of `metadata.others` of a trajectory that the actor ended as a failure."""


class _Function(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[Storable, Field(min_length=1)]
    arguments: dict[str, Any]


class _ToolCall(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: Storable
    type: Literal["function"]
    function: _Function


class LiteReply(OpenModel):
    """An assistant message."""

    role: Literal["assistant"]
    content: list[dict[str, Any]] | None = None
    reasoning_content: Storable | None = None
    tool_calls: list[_ToolCall] | None = None


@dataclass(frozen=True, slots=True)
class LiteRead:
    """A reply as it is read."""

    actions: tuple[Action, ...]
    thought: str
    text: str
    error: str | None
    pointer: PointerAt
    counts: tuple[tuple[bool, ...], ...]
    """For each call, whether each of its actions has an effect."""


def read_reply(reply: LiteReply, where: str, pointer: PointerAt, ending: Mapping[str, Any] | None) -> LiteRead:
    """Read a reply.

    Args:
        reply: the message. where: its field. pointer: the pointer's place before it.
        ending: the sample's `others` for the last reply, which may only end the trajectory; None for any other.

    Raises:
        OutOfRange: a coordinate is outside of the screen.
    """
    parts = reply.content or []
    texts = {kind: "\n".join(str(one.get("text", "")) for one in parts if one.get("type") == kind) for kind in PARTS}
    thought = reply.reasoning_content or texts[REASONING] or texts[DESCRIPTION]
    if not reply.tool_calls:
        text = texts["text"]
        if ending is None:
            return LiteRead((), thought, text, None, pointer, ())
        said = "" if text == DONE else text
        failed = ending.get(STATUS) not in (None, "success")
        content = str(ending.get(REASON) or said) if failed else said
        action = action_of({"type": "call_user" if failed else "finished", "content": content})
        return LiteRead((action,), thought, "", None, pointer, ())
    actions, counts = list[Action](), list[tuple[bool, ...]]()
    try:
        for number, call in enumerate(reply.tool_calls):
            field_of = f"{where}.tool_calls.{number}.function.arguments"
            made, pointer = read_call(call.function.name, call.function.arguments, field_of, pointer)
            actions += [one for one in made if one is not None]
            counts.append(tuple(one is not None for one in made))
    except NotAnAction as error:
        return LiteRead((), thought, _calls_text(reply), str(error), None, ())
    if not actions:
        return LiteRead((), thought, _calls_text(reply), "no action: only screenshots", pointer, ())
    return LiteRead(tuple(actions), thought, "", None, pointer, tuple(counts))


def _calls_text(reply: LiteReply) -> str:
    return strict_json([one.function.model_dump() for one in reply.tool_calls or ()], ensure_ascii=False)


def named_call(call: Any) -> Call:
    """Return the name and the arguments of a tool call."""
    function = fields_of(fields_of(call).get("function"))
    return str(function.get("name", "")), fields_of(function.get("arguments"))


def is_same(calls: Sequence[Any], actions: Sequence[Action], pointer: PointerAt) -> bool:
    """Whether calls are read as these actions."""
    found = list[Action | None]()
    try:
        for call in calls:
            made, pointer = read_call(*named_call(call), "", pointer)
            found += made
    except (NotAnAction, OutOfRange):
        return False
    return tuple(one for one in found if one is not None) == tuple(actions)
