"""Reads calls as XML: `<function=NAME>`, a `<parameter=NAME>` for each argument, `</function>`.

UI-TARS-2 and Qwen3.5 write such calls. They differ in the tag around a call, in the arguments that hold any text, and
in the escape of a new line.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

_NEVER = r"(?:_never_used_\w+)?"
"""Suffix of the names of tags that some of UI-TARS-2's servers write."""
_LINES = re.compile(r"\A\n(.*)\n\Z", re.DOTALL)
_MOST_TAGS = 256
"""Maximum tags that are tried as the end of an argument, so that reading takes linear time."""
_BEFORE = 100
"""Maximum white space before a tag that begins a line, in characters."""


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A call by its name."""

    name: str
    arguments: Mapping[str, object]
    end: int = 0
    """End of the call in its block."""
    twice: str = ""
    """Name of an argument that the call has twice."""
    start: int = 0
    closed: bool = True
    """Whether the call's texts are closed as the grammar requires."""


@dataclass(frozen=True, slots=True)
class XmlGrammar:
    """One form of calls as XML.

    Args:
        tag: matches the beginning of a call (`call`) or an argument (`argument`), or an end tag (`closed`).
        ended: matches the text behind the end of an argument; anywhere else, `</parameter>` is part of the argument.
        following: matches the end of a call on a line of its own and the next call, which no text contains.
        texts: arguments that hold any text, white space and tags included.
        by_call: arguments that hold any text, by the names of calls for which they differ from `texts`.
        escapes: whether a written \\n at the end of a text is a new line.
        trims: whether one new line at each end of a text belongs to its tags, even if only one end has one.
    """

    tag: re.Pattern[str]
    ended: re.Pattern[str]
    following: re.Pattern[str]
    texts: frozenset[str]
    escapes: bool
    trims: bool
    by_call: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    def calls(self, text: str, start: int) -> Iterator[NamedCall]:
        """Yields the calls from `start` on, in time that grows with the text's length."""
        call: NamedCall | None = None
        at, ends = start, True
        while tag := self.tag.search(text, at):
            if name := tag["argument"]:
                texts = self.by_call.get(call.name, self.texts) if call else self.texts
                value, at, closed = self._argument(text, tag, name in texts, ends)
                ends = closed or name not in texts
                if call is not None:
                    twice = call.twice or (name if name in call.arguments else "")
                    arguments = {**call.arguments, name: value}
                    call = replace(call, arguments=arguments, end=at, twice=twice, closed=call.closed and closed)
                continue
            at = tag.end()
            if tag["closed"] == "/parameter":
                continue
            ends = ends or bool(tag["closed"])
            if call is not None:
                yield call if tag["call"] else replace(call, end=at)
            call = NamedCall(tag["call"], {}, at, start=tag.start()) if tag["call"] else None
        if call is not None:
            yield replace(call, end=len(text), closed=False)

    def _argument(self, text: str, opened: re.Match[str], is_text: bool, ends: bool) -> tuple[str, int, bool]:
        """Finds the value of an argument, where the text after it begins, and whether its end is written.

        A text ends at the first `</parameter>` before another argument or the call's end; all other tags before it are
        part of the text. Without such a `</parameter>`, the text ends at any `</parameter>` or at a tag that begins a
        line, whichever is first. `ends` is False if the text before it, without an end tag between, has no such
        `</parameter>`, because then this text has none either.
        """
        first, line, beyond = self.tag.search(text, opened.end()), None, False
        if not is_text:
            end = first.start() if first else len(text)
            value, closed = text[opened.end() : end].strip(), first is not None
            return value, end, closed
        for tag in islice(self.tag.finditer(text, opened.end()), _MOST_TAGS):
            if tag["closed"] == "/parameter":
                last = beyond and not text[tag.end() :].strip()
                if not last and self.ended.match(text, tag.end()):
                    return self._value(text[opened.end() : tag.start()], True), tag.start(), True
                line = line or tag
                continue
            before = text[max(opened.end(), tag.start() - _BEFORE) : tag.start()].rstrip(" \t")
            begins = before.endswith("\n")
            line = line or (tag if begins else None)
            beyond = beyond or (begins and tag["closed"] not in (None, "/function"))
            if line and (not ends or (begins and self.following.match(text, tag.start()))):
                break
        if line:
            written = line["closed"] == "/parameter"
            return self._value(text[opened.end() : line.start()], written), line.start(), False
        end = first.start() if first else len(text)
        return self._value(text[opened.end() : end], False), end, False

    def _value(self, text: str, closed: bool) -> str:
        """Returns the text between two tags, on lines of its own or not."""
        lines = _LINES.match(text)
        if self.trims and closed:
            return text.removeprefix("\n").removesuffix("\n")
        value = lines[1] if lines else text if closed else text.strip()
        return value[:-2] + "\n" if self.escapes and value.endswith("\\n") else value


def _grammar(
    around: str,
    texts: tuple[str, ...],
    escapes: bool = False,
    trims: bool = False,
    name: str = r"\w+",
    once: bool = False,
) -> XmlGrammar:
    """Builds a grammar; `once` is for one call between the tags `around`, else there may be several."""
    tag = re.compile(
        rf"<(?:function{_NEVER}(?:=|\s+name=)['\"]?(?P<call>{name})['\"]?"
        rf"|parameter{_NEVER}(?:=|\s+name=)['\"]?(?P<argument>{name})['\"]?"
        rf"|(?P<closed>/(?:parameter|function|{around})){_NEVER})\s*>"
    )
    ended = re.compile(rf"\s*(?:<(?:parameter|function|/function{_NEVER}\s*>|/{around})|\Z)")
    between = rf"</{around}{_NEVER}\s*>\s*<{around}{_NEVER}\s*>\s*"
    following = re.compile(
        rf"(?:</function{_NEVER}\s*>\s*)?{between}<function"
        if once
        else rf"</function{_NEVER}\s*>\s*(?:{between})?<function"
    )
    return XmlGrammar(tag, ended, following, frozenset(texts), escapes, trims)


SEED = _grammar("seed:tool_call", ("content", "text"), escapes=True)
"""UI-TARS-2's calls."""
QWEN = _grammar("tool_call", ("text",), trims=True, name=r"[\w.-]+", once=True)
"""Calls of Qwen3.5 and its successors (their chat templates)."""
