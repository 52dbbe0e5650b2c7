"""Write messages to standard error. If `FLYWHEEL_LOG` is `json`, each message is one line of JSON, for log collectors.

`flywheel --log-json` sets this environment variable. Child processes and Prefect's workers inherit it.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

VARIABLE = "FLYWHEEL_LOG"
VOLUME = "FLYWHEEL_VOLUME"
Volume = Literal["quiet", "normal", "verbose"]
"""`quiet`: only results, warnings and errors. `verbose`: progress every ten seconds, and messages of libraries."""
PREFECT = {
    "PREFECT_LOGGING_COLORS": "0",
    "PREFECT_LOGGING_FORMATTERS_JSON_CLASS": "common.log.JsonFormatter",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER": "json",
}
"""Settings of Prefect, which must be set before its import."""


def as_json() -> bool:
    """Whether messages are JSON."""
    return os.environ.get(VARIABLE) == "json"


def switch_on() -> None:
    """Switch JSON messages on, for this process and its children."""
    os.environ[VARIABLE] = "json"
    settle()


def settle() -> None:
    """Configure Prefect's log records, if messages are JSON."""
    if as_json():
        for name, value in PREFECT.items():
            os.environ.setdefault(name, value)


def set_volume(volume: Volume) -> None:
    """Set how much this process and its children print about their progress."""
    os.environ[VOLUME] = volume
    if volume == "verbose":
        os.environ["PREFECT_LOGGING_LEVEL"] = "INFO"
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter() if as_json() else logging.Formatter("%(name)s: %(message)s"))
        logging.basicConfig(level=logging.INFO, handlers=[handler])


def volume() -> Volume:
    """Return how much this process prints about its progress."""
    found = os.environ.get(VOLUME)
    return "quiet" if found == "quiet" else "verbose" if found == "verbose" else "normal"


def line(level: str, message: str, fields: Mapping[str, Any] | None = None) -> str:
    """Return a message as a line of JSON: `time` (UTC), `level` (info, warning, error, ...), `message`, other
    fields."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "level": level, "message": message, **(fields or {})}, default=str)


def write(level: str, message: str, fields: Mapping[str, Any] | None = None) -> None:
    """Write a message to standard error: as a line of JSON if this is switched on, else as text."""
    sys.stderr.write(f"{line(level, message, fields)}\n" if as_json() else f"flywheel: {message}\n")
    sys.stderr.flush()


class JsonFormatter(logging.Formatter):
    """Formats log records of libraries as lines of JSON."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of JSON, with the traceback."""
        fields = {"logger": record.name}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return line(record.levelname.lower(), record.getMessage(), fields)
