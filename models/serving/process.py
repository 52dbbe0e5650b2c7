"""Runs the server command of `policy.server.command` as a process."""

import shlex
import shutil
import socket
from pathlib import Path

import httpx

from common.process import ChildProcess, theirs
from schemas.config.policy import ServerConfig
from schemas.failure import FlywheelError

GRACE_S = 10.0
"""Time that the program has to end by itself, in seconds."""


class ServerProcess:
    """A server process at a port of its own, which ends with this process at the latest.

    A restart keeps the port.

    Args:
        config: the command, and the time that it has to answer.
        log: file for all output of the command.
    """

    def __init__(self, config: ServerConfig, log: Path) -> None:
        self._config, self._log = config, log
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/v1"
        self._process: ChildProcess | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.status is None

    def start(self, checkpoint: Path) -> None:
        """Starts or restarts the server, and waits until it answers.

        Raises:
            FlywheelError: the process ended, or did not answer in time; the message quotes the end of its log.
        """
        self.stop()
        given = {"{checkpoint}": str(checkpoint), "{port}": str(self._port)}
        command = [_filled(word, given) for word in shlex.split(self._config.command)]
        require_program(self._config)
        self._process = ChildProcess(command, self._log, theirs(), GRACE_S, append=True)
        if not self._process.wait(self._answers, self._config.start_timeout_s):
            ended = f"it did not answer in {self._config.start_timeout_s:g} s" if self.alive else "it ended"
            tail = self._process.tail
            self.stop()
            raise FlywheelError(f"`policy.server.command`: {ended}.", f"The end of {self._log}: {tail}")

    def stop(self) -> None:
        """Ends the process and its child processes."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _answers(self) -> bool:
        """Whether the server lists its models, or reports that it is healthy. `transformers serve` cannot list models
        before it has downloaded the first one."""
        try:
            status = httpx.get(f"{self.url}/models", timeout=5.0).status_code
            if status == httpx.codes.INTERNAL_SERVER_ERROR:
                status = httpx.get(f"{self.url.removesuffix('/v1')}/health", timeout=5.0).status_code
        except httpx.HTTPError:
            return False
        return status < 500


def require_program(config: ServerConfig) -> str:
    """Returns the command's program; raises FlywheelError if it does not exist."""
    try:
        words = shlex.split(config.command)
    except ValueError as error:
        raise FlywheelError(f"`policy.server.command` cannot be read: {error}.", "Close its quotes.") from None
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise FlywheelError(
            f"`policy.server.command`: there is no program {words[0] if words else ''!r}.",
            "Install it, or name it by its whole path.",
        )
    return found


def _filled(word: str, given: dict[str, str]) -> str:
    for name, value in given.items():
        word = word.replace(name, value)
    return word
