"""Splits a reply into thinking and answer: one rule for every family.

Everything up to the last end tag of thinking is thinking, whether its begin tag is in the reply or in the prompt. A
reply with a begin tag and no end tag is only thinking. So no draft of an action is performed, and the thought keeps
every draft. An end tag within a text that the reply's action types or writes is part of that text. A begin tag within a
line is part of the thought.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from models.families.acting import LANGUAGES, names_call
from models.families.outside import SELECTOR, marked, unmarked
from models.families.reading import ParsedReply, finds_call, without_opening

REASONING = ("reasoning_content", "reasoning", "thinking")
"""Fields of a message that hold its thinking: `reasoning_content` of transformers, SGLang, DeepSeek's chats and
axolotl, `reasoning` of vLLM and OpenRouter, `thinking` of Ollama, gpt-oss and templates of some checkpoints."""
_NAME = r"(?:(?:\w{1,40}[:_])?think\w*|(?-i:thought|TINK|THIN))\s*"
_END = re.compile(
    rf"<\s*/{_NAME}>|◁/{_NAME}▷|\[/THINK\]|<channel\|>|<\|END_THINKING\|>|<\|end_of_thought\|>"
    r"|<\|channel\|>final\b[^<>]{0,80}<\|message\|>",
    re.IGNORECASE,
)
"""`</think>`, `</thinking>`, `</thinkt>`, `</think_never_used_...>`, `</seed:think>`, `</longcat_think>`, `</thought>`,
Step-GUI's misspelt `</TINK>` and `</THIN>`; Kimi's, Mistral's, Gemma's, Cohere's, and gpt-oss's change of channel."""
_BEGIN = re.compile(
    rf"< ?{_NAME}>|◁{_NAME}▷|\[THINK\]|<\|channel>thought\b|<\|START_THINKING\|>|<\|begin_of_thought\|>"
    r"|<\|channel\|>(?:analysis|commentary)\b[^<>]{0,80}<\|message\|>",
    re.IGNORECASE,
)
_TAG = re.compile(f"{_BEGIN.pattern}|{_END.pattern}", re.IGNORECASE)
_OPENS = re.compile(rf"^[^\S\n]*+(?:\w{{1,20}}[:：][^\S\n]*+)?(?:{_BEGIN.pattern})", re.MULTILINE | re.IGNORECASE)
"""A begin tag at the start of a line, perhaps after a label; any other is part of a sentence."""
_FIRST = re.compile(rf"\A(\s*)(?:{_BEGIN.pattern})", re.IGNORECASE)
_HEADER = re.compile(
    r"(?:\s*(?:<\|(?:im_start|start_header_id)\|>\s*assistant(?:<\|end_header_id\|>)?|<\|assistant\|>|\[gMASK\]|<sop>))*"
)
"""Header of a turn, as in chat templates; some servers leave it in a reply."""
_MARKUP = re.compile(
    rf"```(?:(?:{LANGUAGES})\b)?|</?(?:tool_call|answer|action|operation|seed:\w+|ref|box|point)>|<\|[\w/]{{1,40}}\|>"
)
"""Markup without words that may follow an action."""
OPEN, CLOSE = "<think>", "</think>"
_MARKED_OPEN, _MARKED_CLOSE = re.compile(rf"\A\s*<{SELECTOR}think>"), f"<{SELECTOR}/think>"
_MOST = 16
"""Maximum end tags that are considered, from a reply's beginning and its end, so that reading takes linear time."""


def split_thinking(text: str) -> tuple[str, str]:
    """Splits a reply after its last end of thinking.

    Returns:
        The thinking without the tags around it (empty if there is none), and the answer; both with their white space.
        Tags within the thinking stay.
    """
    ends = deque(_END.finditer(text), maxlen=1)
    return _split(text, ends[0]) if ends else ("", text)


def _split(text: str, end: re.Match[str]) -> tuple[str, str]:
    return _FIRST.sub(r"\1", text[: end.start()]), text[end.end() :]


def untagged(text: str) -> str:
    """Removes all tags of thinking."""
    return _TAG.sub("", text).strip()


def read_reply(text: str, read: Callable[[str], ParsedReply]) -> ParsedReply:
    """Reads a whole reply: the thinking by this module's rule, and the answer by the grammar of a family.

    Args:
        text: the reply.
        read: reads an answer; its thought is all text before the action.

    Returns:
        The reading. Its thought is the answer's text before the action, or else the thinking. If the grammar has
        thoughts between tags, it is both.
    """
    text = text[header.end() if (header := _HEADER.match(text)) else 0 :]
    thinking, answer, found = _answered(text, read)
    begun = _OPENS.search(answer)
    if begun and (not found.actions or begun.start() < answer.rfind(found.text)):
        return ParsedReply(untagged(text), "", error=f"the reply ends inside its thinking: {answer[-80:]!r}")
    if not answer.strip() and thinking:
        return ParsedReply("", "", error=f"nothing follows the thinking: {text[-80:]!r}")
    inner, after = without_opening(found.thought), untagged(_MARKUP.sub("", found.after))
    if after:
        found = replace(found, unused=(*found.unused, f"text behind the action={after[:80]}"))
    if found.tagged and found.joint and thinking.strip():
        return replace(found, thought=f"{thinking.strip()}{found.joint if inner.strip() else ''}{inner.strip()}")
    if found.tagged:
        return replace(found, thought=(thinking + inner).strip())
    held = found.actions or found.text != answer.strip()  # else the answer has no action, only words
    return replace(found, thought=inner.strip() or (thinking.strip() if held else ""))


def split_reply(reply: str, read: Callable[[str], ParsedReply]) -> tuple[str, str]:
    """Splits a reply, marked or not, into thinking and answer as `read_reply` does.

    Returns:
        The thinking without the tags around it (empty if there is none), and the answer; a reply without thinking is
        the answer, unchanged. Marks stay.
    """
    plain = unmarked(reply)
    start = header.end() if (header := _HEADER.match(plain)) else 0
    answer = _answered(plain[start:], read)[1]
    begin = len(plain) - len(answer)
    ends = deque(_END.finditer(plain, start, begin), maxlen=1)
    if not ends:
        return "", reply
    opened = _FIRST.match(plain[start:])
    places = [*(place for place, character in enumerate(reply) if character != SELECTOR), len(reply)]
    first = places[start + opened.end() if opened else start]
    return reply[first : places[ends[0].start()]], reply[places[begin] :]


def _answered(text: str, read: Callable[[str], ParsedReply]) -> tuple[str, str, ParsedReply]:
    """Splits a reply into thinking and answer, and reads the answer.

    The split is the first end tag for which all end tags in the answer belong to texts that its actions type or write.
    The last end tag always qualifies. An end tag within a complete call of a
    refused answer belongs to that call, too.
    """
    matches = _END.finditer(text)
    ends = [*islice(matches, _MOST // 2), *deque(matches, maxlen=_MOST // 2)]
    starts: list[re.Match[str] | None] = [*([] if ends and _FIRST.match(text) else [None]), *ends]
    for start in starts[:-1]:
        thinking, answer = _split(text, start) if start else ("", text)
        found = read(answer)
        if _types(found, answer, read) or (found.complete and _END.search(found.text)):
            return thinking, answer, found
    thinking, answer = _split(text, last) if (last := starts[-1]) else ("", text)
    return thinking, answer, read(answer)


def _types(found: ParsedReply, answer: str, read: Callable[[str], ParsedReply]) -> bool:
    """Checks whether the texts of the actions hold all end tags in an answer.

    It reads the answer again without its end tags; the count of end tags in the texts must fall by their number.
    Escapes can add end tags to the texts, so the count alone is no proof.
    """
    if not found.actions or not found.closed or not found.text:
        return False
    begin, ends = answer.rfind(found.text), list(_END.finditer(answer))
    opened = _OPENS.search(answer)
    if ends[0].start() < begin or (opened and opened.start() < begin):
        return False
    return _typed_ends(found) - _typed_ends(read(_END.sub("?", answer))) == len(ends)


def _typed_ends(found: ParsedReply) -> int:
    """Counts the end tags in the texts of actions."""
    fields = (value for action in found.actions for value in action.model_dump(exclude={"type"}).values())
    return sum(len(_END.findall(value)) for value in fields if isinstance(value, str))


def opened(before: str) -> str:
    """Replaces a marked text's tags by the tokens of a model that thinks first.

    The tags are a `<think>` at the text's beginning, and a `</think>` that is its last end of thinking.
    """
    before = _MARKED_OPEN.sub(lambda found: unmarked(found[0]), before)
    ends, at = _END.findall(unmarked(before)), before.rfind(_MARKED_CLOSE)
    if not ends or ends[-1] != CLOSE or at < before.rfind(CLOSE):
        return before
    return before[:at] + CLOSE + before[at + len(_MARKED_CLOSE) :]


def between(thought: str) -> str:
    """Writes a thought between tags, as a reply begins with it."""
    return f"{OPEN}\n{thought}\n{CLOSE}\n"


def readable(thought: str, bare: str, forms: Sequence[Callable[[str], str]], read: Callable[[str], ParsedReply]) -> str:
    """Writes a reply whose thought is read back unchanged, whatever the thought holds.

    Args:
        thought: the thought; marked markup in it counts as unmarked, as a model would write it.
        bare: the reply without a thought.
        forms: forms of a reply with its thought, the usual form first; the last form has the thought between tags.
        read: reads an answer.

    Returns:
        The reply in the first form that is read back to the same actions and thought. If there is none, the last form,
        with brackets in place of the angle brackets of each thinking tag in the thought.
    """
    if not thought:
        return bare
    meant, plain = read_reply(unmarked(bare), read).actions, unmarked(thought).strip()
    for form in forms:
        reply = form(thought)
        found = read_reply(unmarked(reply), read)
        if found.actions == meant and (not meant or found.thought == plain):
            return reply
    broken = _TAG.sub(lambda tag: f"({tag[0][1:-1]})", plain)
    return forms[-1](broken if thought == unmarked(thought) else marked(broken))


def holds_call(reply: str) -> bool:
    """Checks in linear time whether a reply has a call after its thinking, even of an unknown action; never raises."""
    answer = split_thinking(reply)[1]
    return finds_call(answer) or names_call(answer)
