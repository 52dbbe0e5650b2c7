"""Writes cards for data sets and models: Markdown with a front matter of YAML, as the Hugging Face Hub reads them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from common.text import harmless

CARD = "README.md"
"""File of a card, in the folder of its data set or model."""
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.MULTILINE | re.DOTALL)
_MOST_FRONT = 100_000
"""Maximum bytes of a card that are read."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~])")
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,79}")
UNKNOWN_LICENSE = "unknown"
"""The Hub's identifier of a licence that is not known."""


def card_of(front: Mapping[str, object], title: str, *blocks: str) -> str:
    """Returns the text of a card.

    Args:
        front: the front matter. Keys without a value (None, empty) are left out.
        title: first heading.
        blocks: Markdown; empty blocks are left out.
    """
    kept = {name: value for name, value in front.items() if value not in (None, "", [], {}, ())}
    matter = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=10_000)
    body = "\n\n".join([f"# {plain(title)}", *filter(None, blocks)])
    return f"---\n{matter}---\n\n{body}\n"


def front_of(file: Path) -> dict[str, str]:
    """Returns the texts at the top level of a card's front matter, and of a list its first text; empty without any.

    A card is untrusted, so its YAML is parsed but never constructed.
    """
    try:
        with file.open("rb") as content:
            found = _FRONT.match(content.read(_MOST_FRONT).decode("utf-8-sig", "replace"))
        top: Any = cast(Any, yaml).compose(found[1], yaml.SafeLoader) if found else None
    except (OSError, yaml.YAMLError, RecursionError, ValueError):
        return {}
    texts: dict[str, str] = {}
    for key, value in top.value if isinstance(top, yaml.MappingNode) else ():
        one = value.value[0] if isinstance(value, yaml.SequenceNode) and value.value else value
        if isinstance(key, yaml.ScalarNode) and isinstance(one, yaml.ScalarNode):
            texts[key.value] = one.value
    return texts


def section(title: str, *blocks: str) -> str:
    """Returns a section with a heading; empty if it has no block."""
    held = [one for one in blocks if one]
    return "\n\n".join([f"## {title}", *held]) if held else ""


def rows_of(head: Sequence[str], rows: Sequence[Sequence[object]], most: int = 40) -> str:
    """Returns a table in Markdown; empty without rows.

    Args:
        head: names of the columns.
        rows: cells; texts are escaped, and None is an empty cell.
        most: maximum number of rows; a line below the table has the number of the others.
    """
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *([_cell(one) for one in row] for row in rows[:most])]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return table if len(rows) <= most else f"{table}\n\n{len(rows) - most:,} more rows are not listed."


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return plain(str(value))


def plain(text: str) -> str:
    """Returns a text on one line, with the characters escaped that Markdown and HTML read as markup."""
    return _MARKUP.sub(r"\\\1", " ".join(harmless(text).split()))


def code(text: str, language: str = "") -> str:
    """Returns a block of code."""
    fence = "`" * max(3, *(len(one) + 1 for one in re.findall(r"`+", text) or [""]))
    return f"{fence}{language}\n{text}\n{fence}"


def is_license(name: str) -> bool:
    """Whether a text has the form of a licence's identifier on the Hub, such as `apache-2.0`."""
    return bool(_LICENSE.fullmatch(name))


def size_category(count: int) -> str:
    """Returns the Hub's size category of a number of rows, such as `1K<n<10K`."""
    limits = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6))
    more = (("1M<n<10M", 10**7), ("10M<n<100M", 10**8), ("100M<n<1B", 10**9))
    return next((name for name, limit in (*limits, *more) if count < limit), "n>1B")
