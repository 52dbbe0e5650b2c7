"""Checks of `flywheel doctor`, which also refuse a run that could not end well."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from schemas.failure import FlywheelError


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Result of one check."""

    name: str
    ok: bool
    detail: str
    hint: str = ""
    """Fix for a failed check."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the check as `--json` prints it.

        `found` and `mend` are the earlier names of `detail` and `hint`, kept for programs that read them.
        """
        return {**asdict(self), "found": self.detail, "mend": self.hint}


@dataclass(frozen=True, slots=True)
class Probe:
    """One check that can be run."""

    name: str
    examine: Callable[[], str]
    """Runs the check and returns its finding; raises FlywheelError if it fails."""
    required: bool = True
    """Whether a run is refused if it fails, so it must be quick. Only `doctor` runs the others."""

    def check(self) -> CheckReport:
        """Runs the check and reports success or failure."""
        try:
            return CheckReport(self.name, True, self.examine())
        except FlywheelError as error:
            return CheckReport(self.name, False, error.problem, error.hint)
