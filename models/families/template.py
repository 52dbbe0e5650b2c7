"""The published prompt templates (models/families/templates, with their sources), filled in."""

import re
from functools import lru_cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "templates"
_PLACE = re.compile(r"\{(\w+)\}")
LANGUAGE = "English"
"""Language of thoughts, for templates that name one."""


@lru_cache(maxsize=64)
def template(file: str) -> str:
    """Reads the text of a template, such as `ui-tars-1.0-computer.txt`."""
    return (_FOLDER / file).read_text()


def filled(file: str, **values: str) -> str:
    """Replaces each `{name}` of a template by its value; names within a value are not replaced."""
    known = {"language": LANGUAGE, **values}
    return _PLACE.sub(lambda found: known.get(found[1], found[0]), template(file))
