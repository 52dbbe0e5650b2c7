"""One list of checks behind `flywheel doctor` and the refusal of a run that could not end well."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from schemas.failure import FlywheelError


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was found."""

    name: str
    ok: bool
    detail: str
    hint: str = ""
    """What to do about it, where it is not well."""

    def as_dict(self) -> dict[str, Any]:
        """The check as `--json` prints it; `found` and `mend` are the earlier names of `detail` and `hint`, kept for
        programs that read them."""
        return {**asdict(self), "found": self.detail, "mend": self.hint}


@dataclass(frozen=True, slots=True)
class Probe:
    """Something to be checked."""

    name: str
    examine: Callable[[], str]
    """Says what was found; raises FlywheelError where that is not well."""
    required: bool = True
    """Whether a run is refused where it fails, so it must be quick. The rest is examined by `doctor` alone."""

    def check(self) -> CheckReport:
        """What was found, good or bad."""
        try:
            return CheckReport(self.name, True, self.examine())
        except FlywheelError as error:
            return CheckReport(self.name, False, error.problem, error.hint)
