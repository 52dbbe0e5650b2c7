"""What a stage or a training tells of itself: open to whatever each has to tell, and kept as JSON.

What somebody reads by name has fields of its own; this is what is only kept and shown.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
Metrics: TypeAlias = Mapping[str, Json]
"""By name; a stage's `say` is its headline for people."""
