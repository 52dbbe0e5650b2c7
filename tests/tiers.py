"""Tiers of the tests: whether the nightly ones run, and what a skipped test lacks."""

import os

NIGHTLY = bool(os.environ.get("FLYWHEEL_NIGHTLY"))
"""Whether tests marked `nightly` run, and the others at full size (`make test-nightly`)."""
SLOW = NIGHTLY or os.environ.get("FLYWHEEL_SLOW") != "0"
"""Whether tests marked `slow` run; `make test` leaves them to `make test-slow`."""


def lacks(part: str, command: str) -> str:
    """Returns the reason of a skipped test: the missing part and the command that brings it."""
    return f"{part}: {command}"


def missing_of(reason: str) -> tuple[str, str]:
    """Returns the missing part and the command of a reason; `pytest.importorskip` makes its own."""
    part, _, command = reason.partition(": ")
    if part.startswith("could not import"):
        return f"no package{part.removeprefix('could not import')}", "make setup"
    return part, command


NO_BROWSER = lacks("no browser", "apt-get install chromium-headless-shell chromium-driver")
