"""Corrects a server's reply by the chat template of its checkpoint.

It is separate from `models.serving.replies` because it needs transformers.
"""

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from common.text import storable
from models.families.thinking import OPEN as BEGIN_THINKING
from models.families.thinking import split_thinking
from models.serving.replies import TEXT, THOUGHT, UNREAD, ServedReply


def settled(choice: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Returns the choice with its reply corrected by the checkpoint's chat template.

    The server loses the text behind an unparsed call, which may hold the end of thinking. If the template mentions
    thinking and the reply may not have ended it, only the text before the calls is kept. If the prompt opens the
    thinking and the thinking is known to have no end, the opening tag of that text is removed, too.
    """
    reply: ServedReply = choice["reply"]
    text = reply.text
    ended = THOUGHT in reply.kinds or split_thinking(reply.before)[1] != reply.before
    if UNREAD in reply.kinds and not ended and BEGIN_THINKING in _template(checkpoint):
        text = reply.before
    elif reply.kinds == {THOUGHT} and reply.unended and _opens_thinking(_template(checkpoint)):
        text = text.removeprefix(BEGIN_THINKING).removeprefix("\n")
        reply = replace(reply, text=text, kinds=reply.kinds | {TEXT})
    return choice if text == choice["reply"].text else {**choice, "text": storable(text), "reply": reply}


def _template(checkpoint: Path) -> str:
    """Returns the first chat template in a checkpoint's files; empty if there is none."""
    found = list[Any]()
    for name in ("chat_template.jinja", "chat_template.json", "tokenizer_config.json"):
        try:
            text = (checkpoint / name).read_text(encoding="utf-8")
            given = text if name.endswith("jinja") else json.loads(text).get("chat_template")
        except (OSError, ValueError, AttributeError):
            continue
        found += [one.get("template") for one in given if isinstance(one, dict)] if isinstance(given, list) else [given]
    return next((one for one in found if isinstance(one, str)), "")


@lru_cache(maxsize=4)
def _opens_thinking(template: str) -> bool:
    """Checks whether a chat template ends its prompt with the beginning of thinking, by rendering it."""
    from transformers.utils.chat_template_utils import render_jinja_template

    for content in ([{"type": "text", "text": "Hi"}], "Hi"):
        chat = [{"role": "user", "content": content}]
        try:
            rendered = render_jinja_template(conversations=[chat], chat_template=template, add_generation_prompt=True)
        except Exception:  # a template may raise anything
            continue
        return rendered[0][0].rstrip().endswith(BEGIN_THINKING)
    return False
