"""Convert the lake's address in the config to the settings of three storage clients.

fsspec stores the schema marker and blobs, delta-rs writes tables, and Arrow reads tables. Only this module configures
these clients, so all three use the same endpoint, region and credentials.
"""

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem, SubTreeFileSystem

from schemas.config.sections import LakeConfig
from schemas.failure import LakeError, UsageError
from storage.explained import CREDENTIALS
from storage.objects import ObjectStore, open_store
from storage.patience import StoreRetry, T

UNKEPT = re.compile(r"[\[\]|^\\\x00-\x1f\x7f]")
"""Characters in a folder's path that make delta-rs panic, or read from a different folder than the written folder."""

GATEWAY = ("502", "503", "504")
"""HTTP status codes that a gateway in front of an S3 server may send."""


@dataclass(frozen=True)
class Address:
    """A location of data, with the clients that access it."""

    uri: str
    """Absolute path of a folder, `s3://bucket/prefix`, or (for tests) `memory://name`."""
    filesystem: Any
    """The fsspec file system; None for a folder on this machine."""
    delta_options: dict[str, str] = field(default_factory=dict, repr=False)
    """Storage options of delta-rs. They include credentials, so `repr` leaves them out."""

    @cached_property
    def patience(self) -> StoreRetry:
        """Retry policy for an unreachable store."""
        return StoreRetry(self.uri)

    @property
    def local(self) -> bool:
        """Whether this is a folder on this machine."""
        return "://" not in self.uri

    def path(self, *parts: str) -> str:
        """Return the address of a path below this address."""
        return "/".join([self.uri, *parts])

    def arrow(self, *parts: str) -> FileSystem:
        """Return a file system of Arrow whose root is a path below this address.

        delta-rs also provides a file system for Arrow, but its reads call Python. If Arrow's threads still read when
        the interpreter ends, the process hangs or aborts. Arrow's own file system never calls Python.
        """
        if self.local:
            return SubTreeFileSystem(self.path(*parts), LocalFileSystem())
        options = self.delta_options
        native = S3FileSystem(
            access_key=options["AWS_ACCESS_KEY_ID"],
            secret_key=options["AWS_SECRET_ACCESS_KEY"],
            session_token=options.get("AWS_SESSION_TOKEN"),
            region=options["AWS_REGION"],
            endpoint_override=options.get("AWS_ENDPOINT_URL"),
            connect_timeout=5,
        )
        return SubTreeFileSystem(self.path(*parts).removeprefix("s3://"), native)

    def store(self, *below: str) -> ObjectStore:
        """Return the object store at this address, or at a path below it."""
        return open_store(self.path(*below), None if self.local else self.filesystem, self.patience)

    def patiently(self, operation: Callable[[], T]) -> T:
        """Run a repeatable operation, retrying it while the store is unreachable, and return its result.

        The retry policy limits the time; a run sets the limit to `lake.patience_s`. Errors that the user can fix become
        a `LakeError`; other errors pass unchanged.
        """
        return self.patience.over(operation)


def resolve(config: LakeConfig, environ: Mapping[str, str] | None = None) -> Address:
    """Return the address that a config names.

    Raises:
        UsageError: the address is neither a folder, `s3://` with a bucket, nor `memory://`.
        LakeError: the folder is not usable for Delta tables, or the environment has no S3 credentials.
    """
    scheme, _, rest = config.uri.rpartition("://")
    if scheme == "s3":
        return _s3(config, os.environ if environ is None else environ)
    if scheme == "memory":
        return Address(f"memory://{rest.strip('/')}", _filesystem("memory"))
    if found := re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(/*)(.*)", config.uri):
        raise _not_an_address(config.uri, *found.groups())
    path = str(Path(config.uri).expanduser().resolve())
    if unquote(path) != path:
        problem = f"`lake.uri` is {path}: Delta reads {path[path.index('%') :][:3]} as another character."
        raise LakeError(problem, "Choose a folder without a percent sign in its path.")
    if found := UNKEPT.search(path):
        problem = f"`lake.uri` is {path!r}: Delta keeps no table in a folder with {found[0]!r} in its path."
        raise LakeError(problem, "Choose another folder.")
    return Address(path, None)


def _not_an_address(uri: str, scheme: str, slashes: str, rest: str) -> UsageError:
    """Make the error for an address with another scheme than s3, or without its two slashes."""
    hint = {"s3": f"Write s3://{rest or 'bucket/prefix'}", "file": f"Write {'/' if slashes else ''}{rest}"}
    kind = "s3" if scheme.lower() in ("s3", "s3a", "s3n") else scheme.lower()
    folder = "" if "//" in slashes else f", or ./{uri} for a folder of that name"
    problem = f"`lake.uri` is {uri}, which is not an address."
    return UsageError(problem, f"{hint.get(kind, 'Use a folder or s3://bucket/prefix')}{folder}.")


def _filesystem(protocol: str, **options: Any) -> Any:
    """Return a file system of fsspec. Only this function imports fsspec, so a lake in a folder never loads it."""
    import fsspec

    return fsspec.filesystem(protocol, **options)


def _s3(config: LakeConfig, environ: Mapping[str, str]) -> Address:
    if not _bucket(config.uri):
        raise UsageError(f"`lake.uri` is {config.uri}: the bucket is missing.", "Write s3://bucket/prefix.")
    missing = [name for name in CREDENTIALS if not environ.get(name)]
    if missing:
        verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        problem = f"`lake.uri` is {config.uri}, and {' and '.join(missing)} {verb} not set."
        raise LakeError(problem, f"Set {them} in the environment, or set `lake.uri` to a folder.")
    key, secret = (environ[name] for name in CREDENTIALS)
    token = environ.get("AWS_SESSION_TOKEN")
    options = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": config.region}
    options |= {"aws_conditional_put": "etag", "max_retries": "4", "retry_timeout": "30s", "connect_timeout": "5s"}
    options |= {"AWS_SESSION_TOKEN": token} if token else {}
    if config.endpoint:
        options |= {"AWS_ENDPOINT_URL": config.endpoint, "AWS_ALLOW_HTTP": str(config.endpoint.startswith("http:"))}
    logging.getLogger("asyncio").addFilter(_BROKEN_REQUESTS)
    filesystem = _filesystem(
        "s3",
        key=key,
        secret=secret,
        token=token,
        endpoint_url=config.endpoint,
        client_kwargs={"region_name": config.region},
        config_kwargs={"connect_timeout": 5, "retries": {"max_attempts": 2}},
        use_listings_cache=False,
    )
    return Address(config.uri.rstrip("/"), filesystem, options)


class _BrokenRequests(logging.Filter):
    """Drops asyncio's log records about requests that a store broke off. The client repeats or reports each request."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log this record."""
        error = record.exc_info[1] if record.exc_info else None
        return not (isinstance(error, ConnectionError) and record.getMessage().startswith("Task exception was never"))


_BROKEN_REQUESTS = _BrokenRequests()


def _bucket(uri: str) -> str:
    return uri.removeprefix("s3://").split("/")[0]


def require_bucket(address: Address) -> None:
    """Raise `LakeError` if an S3 address has no S3 server or no bucket.

    The check lists the bucket, because an answer to HEAD has no body, and only a body identifies an S3 server. A client
    takes any page with status 200 for an empty bucket, and any page with status 404 for a missing bucket.
    """
    if not address.uri.startswith("s3://"):
        return
    try:
        listed = address.filesystem.call_s3("list_objects_v2", Bucket=_bucket(address.uri), MaxKeys=1)
    except Exception as error:
        if _is_foreign(error):
            raise _no_server(address) from error
        if isinstance(error, FileNotFoundError):
            problem = f"There is no bucket `{_bucket(address.uri)}` (`lake.uri` is {address.uri})."
            raise LakeError(problem, "Make the bucket, or correct `lake.uri`.") from error
        raise
    if "Name" not in listed:  # every S3 server repeats the bucket's name
        raise _no_server(address)


def _is_foreign(error: Exception) -> bool:
    """Whether an error comes from a server other than S3. Such an error has no S3 error code."""
    from xml.etree.ElementTree import ParseError

    if isinstance(error, ParseError) or "TooManyRedirects" in repr(getattr(error, "kwargs", "")):
        return True
    answer = getattr(error.__cause__, "response", None)
    code = cast(dict[str, Any], answer)["Error"].get("Code", "") if isinstance(answer, dict) else "none"
    return not code or (code.isdigit() and code not in GATEWAY)


def _no_server(address: Address) -> LakeError:
    place = address.delta_options.get("AWS_ENDPOINT_URL", "The S3 endpoint")
    return LakeError(
        f"{place} answers, but it is not an S3 server (`lake.endpoint`).",
        "Name the server's S3 port, such as 8333 of `weed server -s3` and 9000 of MinIO.",
    )
