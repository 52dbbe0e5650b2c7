"""Check names, prose and the changelog against the project's banned words and lengths; part of `make check`.

Names of modules, classes, functions and parameters are read by their parts (`say_stage` has `say`), so that a whole
name can be allowed. Prose is docstrings, comments, messages, documents, and the visible text of pages.

Usage: words.py [ROOT]. Prints each finding as `file:line: word: text`, and exits with 1 if there is one.
"""

import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NAMES = frozenset(
    (
        *("away", "beside", "bring", "crown", "hands", "heard", "holding", "jail", "keeper", "learnt", "looks", "mend"),
        *("nobody", "opinions", "reign", "restless", "said", "sameness", "say", "says", "shown", "somebody", "speak"),
        *("stands", "tells", "tether", "throne", "told", "unread", "warden", "whoever", "whom"),
    )
)
"""Parts that a name of a module, class, function or parameter does not have."""
ALLOWED = frozenset({"ShownByDefault", "shown", "nobody", "interim_looks", "mend"})
"""Exceptions: a class named after what it does to help, `shown` of foreign workers, which their authors import, the
Unix user, the term of sequential tests, and a field that `--json` keeps for older programs."""
TASKS = (
    "environments/desktop/tasks/",
    "environments/hybrid/tasks/",
    "environments/site/",
    "environments/webapp/tasks/",
)
"""Instructions of tasks, whose words are part of the data."""
PHRASES = {
    "whoever": r"\bwhoever\b",
    "somebody": r"\b(?:somebody|someone)\b",
    "nobody": r"\bnobody\b",
    "beside": r"\bbeside\b",
    "reign": r"\b(?:reigns?|reigning|crown(?:s|ed)?|throne)\b",
    "mend": r"\bmend(?:s|ed)?\b",
    "put right": r"\bput right\b",
    "learnt": r"\blearnt\b",
    "whom": r"\bwhom\b",
    "who asks": r"\b(?:so that|for|by|of|to) who (?:asks|has|knows|looks|reads|writes)\b",
    "known of": r"\b(?:is|are|was) (?:known|said|heard) of\b",
    "in place": r"\b(?:stands? in (?:its|their|the) place|in the place of)\b",
    "rests in": r"\b(?:it|that|which|they|drafts?|meanwhile) rests? in\b",
    "turned away": r"\bturn(?:s|ed)? (?:\w+ )?away\b",
    "under way": r"\bunder way\b",
    "came to nothing": r"\bc(?:a|o)mes? to nothing\b",
    "to be had": r"\bto be had\b",
    "held against": r"\bheld against\b",
}
"""Phrases that prose does not have, as regular expressions."""
LITERAL_CODE = re.compile(r"`[^`]*`")
LITERAL = re.compile(r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^'\n]*'(?!\w)|“[^”]*”|(?<=\])\([^)\s]*\)")
"""Code, quotations and addresses in prose, which are as their source has them."""
_QUOTED = r"\"(?:\\.|[^\"\\\n])*\""
_HASHES = rf"{_QUOTED}|(?:^|(?<=\s))#.*"
_SLASHES = rf"/\*[\s\S]*?\*/|//.*|{_QUOTED}|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`"
_MARKUP = rf"<!--[\s\S]*?-->|\{{#[\s\S]*?#\}}|/\*[\s\S]*?\*/|{_QUOTED}|(?<=[>}}])[^<>{{}}]+(?=[<{{])"
TEXTS = {
    **dict.fromkeys((".html", ".jinja"), _MARKUP),
    **dict.fromkeys((".js", ".css"), _SLASHES),
    **dict.fromkeys((".sh", "Makefile", "Dockerfile", ".ci/run"), _HASHES),
    **dict.fromkeys((".toml", ".yaml"), _HASHES),
    ".sql": r"--.*|'(?:''|[^'])*'",
}
"""Comments, strings and visible text of other files by the ends of their names, as regular expressions."""
DATA = (".toml", ".yaml")
"""Files whose strings are data, so that only their comments are read."""
COPIES = ("tests/golden/", "models/families/templates/")
"""Folders with texts of other projects."""
PRODUCT = ("apps", "common", "curation", "environments", "flows", "flywheel", "learning", "models", "rollout")
PRODUCT += ("schemas", "storage", "tasks")
GENERATED = ("docs/measurements.md", "docs/decisions/")
"""Documents that quote what was measured and decided, in the words of their time."""

REFERENCE = ("docs/config.md", "docs/tables.md", "docs/glossary.md", *GENERATED)
"""Documents whose sentences are not counted: tables and quotations."""
LONGEST, MEDIAN = 35, 16
"""Words of a sentence in the README and the documents: at most, and in the median."""
GROUPS = ("Added", "Changed", "Fixed", "Removed")
"""Headings below the unreleased version in the changelog."""
ENTRY = 25
"""Words of an entry of the changelog, at most."""
_BLOCK = re.compile(r"^```[\s\S]*?^```$|^\|.*$|^#.*$|^!\[.*$|^\([\w-]+\)=$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ENDS = re.compile(r"[.!?:;][)\"*”]*\s+(?=[\"(*`“]*[A-Z0-9`])|\n\s*\n|\n\s*(?=[-*] |\d+\. )")


class Finding(NamedTuple):
    """One banned word."""

    line: int
    word: str
    text: str


def parts_of(name: str) -> list[str]:
    """Split a name into its lower-case words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name).lower().split()


def in_names(tree: ast.Module, module: str) -> Iterator[Finding]:
    """Find names that a module defines and that have a banned part."""
    defined = [(1, module)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            defined.append((node.lineno, node.name))
        elif isinstance(node, ast.arg):
            defined.append((node.lineno, node.arg))
    for line, name in defined:
        for part in parts_of(name):
            if part in NAMES and name not in ALLOWED:
                yield Finding(line, part, name)


def in_prose(text: str, line: int = 1) -> Iterator[Finding]:
    """Find banned phrases in a text that begins at a line."""
    for number, row in enumerate(LITERAL.sub("", text).split("\n"), line):
        for phrase, form in PHRASES.items():
            if re.search(form, row, re.IGNORECASE):
                yield Finding(number, phrase, row.strip())


def in_python(source: str, module: str) -> Iterator[Finding]:
    """Find banned names and phrases in a module's source."""
    yield from in_names(ast.parse(source), module)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            text = token.string.strip("\"'")
            if " " in text:  # one word is a key or a name
                yield from in_prose(text, token.start[0])


def in_texts(source: str, name: str) -> Iterator[Finding]:
    """Find banned phrases in the comments, strings and visible text of a file that is neither Python nor Markdown."""
    for kind, form in TEXTS.items():
        if not name.endswith(kind):
            continue
        for found in re.finditer(form, source, re.MULTILINE):
            text = found[0].strip("\"'`")
            if " " in text and (kind not in DATA or text.startswith("#")):
                yield from in_prose(text, source.count("\n", 0, found.start()) + 1)


def sentences(text: str) -> list[str]:
    """Split a Markdown document's prose into sentences; code, tables and headings are left out."""
    return [one for _, one in _sentences(text)]


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Split a document as `sentences` does; yield each with its line.

    Each replacement keeps its length, so that a place in the prose is one in the document.
    """
    prose = _BLOCK.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    prose = _LINK.sub(lambda found: found[1].ljust(len(found[0])), prose)
    prose = LITERAL_CODE.sub(lambda found: "X" * len(found[0]), prose)
    begin = 0
    for end in (*(found.end() for found in _ENDS.finditer(prose)), len(prose)):
        part, begin = prose[begin:end], end
        line = text.count("\n", 0, end - len(part.lstrip())) + 1
        if len(part.split()) > 2:
            yield line, " ".join(part.split())


def in_sentences(text: str) -> Iterator[Finding]:
    """Find sentences that are too long."""
    for line, one in _sentences(text):
        if (count := len(one.split())) > LONGEST:
            yield Finding(line, f"{count} words", one)


def in_changelog(text: str) -> Iterator[Finding]:
    """Find entries of the unreleased version that have no group or are too long, and unknown groups."""
    entries, group, unreleased = list[tuple[int, list[str]]](), "", False
    for number, row in enumerate(text.split("\n"), 1):
        if row.startswith("## "):
            unreleased, group = row.endswith(", not released"), ""
        elif unreleased and row.startswith("### "):
            group = row.removeprefix("### ")
            if group not in GROUPS:
                yield Finding(number, "unknown group", row)
        elif unreleased and row.startswith("- "):
            entries.append((number, [row.removeprefix("- ")]))
            if not group or row.startswith(tuple(f"- {name}:" for name in GROUPS)):
                yield Finding(number, "no group", row)
        elif unreleased and row.startswith("  ") and entries:
            entries[-1][1].append(row)
    for number, rows in entries:
        one = " ".join(_LINK.sub(r"\1", " ".join(rows)).split())
        if (count := len(one.split())) > ENTRY:
            yield Finding(number, f"{count} words", one)


def findings(root: Path) -> Iterator[tuple[str, Finding]]:
    """Check the files below a folder that git does not ignore."""
    lengths = list[int]()
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listing, cwd=root, text=True).split("\0"):
        folder, path = name.partition("/")[0], root / name
        if not path.is_file():
            continue
        if name.endswith(".py") and folder in PRODUCT:
            found = () if name.startswith(TASKS) else in_python(path.read_text(encoding="utf-8"), path.stem)
        elif name.endswith(".md") and folder in ("README.md", "CONTRIBUTING.md", "docs"):
            text = path.read_text(encoding="utf-8")
            found = [] if name.startswith(GENERATED) else list(in_prose(text))
            if not name.startswith(REFERENCE):
                found += in_sentences(text)
                lengths += [len(one.split()) for one in sentences(text)]
        elif name == "CHANGELOG.md":
            text = path.read_text(encoding="utf-8")
            found = [*in_prose(text), *in_changelog(text)]
        elif name.endswith(tuple(TEXTS)) and not name.startswith(COPIES):
            found = in_texts(path.read_text(encoding="utf-8"), name)
        else:
            continue
        for one in found:
            yield name, one
    if lengths and (median := statistics.median(lengths)) > MEDIAN:
        yield "docs", Finding(0, f"a median of {median:g} words", f"sentences have {MEDIAN} at most")


def main() -> int:
    """Print the findings; return the exit code."""
    found = list(findings(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    for name, one in found:
        print(f"{name}:{one.line}: {one.word}: {one.text[:100]}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
