"""Metrics of a stage or a training: open names, kept as JSON.

Values that code reads by name have fields of their own; these are only stored and shown.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
Metrics: TypeAlias = Mapping[str, Json]
"""Values by name; a stage's `say` is its headline for people."""
