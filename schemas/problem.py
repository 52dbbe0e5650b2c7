"""What is wrong with a value that pydantic refused, without pydantic's own terms."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

_TERMS = re.compile(
    r"^(Value error, |Input |(Tuple|List|Dictionary|String|Set) (?=should))"
    r"|, unable to (parse|interpret) .*| after validation"
)


def problem_of(error: ValidationError) -> tuple[str, str]:
    """The first thing that is wrong: its dotted field, empty for the whole, and what is wrong with it, to be read after
    the field and a colon."""
    first = error.errors()[0]
    return ".".join(map(str, first["loc"])), in_words(first)


def named_problem(error: ValidationError) -> str:
    """`field: problem` of the first thing that is wrong."""
    where, problem = problem_of(error)
    return f"{where}: {problem}" if where else problem


def in_words(found: Mapping[str, Any]) -> str:
    """One of pydantic's errors."""
    more = found.get("ctx", {})
    match found["type"]:
        case "missing":
            return "it is missing"
        case "extra_forbidden":
            return "there is no such field"
        case "union_tag_invalid":
            known = more["expected_tags"].replace("'", "")
            return f"there is no {more['tag']!r}; known: {known}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "should be an object"
        case "union_tag_not_found":
            missing = more["discriminator"].strip("'")
            return f"`{missing}` is missing"
        case _:
            plain = _TERMS.sub("", found["msg"])
            return plain[:1].lower() + plain[1:]
