"""Failures as data, and the errors that a user sees.

A failure that ends one trajectory is a row: it names the boundary it is blamed on and is kept. A failure blamed on the
policy or its action counts as the policy's failure; every other boundary is an environment failure: neither a success
nor a failure, so it enters no mean, no group and no curriculum.
"""

import errno
from collections.abc import Sequence
from typing import Literal, get_args

Boundary = Literal["sandbox", "policy", "action", "verifier", "judge", "storage", "budget", "server"]
BOUNDARIES: tuple[str, ...] = get_args(Boundary)
POLICY_BOUNDARIES: tuple[str, ...] = ("policy", "action")

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_GATE, EXIT_PAUSED = 0, 1, 2, 3, 4


def is_environment_failure(boundary: str | None) -> bool:
    """Checks whether a trajectory's failure is no evidence about its policy."""
    return boundary is not None and boundary not in POLICY_BOUNDARIES


class FlywheelError(Exception):
    """An error that a user can fix: the problem (with the field, file or id) and a hint at the fix."""

    exit_code = EXIT_ERROR

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem} {hint}".strip())

    def __reduce__(self) -> tuple[type["FlywheelError"], tuple[str, str]]:
        """Pickles whole, so that an error can be handed to other processes."""
        return type(self), (self.problem, self.hint)


def all_of(errors: Sequence[FlywheelError]) -> FlywheelError:
    """Merges several errors into one, a line each, and each hint once."""
    hints = dict.fromkeys(error.hint for error in errors if error.hint)
    return FlywheelError("\n".join(error.problem for error in errors), " ".join(hints))


class UsageError(FlywheelError):
    """Raised if the command line or the config asks for something that does not exist."""

    exit_code = EXIT_USAGE


class LakeError(FlywheelError):
    """Raised if the lake cannot be used: not ours, another schema version, unreachable, full."""


class StoreUnreachable(LakeError):
    """Raised if an object store does not answer, or asks to slow down; the operation can be retried."""


class StoreStillUnreachable(StoreUnreachable):
    """Raised if the store did not answer within the waiting time."""


class EnvironmentDown(FlywheelError):
    """Raised if nothing works in an environment, through no fault of the policy: an immediate retry changes nothing."""


class CheckpointError(FlywheelError):
    """Raised if a checkpoint cannot be loaded: missing, broken, or of another architecture."""


class DamagedError(CheckpointError):
    """Raised if a checkpoint is damaged: a file of it is missing, cut or changed."""


class RankLostError(CheckpointError):
    """Raised if another rank is gone: nothing is wrong with this one, and the training may be restarted."""


class PlanError(FlywheelError):
    """Raised if work cannot be shared out: it does not fit, or no rank can take it."""


class GateRefused(FlywheelError):
    """Raised if the data-quality gate found critical failures; training was not started."""

    exit_code = EXIT_GATE


class Paused(FlywheelError):
    """Raised if the lake's flywheel is paused: nothing failed, and nothing new is begun."""

    exit_code = EXIT_PAUSED


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LOCKED = (errno.EACCES, errno.EPERM, errno.EROFS)


def of_the_disk(error: OSError) -> FlywheelError | None:
    """Converts an error of the file system that a user can fix; None for any other."""
    place = error.filename or "a file"
    if error.errno in FULL:
        return FlywheelError(f"No space is left for {place}.", "Free some space and go on; committed data is safe.")
    if error.errno in LOCKED:
        return FlywheelError(f"{place} cannot be written or read: {error.strerror}.", "Check its rights.")
    return None


class TrajectoryFailure(Exception):
    """Ends one trajectory; caught where the trajectory is recorded, never above it."""

    def __init__(self, boundary: Boundary, reason: str) -> None:
        self.boundary: Boundary = boundary
        self.reason = reason
        super().__init__(f"{boundary}: {reason}")


class SandboxFailure(TrajectoryFailure):
    """The box died, hung or could not be started: not the policy's fault."""

    def __init__(self, reason: str) -> None:
        super().__init__("sandbox", reason)


class ServerFailure(TrajectoryFailure):
    """The server that runs the policy's model gave no answer: not the policy's fault."""

    def __init__(self, reason: str) -> None:
        super().__init__("server", reason)


class ActionFailure(TrajectoryFailure):
    """The policy's text held no action that this environment can perform."""

    def __init__(self, reason: str) -> None:
        super().__init__("action", reason)
