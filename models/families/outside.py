"""Keeps text from outside (instructions, thoughts, page text, typed text, imported records) text for every tokenizer.

A special token such as `<|im_end|>` is a control code where the chat template writes it and plain text anywhere else.
`marked` puts a variation selector behind the first character of everything that has the form of such a token, so that
neither a chat template, nor a processor that looks for its picture placeholders, nor a tokenizer takes it for one.
Our tokenizers delete the selector again after they have looked for tokens and before they split text (`as_text`), so
the ids are those of the text itself (`split_special_tokens`). A server has its own tokenizer: it is sent the text with
a zero-width space in that place (`sent`), and what a server acts on is trained on in the same form.
"""

import json
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.action import Action
from schemas.config.sections import PolicyConfig

if TYPE_CHECKING:
    from models.families.prompt import Message

SELECTOR = "\U000e01ef"
"""Variation selector 256: printable for `repr` and `json`, and without meaning behind a bracket."""
ZERO_WIDTH = "\u200b"
_OPENERS = "<["
_TOKEN = re.compile(r"<(?=[^\s<>\U000e01ef]{1,80}>)|\[(?=/?[A-Z_]{2,40}\])")
"""The first character of what may be a token: `<|im_end|>`, `</s>`, `<tool_call>`, `[INST]`, `[/INST]`."""
_NAMES = re.compile(r"<[^\s<>\U000e01ef]{1,80}>|\[/?[A-Z_]{2,40}\]")
_MARKED = re.compile(r"<\U000e01ef([^\s<>]{1,80}>)|\[\U000e01ef(/?[A-Z_]{2,40}\])")

_THINKS = re.compile(r"\A\s*<\U000e01efthink>")
_THOUGHT = re.compile(r"<\U000e01ef/think>(?=[ \t]*(?:\n|\Z|<tool_call>))")


def names_in(text: str) -> frozenset[str]:
    """Everything in a text that has the form of a token."""
    return frozenset(_NAMES.findall(text))


def marked(text: str, markup: Collection[str] = ()) -> str:
    """Marks everything that has the form of a token; a marked text stays as it is.

    Args:
        text: from outside.
        markup: tokens that are left alone, since whoever wrote the text writes them as tokens.
    """
    if not any(opener in text for opener in _OPENERS):
        return text
    if not markup:
        return _TOKEN.sub(lambda found: found[0] + SELECTOR, text)
    return _NAMES.sub(lambda found: found[0] if found[0] in markup else found[0][0] + SELECTOR + found[0][1:], text)


def opened(reply: str) -> str:
    """A marked reply with the tokens of a model that thinks first: `<think>` where it begins, and the last `</think>`
    that ends a line or stands before a tool call."""
    reply = _THINKS.sub(lambda found: unmarked(found[0]), reply)
    ends = list(_THOUGHT.finditer(reply))
    if not ends:
        return reply
    last = ends[-1]
    return reply[: last.start()] + unmarked(last[0]) + reply[last.end() :]


def unmarked(text: str) -> str:
    """The text itself."""
    for opener in _OPENERS:
        text = text.replace(opener + SELECTOR, opener)
    return text


def marked_action(action: Action) -> Action:
    """The action with its texts marked; the same object where none has the form of a token."""
    fields = {name: value for name, value in action.model_dump(exclude={"type"}).items() if isinstance(value, str)}
    changed = {name: marked(value) for name, value in fields.items() if marked(value) != value}
    return action.model_copy(update=changed) if changed else action


def marked_chat(chat: "Sequence[Message]") -> "list[Message]":
    """A chat whose texts are all marked: one that holds nothing that is to be read as a token."""
    return [_with_texts(message, marked) for message in chat]


def sent(chat: "Sequence[Message]", tokens: Collection[str]) -> "list[Message]":
    """A chat as a server of a checkpoint is sent it: a zero-width space in each marked token that the checkpoint has.

    Args:
        chat: with marked texts.
        tokens: the checkpoint's (`tokens_of`); where none is known, every marked text is taken for one.
    """

    def broken(text: str) -> str:
        def one(found: re.Match[str]) -> str:
            opener, rest = found[0][0], found[0][2:]
            return f"{opener}{ZERO_WIDTH if not tokens or opener + rest in tokens else ''}{rest}"

        return unmarked(_MARKED.sub(one, text))

    return [_with_texts(message, broken) for message in chat]


def as_sent(chat: "Sequence[Message]", directory: Path, policy: PolicyConfig) -> "Sequence[Message]":
    """A chat as the policy of a checkpoint is asked it: as a server is sent it where a server runs the policy."""
    return sent(chat, tokens_of(directory)) if policy.acts_on_server else chat


def _with_texts(message: "Message", change: Any) -> "Message":
    parts = [{**part, "text": change(part["text"])} if part["type"] == "text" else part for part in message["content"]]
    return {**message, "content": parts}


def as_text(backend: Any) -> None:
    """Has a tokenizer (of `tokenizers`) read marked tokens as text: its normalizer deletes the marks.

    Tokens are looked for in the text as it is given, before it is normalized, so a marked one is not found.
    """
    from tokenizers import normalizers

    unmarking: list[Any] = [normalizers.Replace(opener + SELECTOR, opener) for opener in _OPENERS]
    backend.normalizer = normalizers.Sequence([*unmarking, *([backend.normalizer] if backend.normalizer else [])])


@lru_cache(maxsize=16)
def tokens_of(directory: Path) -> frozenset[str]:
    """The added tokens of a checkpoint, as the files of its tokenizer list them; none where it has no such file."""
    found: set[str] = set()
    for name in ("tokenizer.json", "tokenizer_config.json", "added_tokens.json"):
        path = directory / name
        if not path.is_file():
            continue
        fields = json.loads(path.read_text())
        if name == "tokenizer.json":
            found |= {token["content"] for token in fields.get("added_tokens") or []}
        elif name == "added_tokens.json":
            found |= set(fields)
        else:
            found |= {token["content"] for token in (fields.get("added_tokens_decoder") or {}).values()}
    return frozenset(found)
