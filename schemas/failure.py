"""Define the failures of trajectories, and the errors that users see.

A failure that ends a trajectory is stored in its row, with a boundary that names the cause. Failures with the boundary
`policy` or `action` count against the policy. All others are environment failures. An environment failure counts
neither as a success nor as a failure, so means, groups and the curriculum leave it out.

A `Probe` is a check of `flywheel doctor`. A run is refused if it would fail by what a required one finds.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Boundary = Literal["sandbox", "policy", "action", "verifier", "judge", "storage", "budget", "server"]
BOUNDARIES: tuple[str, ...] = get_args(Boundary)
POLICY_BOUNDARIES: tuple[str, ...] = ("policy", "action")

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_GATE, EXIT_PAUSED = 0, 1, 2, 3, 4


def is_environment_failure(boundary: str | None) -> bool:
    """Checks whether a failure at this boundary does not count against the policy."""
    return boundary is not None and boundary not in POLICY_BOUNDARIES


class FlywheelError(Exception):
    """An error that a user can fix. It has the problem, with the field, file or id, and a hint."""

    exit_code = EXIT_ERROR

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem} {hint}".strip())

    def __reduce__(self) -> tuple[type["FlywheelError"], tuple[str, str]]:
        """Pickles all fields, so that an error can be sent to another process."""
        return type(self), (self.problem, self.hint)


def all_of(errors: Sequence[FlywheelError]) -> FlywheelError:
    """Merges several errors into one error with one line per problem. A repeated hint appears once."""
    hints = dict.fromkeys(error.hint for error in errors if error.hint)
    return FlywheelError("\n".join(error.problem for error in errors), " ".join(hints))


class UsageError(FlywheelError):
    """Raised if the command line, the config or an argument is invalid."""

    exit_code = EXIT_USAGE


class UnknownId(UsageError):
    """Raised if the lake has no row with an id."""


class LakeError(FlywheelError):
    """Raised if the lake cannot be used: it is not a lake, has another schema version, is unreachable, or is full."""


class StoreUnreachable(LakeError):
    """Raised if an object store does not answer, or asks for fewer requests. The operation can be retried."""


class StoreStillUnreachable(StoreUnreachable):
    """Raised if the store did not answer within the waiting time."""


class EnvironmentDown(FlywheelError):
    """Raised if all trajectories of an environment fail for reasons other than the policy. An immediate retry is
    useless."""


class CheckpointError(FlywheelError):
    """Raised if a checkpoint cannot be loaded: missing, broken, or of another architecture."""


class DamagedError(CheckpointError):
    """Raised if a checkpoint is damaged: a file is missing, truncated or changed."""


class RankLostError(CheckpointError):
    """Raised on a rank if another rank is lost. The training can be restarted."""


class PlanError(FlywheelError):
    """Raised if work cannot be distributed over ranks, because it does not fit or no rank can take it."""


class GateRefused(FlywheelError):
    """Raised if the quality gate found critical failures. Training was not started."""

    exit_code = EXIT_GATE


class Paused(FlywheelError):
    """Raised if the lake is paused or its budget is spent. Nothing failed, and no new work starts."""

    exit_code = EXIT_PAUSED


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LOCKED = (errno.EACCES, errno.EPERM, errno.EROFS)


def of_the_disk(error: OSError) -> FlywheelError | None:
    """Converts an error of the file system to one that a user can fix; None for other errors."""
    place = error.filename or "a file"
    if error.errno in FULL:
        return FlywheelError(f"No space is left for {place}.", "Free some space and go on; committed data is safe.")
    if error.errno in LOCKED:
        return FlywheelError(f"{place} cannot be written or read: {error.strerror}.", "Check its rights.")
    return None


class TrajectoryFailure(Exception):
    """Ends one trajectory. The code that records the trajectory catches it."""

    def __init__(self, boundary: Boundary, reason: str) -> None:
        self.boundary: Boundary = boundary
        self.reason = reason
        super().__init__(f"{boundary}: {reason}")


class SandboxFailure(TrajectoryFailure):
    """Raised if a sandbox died, hung or could not start; an environment failure."""

    def __init__(self, reason: str) -> None:
        super().__init__("sandbox", reason)


class ServerFailure(TrajectoryFailure):
    """Raised if the server of the policy's model gave no answer; an environment failure."""

    def __init__(self, reason: str) -> None:
        super().__init__("server", reason)


class ActionFailure(TrajectoryFailure):
    """Raised if the policy's reply has no action that the environment can perform."""

    def __init__(self, reason: str) -> None:
        super().__init__("action", reason)


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
