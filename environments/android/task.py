"""Define tasks on phones."""

import re

from pydantic import field_validator

from environments.android.adb import ShellResult
from schemas.action import Action
from schemas.tables.task import TaskEntry


class PhoneTask(TaskEntry):
    """A task on a phone: its app, its setup and its check, which are lines of the phone's shell."""

    max_steps: int = 15
    deterministic: bool = False
    app: str = ""
    """App to open at the start, by its name in `apps` or its package; the home screen if not set."""
    setup: tuple[str, ...] = ()
    """Commands that prepare the phone, before the app is opened; the exit code of each must be 0."""
    check: str = ""
    """Command whose exit code 0 means success. It runs after every step, so it must not change the phone's state."""
    matches: str | None = None
    """Regular expression that the whole output of `check` must also match, without surrounding white space."""

    script: tuple[Action, ...] = ()
    """Actions that solve the task, such as `{ type = "click", x = 0.5, y = 0.2 }`, for `collect.explorer=scripted`."""

    @field_validator("matches")
    @classmethod
    def _expression(cls, matches: str | None) -> str | None:
        try:
            re.compile(matches or "")
        except re.error as error:
            raise ValueError(f"{matches!r} is not a regular expression: {error}") from error
        return matches

    def is_met(self, answer: ShellResult) -> bool:
        """Returns whether the answer to `check` means success."""
        matched = self.matches is None or re.fullmatch(self.matches, answer.out.strip(), re.DOTALL) is not None
        return answer.code == 0 and matched
