"""What a phone shows."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Observation:
    """A screen, with the open app and the state."""

    screenshot_bytes: bytes = b""
    route: dict[str, Any] = field(default_factory=dict[str, Any])
    state: dict[str, Any] = field(default_factory=dict[str, Any])
