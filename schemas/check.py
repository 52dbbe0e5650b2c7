"""Define the checks of `flywheel doctor`. Required checks also refuse a run that would fail."""

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
    """Fix of a failed check."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the result in the form of `--json`.

        `found` and `mend` are earlier names of `detail` and `hint`, kept for older programs.
        """
        return {**asdict(self), "found": self.detail, "mend": self.hint}


@dataclass(frozen=True, slots=True)
class Probe:
    """One check."""

    name: str
    examine: Callable[[], str]
    """Runs the check and returns its result as text. Raises FlywheelError if the check fails."""
    required: bool = True
    """Whether a failed check refuses a run. Required checks must be quick. Only `flywheel doctor` runs other checks."""

    def check(self) -> CheckReport:
        """Runs the check and reports success or failure."""
        try:
            return CheckReport(self.name, True, self.examine())
        except FlywheelError as error:
            return CheckReport(self.name, False, error.problem, error.hint)
