"""Start a retraining from a page, as a process of its own that outlives the server."""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from apps.commented import commented
from schemas.config import Config
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.running.budget import require_budget, require_unpaused
from tasks.shared.paths import work_folder
from tasks.shared.policies import policy_row

COMMAND = (sys.executable, "-m", "apps.cli", "retrain", "--json")
LINES = 3
"""Number of lines of the log that a page shows."""


@dataclass(frozen=True, slots=True)
class RetrainingStatus:
    """The retraining that this server started last."""

    running: bool
    code: int | None
    """Exit code of the command; None while it runs, and before the first one."""
    lines: list[str]
    """The last lines of its log."""
    log: str
    """Path of its log."""
    policy: str | None
    """The policy that it made; None before its end, and after a failure."""


class Retraining:
    """Starts `flywheel retrain` for one lake, one at a time; safe to share between threads.

    Args:
        config: the server's resolved config, which the command gets as a file.
        lake: the lake.
        command: the command without its options; prints its result as JSON, and its log on standard error.
    """

    def __init__(self, config: Config, lake: Lake, command: Sequence[str] = COMMAND) -> None:
        self._config, self._lake, self._command = config, lake, command
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, like: str | None) -> RetrainingStatus:
        """Starts a retraining.

        Args:
            like: the policy whose training is repeated; None to train from the current data.

        Raises:
            UsageError: the policy does not exist, or a retraining of this server is active.
            Paused: the lake is paused, or its budget is spent.
        """
        policy_row(self._lake, like or "champion")
        require_unpaused(self._lake)
        require_budget(self._lake, self._config.budget)
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                raise UsageError("A retraining is active.", "The page Running shows it; wait for its end.")
            folder = self._folder
            (folder / "config.toml").write_text(commented(self._config, full=False))
            options = ["--config", str(folder / "config.toml"), *(("--like", like) if like else ())]
            with self._log.open("wb") as log, self._result.open("wb") as result:
                self._process = subprocess.Popen(
                    [*self._command, *options],
                    stdout=result,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self.status()

    def status(self) -> RetrainingStatus:
        """Returns the state of the last retraining, and the end of its log."""
        code = None if self._process is None else self._process.poll()
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()][-LINES:]
        policy = json.loads(self._result.read_bytes())["policy"] if code == 0 else None
        return RetrainingStatus(self._process is not None and code is None, code, lines, str(self._log), policy)

    @property
    def _folder(self) -> Path:
        return work_folder(self._lake, "retraining")

    @property
    def _log(self) -> Path:
        return self._folder / "log.txt"

    @property
    def _result(self) -> Path:
        return self._folder / "result.json"
