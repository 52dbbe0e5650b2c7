"""Run the phones of a MobileGym checkout as an environment: its tasks, seeds, splits and judges, in workers.

Each phone is a page in a browser of a worker's process (`environments/workers/foreign/mobilegym_worker.py`), which has
a Python with MobileGym's requirements. The checkout's code has the Apache License 2.0; its data and pictures are CC
BY-NC 4.0. This project contains none of them.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import field_validator

from common.process import home
from common.text import counted
from environments.chromium.browser import FLAGS, browser_version, find_browser
from environments.mobilegym.build import CHECKOUT, DIST, SCRIPT, TASKS
from environments.openenv.foreign import ForeignConfig, SeededConfig
from environments.openenv.sandbox import OpenEnvSandbox
from environments.workers.build import MOBILEGYM
from environments.workers.host import WorkerHost
from environments.workers.processes import FOREIGN, PASSED, ProcessConfig, ProcessEnvironment, version_in
from schemas.failure import FlywheelError, Probe
from schemas.tables.task import TaskEntry

ADD = "Run `flywheel environments add mobilegym --from DIR` with your checkout of MobileGym."
EvalMode = Literal["grounded", "text"]


class MobileGymConfig(ProcessConfig, SeededConfig):
    """Phones of a MobileGym checkout (docs/mobilegym.md)."""

    folder: str = ""
    """Folder of the build; if not set, `mobilegym` of the work folder."""
    browser: str | None = None
    """Path of a headless Chromium; if not set, the environment searches for it."""
    eval_mode: EvalMode = "grounded"
    """`grounded`: answers go into the app of the answer sheet, as in MobileGym's own benchmark. `text`: the text of
    `finished` is the answer."""
    time: str = "2026-05-18T09:00:00"
    """Time of the phone at the start of every trajectory, in ISO format; it stands still between actions."""
    timezone: str = "Asia/Shanghai"
    """Time zone of the phone and of the judges."""

    @field_validator("time")
    @classmethod
    def _a_time(cls, time: str) -> str:
        try:
            datetime.fromisoformat(time)
        except ValueError as error:
            raise ValueError(f"{time!r} is not a time such as 2026-05-18T09:00:00") from error
        return time

    @field_validator("timezone")
    @classmethod
    def _a_zone(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"{timezone!r} is not a time zone such as Asia/Shanghai") from error
        return timezone


class PhoneMessages(ForeignConfig):
    """The messages of a worker with phones."""

    eval_mode: EvalMode
    time: str

    def fields_of(self, template: str) -> dict[str, Any]:
        """Returns the fields of `reset` for a task with any seed."""
        return {"task": template, "eval_mode": self.eval_mode, "time": self.time}


class MobileGymEnvironment(ProcessEnvironment[MobileGymConfig]):
    """The tasks of the checkout that was built."""

    section = MobileGymConfig
    verifier = "openenv"
    sandbox_class = OpenEnvSandbox
    origin = "MobileGym"
    license = "Apache-2.0 (code), CC-BY-NC-4.0 (data and pictures)"
    lists_elements = False

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Returns the checkout's tasks by id, with the splits that name them as tags; raises FlywheelError without a
        build."""
        listed, splits = self._listed["tasks"], self._listed["splits"]
        return {
            name: TaskEntry(
                instruction=task["instruction"],
                tags=(task["difficulty"], *task["apps"], *(split for split, names in splits.items() if name in names)),
                max_steps=task["max_steps"][self.config.eval_mode],
            )
            for name, task in listed.items()
        }

    @property
    def installed(self) -> str:
        """Returns the name of the build."""
        return MOBILEGYM.name

    @property
    def folder(self) -> Path:
        """Folder of the build."""
        return Path(self.config.folder).expanduser().absolute() if self.config.folder else home() / MOBILEGYM.name

    def host(self) -> WorkerHost:
        """Makes a host whose process is not started yet; raises FlywheelError if the build, its Python or a browser is
        missing."""
        self._require()
        command = (str(self.python), "-B", "-u", str(SCRIPT))
        return WorkerHost("the phone", self._messages, command, self._variables)

    def probes(self) -> Sequence[Probe]:
        """Checks that the phone was built, that its Python has its requirements, and that there is a browser; for
        `doctor`, that a task starts."""
        return (
            Probe("phone build", self._examined),
            Probe("phone starts", self._starts, required=False),
        )

    @cached_property
    def _listed(self) -> Mapping[str, Any]:
        self._require_build()
        return json.loads((self.folder / TASKS).read_text("utf-8"))

    @property
    def _messages(self) -> PhoneMessages:
        config = self.config
        return PhoneMessages(
            kind=config.kind, start_timeout_s=config.start_timeout_s, step_timeout_s=config.step_timeout_s,
            lease_s=config.lease_s, seeds=config.seeds, eval_mode=config.eval_mode, time=config.time,
        )  # fmt: skip

    @property
    def _variables(self) -> Mapping[str, str]:
        given = {name: os.environ[name] for name in PASSED if name in os.environ}
        return {
            **given,
            "TZ": self.config.timezone,  # of the browser and of the judges, which compute dates
            "PYTHONPATH": str(FOREIGN),
            "FLYWHEEL_MOBILEGYM": str(self.folder),
            "FLYWHEEL_BROWSER": str(self._browser()),
            "FLYWHEEL_BROWSER_FLAGS": " ".join(FLAGS),
        }

    def _browser(self) -> Path:
        return find_browser(self.config.browser, f"environments.{self.name}.browser")

    def _require_build(self) -> None:
        for part in (TASKS, f"{DIST}/index.html", f"{CHECKOUT}/bench_env"):
            if not (self.folder / part).exists():
                raise FlywheelError(f"`environments.{self.name}.folder`: {self.folder} has no {part}.", ADD)

    def _require(self) -> None:
        self._require_build()
        self.require_python(ADD)

    def _examined(self) -> str:
        self._require()
        package = MOBILEGYM.package
        if not self.config.python and version_in(self.python, package) is None:
            raise FlywheelError(f"`environments.{self.name}.python`: {self.python} has no {package}.", ADD)
        version = browser_version(self._browser())
        return f"{counted(len(self._listed['tasks']), 'task')} in {self.folder}, {version}"

    def _starts(self) -> str:
        template = next(iter(self._listed["splits"].get("train") or self._listed["tasks"]))
        return asyncio.run(self.started(template))
