"""A pattern of valid overrides, for forms that check texts before a run reads them."""

import re
from collections.abc import Iterator
from typing import Any, cast

from pydantic import BaseModel

from schemas.config.sections import Config


def override_pattern() -> str:
    """Return a regular expression of `KEY=VALUE` whose key exists in the config.

    Keys below a table of free keys, such as `environments` or the options of a part, are not checked. A value may have
    several lines. The pattern has one meaning in Python, in JSON schemas and in pydantic, where `.` is no newline.
    """
    return rf"^({'|'.join(_keys(Config))})=[\s\S]*$"


def _keys(section: type[BaseModel]) -> Iterator[str]:
    for name, field in section.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield rf"{re.escape(name)}(\.({'|'.join(_keys(kind))}))?"
        elif any(word in repr(cast(object, kind)).lower() for word in ("dict", "mapping")):
            yield rf"{re.escape(name)}(\.[^=]+)?"
        else:
            yield re.escape(name)
