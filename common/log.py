"""Print messages on standard error as one JSON object a line where `FLYWHEEL_LOG` is json, for log collectors.

The switch is a variable, so that child processes and Prefect's workers inherit it; `flywheel --log-json` sets it.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

VARIABLE = "FLYWHEEL_LOG"
PREFECT = {
    "PREFECT_LOGGING_COLORS": "0",
    "PREFECT_LOGGING_FORMATTERS_JSON_CLASS": "common.log.JsonFormatter",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER": "json",
}
"""Prefect's settings, which must be set before its import."""


def as_json() -> bool:
    """Whether the switch is on."""
    return os.environ.get(VARIABLE) == "json"


def switch_on() -> None:
    """Switch it on, for this process and its children."""
    os.environ[VARIABLE] = "json"
    settle()


def settle() -> None:
    """Configure Prefect, if the switch is on."""
    if as_json():
        for name, value in PREFECT.items():
            os.environ.setdefault(name, value)


def line(level: str, message: str, fields: Mapping[str, Any] | None = None) -> str:
    """Return one line: `time` (UTC), `level` (info, warning, error, ...), `message`, and further fields."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "level": level, "message": message, **(fields or {})}, default=str)


def write(level: str, message: str, fields: Mapping[str, Any] | None = None) -> None:
    """Write a message on standard error: as such a line if the switch is on, else as text after the program's name."""
    sys.stderr.write(f"{line(level, message, fields)}\n" if as_json() else f"flywheel: {message}\n")
    sys.stderr.flush()


class JsonFormatter(logging.Formatter):
    """Formatter of the libraries' log records as such lines."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, which includes the traceback."""
        fields = {"logger": record.name}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return line(record.levelname.lower(), record.getMessage(), fields)
