"""Convert storage errors that the user can fix to `LakeError`."""

from collections.abc import Iterator
from contextlib import contextmanager

from schemas.failure import FULL, LOCKED, FlywheelError, LakeError, StoreUnreachable

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_FULL_TEXTS = ("No space left", "os error 28", "Disk quota exceeded", "os error 122", "File too large", "os error 27)")
_READ_ONLY_TEXTS = ("Permission denied", "(os error 13)", "Read-only file system", "(os error 30)", "(os error 1)")
_REFUSED_TEXTS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "Access Denied", "Forbidden")
_UNREACHABLE_TEXTS = (
    "Could not connect", "error sending request", "Connect timeout", "Connection was closed", "dns error",
    "Connection reset", "Server disconnected", "operation timed out", "Read timeout", "error decoding response body",
    "IncompleteRead", "Cannot connect to host", "Connection timed out", "ConnectionClosed", "Couldn't connect",
    "curlCode",
)  # fmt: skip
_BUSY_TEXTS = (
    "SlowDown", "ServiceUnavailable", "Service Unavailable", "InternalError", "Internal Server Error", "RequestTimeout",
    "reduce your request rate", "Bad Gateway", "Gateway Timeout", "TooManyRequests", "Too Many Requests",
    "ConditionalRequestConflict", "OperationAborted", "conflicting conditional operation", "conflicting operation",
)  # fmt: skip


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Convert storage errors that the user can fix to `LakeError`. Other errors pass unchanged.

    The text of an error decides, because every storage client has its own error classes.
    """
    try:
        yield
    except FlywheelError:
        raise
    except Exception as error:
        explanation = _explain(place, error)
        if explanation is None:
            raise
        raise explanation from error


def _explain(place: str, error: Exception) -> LakeError | None:
    text = str(error)
    if getattr(error, "errno", None) in FULL or any(word in text for word in _FULL_TEXTS):
        return LakeError(f"No space is left at {place}.", "Free some space and continue; committed data is safe.")
    if place.startswith("s3://"):
        text = f"{text} {error.__cause__ or ''}"  # the cause has the code of S3's answer
        if isinstance(error, PermissionError) or any(word in text for word in _REFUSED_TEXTS):
            return LakeError(
                f"{place} refuses the credentials.", f"Check {' and '.join(CREDENTIALS)} and their rights."
            )
        if isinstance(error, ConnectionError | TimeoutError) or any(word in text for word in _UNREACHABLE_TEXTS):
            hint = "Check `lake.endpoint` and the network; the same command then continues."
            return StoreUnreachable(f"The S3 endpoint of {place} cannot be reached.", hint)
        if busy := next((word for word in _BUSY_TEXTS if word in text), None):
            hint = "Wait, or let fewer runs use it at once; the same command then continues."
            return StoreUnreachable(f"The S3 endpoint of {place} answers with an error, {busy}.", hint)
    elif (
        isinstance(error, NotADirectoryError)
        or getattr(error, "errno", None) in LOCKED
        or any(word in text for word in _READ_ONLY_TEXTS)
    ):
        hint = "Check its rights, or name another folder (a lake's is `lake.uri`)."
        why = getattr(error, "strerror", None) or text.splitlines()[0].rstrip(".")
        return LakeError(f"{place} cannot be written: {why}.", hint)
    return None
