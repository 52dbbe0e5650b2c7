"""Rebuilds a policy's reply from the fields that a server's parsers split it into.

A server that parses thinking (`--reasoning-parser` of vLLM and SGLang) or tool calls moves them out of a message's
`content`. `transformers serve` does this for every Qwen model, with any flags and any request. If it cannot parse a
tool call, it answers 500; a stream then holds the text before the call, and the unparsed text. The rebuilt reply has
the form that the families write and read (`models.families.thinking`, `models.families.tools`).

Source: transformers 5.24.0, `cli/serving/utils.py` (`_RESPONSE_TEMPLATE_FALLBACKS`, `parse_assistant_message`,
`response_events_to_chunks`), `cli/serving/chat_completion.py`, `utils/chat_parsing`.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from models.families.thinking import CLOSE as END_THINKING
from models.families.thinking import OPEN as BEGIN_THINKING
from models.families.thinking import REASONING
from models.families.tools import CLOSE, OPEN

THOUGHT, TEXT, CALLED, UNREAD = "thought", "text", "called", "unread"
STREAMED = "pieces"
"""Field of a streamed message that holds its pieces."""
Piece = tuple[str, Any]
_UNPARSED = re.compile(r"json: could not parse|json parser could not parse")
_NOT_A_CALL = re.compile(r"'(?:function|name|arguments)'|.*\bindices must be |.*object is not subscriptable")
"""The parser's message for a tool call that is JSON but no call."""
_ENDS = ("<|im_end|>", "<|endoftext|>")
"""Marks of the end of a turn. A stream of `transformers serve` has such a mark in thinking without an end tag."""
_CONTENT = re.compile(r"^(?:Content|Original): (.*)$", re.MULTILINE)
_ERROR = 'data: {"error": "'


@dataclass(frozen=True, slots=True)
class ServedReply:
    """A policy's reply.

    Args:
        text: the whole reply.
        kinds: kinds of the fields that the server split it into.
        ordered: whether the reply is known to be whole and in order. `transformers serve` without a stream keeps only
            the last thinking and the last text of a reply that it splits.
        unended: whether the thinking is known to have no end tag.
        before: the text before the first call.
    """

    text: str
    kinds: frozenset[str]
    ordered: bool = True
    unended: bool = False
    before: str = ""

    @property
    def split(self) -> bool:
        """Whether a server moved parts out of the message's content."""
        return bool(self.kinds - {TEXT})


def reply_of(message: Mapping[str, Any]) -> ServedReply:
    """Rebuilds a message's reply: its thinking, its content, then its calls.

    Raises:
        KeyError: the message has none of these fields.
    """
    pieces = message[STREAMED] if STREAMED in message else list(_pieces(message))
    if not pieces and STREAMED not in message:
        message["content"]  # raises KeyError, since every message has this field
    kinds = frozenset(kind for kind, _ in pieces)
    before = list(takewhile(lambda piece: piece[0] not in (CALLED, UNREAD), pieces))
    unended = STREAMED in message and bool(pieces) and pieces[-1][0] == THOUGHT and _ends_turn(pieces[-1][1])
    return ServedReply(_written(pieces), kinds, STREAMED in message or kinds <= {TEXT}, unended, _written(before))


def content_of(message: Mapping[str, Any]) -> ServedReply:
    """Returns the content of a message as a reply, without its thinking and calls.

    Raises:
        KeyError: the message has no content, thinking or calls.
    """
    taken = any(message.get(field) for field in (*REASONING, "tool_calls"))
    return ServedReply((message.get("content") if taken else message["content"]) or "", frozenset((TEXT,)))


def streamed(body: str) -> dict[str, Any]:
    """Builds the completion of a stream of events, with its pieces in order.

    An unparsed tool call ends the stream; the server's error message holds the rest of the reply. `failure` holds the
    message of any other error that ended it.
    """
    pieces, ended, usage = list[Piece](), None, None
    events, marker, failure = body.partition(_ERROR)
    for line in events.split("\n"):
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        chunk = json.loads(line.removeprefix("data: "))
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():
            pieces += _pieces(choice.get("delta") or {})
            ended = choice.get("finish_reason") or ended
    if marker:
        failure = failure.strip().removesuffix('"}')
        unread = _unparsed_call(failure)
        if unread is None:
            return {"failure": failure}
        pieces.append((UNREAD, unread))
    elif ended is None:
        return {"failure": "the stream ended before its last event"}
    message = {"role": "assistant", "content": None, STREAMED: pieces}
    return {"choices": [{"message": message, "finish_reason": ended or "stop"}], "usage": usage}


def _unparsed_call(failure: str) -> str | None:
    """Returns the text of an unparsed tool call (empty if the error lacks it); None for any other failure."""
    if _UNPARSED.match(failure):
        try:
            return str(ast.literal_eval(found[1])) if (found := _CONTENT.search(failure)) else ""
        except (ValueError, SyntaxError):
            return ""
    return "" if _NOT_A_CALL.match(failure) else None


def _pieces(message: Mapping[str, Any]) -> Iterator[Piece]:
    """Yields the pieces of a message or a delta, in the model's order."""
    if thought := next((message[field] for field in REASONING if message.get(field)), ""):
        yield THOUGHT, thought
    if message.get("content"):
        yield TEXT, message["content"]
    for call in message.get("tool_calls") or ():
        yield CALLED, call["function"]


def _written(pieces: list[Piece]) -> str:
    """Joins pieces to a reply, with the server's white space, or the families' if the server removed it."""
    written, end, closes = list[str](), "", False

    def add(*texts: str) -> None:
        nonlocal end
        for text in filter(None, texts):
            written.append(text)
            end = text[-1]

    for kind, together in groupby(pieces, key=lambda piece: piece[0]):
        values = [value for _, value in together]
        if kind == THOUGHT:
            thought = _without_end("".join(values))
            add(BEGIN_THINKING, "" if thought[:1] == "\n" else "\n", thought)
            closes = True
            continue
        if closes:
            add("" if end == "\n" else "\n", END_THINKING)
            closes = False
        texts = ["".join(values)] if kind == TEXT else [_call(kind, value) for value in values]
        for text in texts:
            add("\n" if end and not (end == "\n" or text[:1] == "\n") else "", text)
    return "".join(written)


def _ends_turn(thought: str) -> bool:
    return thought.rstrip().endswith(_ENDS)


def _without_end(thought: str) -> str:
    """Removes all ends of a turn from the end of a thought, with the white space behind each."""
    at = end = len(thought)
    while True:
        while end and thought[end - 1].isspace():
            end -= 1
        mark = next((one for one in _ENDS if thought.endswith(one, 0, end)), "")
        if not mark:
            return thought[:at]
        at = end = end - len(mark)


def _call(kind: str, value: Any) -> str:
    """Writes a tool call as the families do; an unparsed call is kept verbatim."""
    if kind == UNREAD:
        return f"{OPEN}{value}{CLOSE}"
    given = value.get("arguments")
    try:
        given = json.loads(given) if isinstance(given, str) else given
        arguments = json.dumps(given, ensure_ascii=False)
    except ValueError:
        arguments = given
    return f'{OPEN}\n{{"name": {json.dumps(value.get("name"), ensure_ascii=False)}, "arguments": {arguments}}}\n{CLOSE}'


@lru_cache(maxsize=4)
def _tokenizer(file: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))


def decoded(directory: Path, ids: list[int]) -> str | None:
    """Decodes a reply's tokens by the checkpoint's tokenizer; None without tokens or a `tokenizer.json`."""
    file = directory / "tokenizer.json"
    return _tokenizer(file).decode(ids, skip_special_tokens=True) if ids and file.is_file() else None
