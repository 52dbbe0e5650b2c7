"""Failures as data, and the errors a person sees.

A failure that ends one trajectory is a row: it names the boundary it is blamed on and is kept. What is
blamed on the policy or its action counts as the policy's failure; every other boundary is an environment
failure: neither a success nor a failure, so it enters no mean, no group and no curriculum.
"""

import errno
from collections.abc import Sequence
from typing import Literal, get_args

Boundary = Literal["sandbox", "policy", "action", "verifier", "judge", "storage", "budget", "server"]
BOUNDARIES: tuple[str, ...] = get_args(Boundary)
POLICY_BOUNDARIES: tuple[str, ...] = ("policy", "action")

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_GATE, EXIT_PAUSED = 0, 1, 2, 3, 4


def is_environment_failure(boundary: str | None) -> bool:
    """Whether a trajectory's failure says nothing about its policy."""
    return boundary is not None and boundary not in POLICY_BOUNDARIES


class FlywheelError(Exception):
    """An error a person can put right: what is wrong (naming the field, file or id) and a hint at what to do."""

    exit_code = EXIT_ERROR

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem} {hint}".strip())

    def __reduce__(self) -> tuple[type["FlywheelError"], tuple[str, str]]:
        """Pickles whole, so that an error can be handed to other processes."""
        return type(self), (self.problem, self.hint)


def all_of(errors: Sequence[FlywheelError]) -> FlywheelError:
    """One error that says what several say, a line each, and each hint once."""
    hints = dict.fromkeys(error.hint for error in errors if error.hint)
    return FlywheelError("\n".join(error.problem for error in errors), " ".join(hints))


class UsageError(FlywheelError):
    """The command line or the config asks for something that does not exist."""

    exit_code = EXIT_USAGE


class LakeError(FlywheelError):
    """The lake cannot be used: not ours, another schema version, out of reach, full."""


class OutOfReach(LakeError):
    """An object store does not answer, or asks to slow down; what was asked of it can be asked again."""


class StillOutOfReach(OutOfReach):
    """It did not answer for as long as it was waited for."""


class EnvironmentDown(FlywheelError):
    """Nothing works in an environment, for what is not the policy's fault: doing it again at once changes nothing."""


class CheckpointError(FlywheelError):
    """A checkpoint cannot be loaded: missing, broken, or of another architecture."""


class DamagedError(CheckpointError):
    """A checkpoint is not what was saved: a file of it is missing, cut or changed."""


class RankLostError(CheckpointError):
    """Another rank is gone: nothing is wrong with this one, and the training may be started again."""


class PlanError(FlywheelError):
    """Work cannot be shared out: it does not fit, or nobody can take it."""


class GateRefused(FlywheelError):
    """The data-quality gate found critical failures; training was not started."""

    exit_code = EXIT_GATE


class Paused(FlywheelError):
    """People paused the lake's wheel: nothing failed, and nothing new is begun."""

    exit_code = EXIT_PAUSED


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LOCKED = (errno.EACCES, errno.EPERM, errno.EROFS)


def of_the_disk(error: OSError) -> FlywheelError | None:
    """What a person can put right of an error of the file system; None for any other."""
    place = error.filename or "a file"
    if error.errno in FULL:
        return FlywheelError(f"No space is left for {place}.", "Free some space and go on; what was committed is safe.")
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
