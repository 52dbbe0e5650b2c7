"""Describes pydantic's validation errors without pydantic's own terms."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

_TERMS = re.compile(
    r"^(Value error, |Input |(Tuple|List|Dictionary|String|Set) (?=should))"
    r"|, unable to (parse|interpret) .*| after validation"
)

_BRANCH = re.compile(r"(str|int|float|bool|none)$|[a-z-]+\[.*\]$", re.DOTALL)


def problem_of(error: ValidationError) -> tuple[str, str]:
    """Describes the first error: its dotted field, empty for the whole, and the problem.

    The problem is worded to follow the field and a colon.
    """
    first = _deepest(error.errors())
    return ".".join(str(one) for one in first["loc"] if not _is_branch(one)), in_words(first)


def _deepest(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Finds the first error; where a field takes several types, that of the one that went furthest."""
    first = found[0]
    at = next((at for at, one in enumerate(first["loc"]) if _is_branch(one)), None)
    if at is None:
        return first
    outer = first["loc"][:at]
    return max((one for one in found if one["loc"][:at] == outer), key=lambda one: len(one["loc"]))


def _is_branch(part: object) -> bool:
    """Checks whether a part of a location names a type of a union instead of a field."""
    return isinstance(part, str) and bool(_BRANCH.match(part))


def named_problem(error: ValidationError) -> str:
    """Writes `field: problem` of the first error."""
    where, problem = problem_of(error)
    return f"{where}: {problem}" if where else problem


def in_words(found: Mapping[str, Any]) -> str:
    """Describes one of pydantic's errors."""
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
        case "list_type":
            given = found.get("input")
            example = f", such as {json.dumps([given])}" if isinstance(given, str) and len(given) <= 80 else ""
            return f"should be a list, in brackets{example}"
        case "union_tag_not_found":
            missing = more["discriminator"].strip("'")
            return f"`{missing}` is missing"
        case _:
            plain = _TERMS.sub("", found["msg"])
            return plain[:1].lower() + plain[1:]
