"""Makes every tokenizer read text from outside as text, never as special tokens.

Such text is in instructions, thoughts, pages, typed text and imported records.

A special token such as `<|im_end|>` is a control code where the chat template writes it and plain text anywhere else.
`marked` puts a variation selector after the first character of everything that may be such a token. These are all texts
of a token's general form, and the checkpoint's added tokens if they are known. So no chat template, processor or
tokenizer takes the text for a token. A token that holds a selector is text, whatever its source. So text from outside
can use a selector to write text, but never to write a token.

This project's tokenizers look for tokens first, then delete the selectors, then split the text (`as_text`). So the ids
are those of the text itself (`split_special_tokens`). A server has its own tokenizer, so it receives a zero-width space
in each such token (`sent`). Training on steps of a served model uses the same form.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.text import TOKEN_FORMS, ZERO_WIDTH, mapped_json
from schemas.action import Action
from schemas.config.policy import PolicyConfig

if TYPE_CHECKING:
    from models.families.prompt import Message

SELECTOR = "\U000e01ef"
"""Variation selector 256: printable for `repr` and `json`, and without meaning behind a bracket."""
REASONED = "reasoning_content"
"""Field of a past turn with its thinking, for a chat template that takes it from there."""
_FORM = re.compile("|".join(TOKEN_FORMS))
_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Files in which a checkpoint lists its added tokens."""


def names_in(text: str, tokens: Collection[str] = ()) -> frozenset[str]:
    """Finds everything in a text that may be a token; tokens may overlap.

    Args:
        text: any text; its marked parts are no tokens.
        tokens: the checkpoint's own (`tokens_of`), if known.
    """
    return frozenset(found[1] for found in _starts(frozenset(tokens)).finditer(text))


def marked(text: str, markup: Collection[str] = (), tokens: Collection[str] = ()) -> str:
    """Marks everything that may be a token; a marked text is unchanged.

    Args:
        text: text from outside. Its selectors are deleted first, except with `markup`, since the text then has marked
            parts.
        markup: tokens that stay unmarked, since the text's author writes them as tokens.
        tokens: the checkpoint's own (`tokens_of`), if known.
    """
    text = text if markup else unmarked(text)
    return _starts(frozenset(tokens)).sub(
        lambda found: found[0] if found[1] in markup else found[0] + SELECTOR,
        text,
    )


@lru_cache(maxsize=16)
def _starts(tokens: frozenset[str]) -> re.Pattern[str]:
    """Builds a pattern of the first characters of tokens: one match at each, with the whole token as its group 1.

    Tokens of the general form need no alternative of their own.
    """
    others = sorted((token for token in tokens if not _FORM.fullmatch(token)), key=len, reverse=True)
    return re.compile(f"(?=({'|'.join([*map(re.escape, others), *TOKEN_FORMS])})).", re.DOTALL)


def unmarked(text: str) -> str:
    """Removes the marks."""
    return text.replace(SELECTOR, "")


def marked_action(action: Action, tokens: Collection[str] = ()) -> Action:
    """Marks the texts of an action; returns the same object if nothing in it may be a token."""

    def mark(value: Any) -> Any:
        return marked(value, tokens=tokens) if isinstance(value, str) else value

    fields = action.model_dump(exclude={"type"})
    changed = {name: new for name, value in fields.items() if (new := mapped_json(value, mark)) != value}
    return action.model_copy(update=changed) if changed else action


def marked_chat(chat: "Sequence[Message]", tokens: Collection[str] = ()) -> "list[Message]":
    """Marks all texts of a chat, so that nothing in it is read as a token."""
    return [_with_texts(message, lambda text: marked(text, tokens=tokens)) for message in chat]


def sent(chat: "Sequence[Message]", tokens: Collection[str]) -> "list[Message]":
    """Converts a chat for the server of a checkpoint: a zero-width space in each token that holds a selector.

    Args:
        chat: a chat with marked texts.
        tokens: the checkpoint's own (`tokens_of`); if unknown, every text of the general form counts as a token.
    """
    known = frozenset(tokens)

    def broken(text: str) -> str:
        if SELECTOR not in text:
            return text
        plain, at = unmarked(text), set(accumulate(len(piece) for piece in text.split(SELECTOR)[:-1]))

        def one(found: re.Match[str]) -> str:
            holds = any(place in at for place in range(found.start() + 1, found.end(1)))
            return found[0] + (ZERO_WIDTH if holds and (not known or found[1] in known) else "")

        return _starts(known).sub(one, plain)

    return [_with_texts(message, broken) for message in chat]


def as_sent(chat: "Sequence[Message]", directory: Path, policy: PolicyConfig) -> "Sequence[Message]":
    """Converts a chat into the prompt of a checkpoint's policy: as `sent` does if a server runs the checkpoint."""
    return sent(chat, tokens_of(directory)) if policy.acts_on_server else chat


def _with_texts(message: "Message", change: Any) -> "Message":
    parts = [{**part, "text": change(part["text"])} if part["type"] == "text" else part for part in message["content"]]
    thinking = {REASONED: change(message[REASONED])} if REASONED in message else {}
    return {**message, "content": parts, **thinking}


def as_text(backend: Any) -> None:
    """Makes a tokenizer (of `tokenizers`) read marked tokens as text: its normalizer deletes the marks.

    A tokenizer looks for some added tokens in the given text. It looks for `normalized` added tokens in its
    normalizer's output, where marks are gone. So `normalized` tokens are registered again without that option, with
    their ids.
    """
    from tokenizers import AddedToken, normalizers

    for token in backend.get_added_tokens_decoder().values():
        if token.normalized:
            kinds = {"single_word": token.single_word, "lstrip": token.lstrip, "rstrip": token.rstrip}
            add = backend.add_special_tokens if token.special else backend.add_tokens
            add([AddedToken(token.content, **kinds, normalized=False, special=token.special)])
    unmarking = normalizers.Replace(SELECTOR, "")
    backend.normalizer = normalizers.Sequence([unmarking, *([backend.normalizer] if backend.normalizer else [])])


@lru_cache(maxsize=16)
def tokens_of(directory: Path) -> frozenset[str]:
    """Lists the added tokens of a checkpoint from the files of its tokenizer; none if it has no such file.

    White space, plain words that are not special, and single characters (which cannot be split) count as text.
    """
    found = dict[str, bool]()
    for path in (directory / name for name in _FILES):
        if path.is_file():
            for content, special in _listed(path.name, json.loads(path.read_text())):
                found[content] = special or found.get(content, False)
    return frozenset(content for content, special in found.items() if _controls(content, special))


def _listed(file: str, fields: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yields the added tokens in a file of a tokenizer, and whether each is special."""
    if file == "added_tokens.json":
        yield from ((content, False) for content in fields)
        return
    listed = [*(fields.get("added_tokens") or []), *(fields.get("added_tokens_decoder") or {}).values()]
    yield from ((token["content"], bool(token.get("special"))) for token in listed)
    for key, value in fields.items():
        if key.endswith(("_token", "_special_tokens")):
            values = value.values() if isinstance(value, dict) and "content" not in value else value
            for token in values if isinstance(values, Iterable) and not isinstance(values, str | dict) else [values]:
                content = token.get("content") if isinstance(token, dict) else token
                if isinstance(content, str):
                    yield content, True


def _controls(content: str, special: bool) -> bool:
    """Checks whether an added token must be marked."""
    plain = all(one.isalnum() or one.isspace() for one in content)
    return len(content) > 1 and not content.isspace() and (special or not plain)
