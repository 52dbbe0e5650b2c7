"""Tracks trainings with Weights & Biases: one run for each training, online or as files to synchronise later."""

import netrc
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from common.process import home
from learning.tracking.tracker import Point, Tracker
from schemas.config.section import Section
from schemas.failure import FlywheelError

SERVER = "https://api.wandb.ai"


class WandBOptions(Section):
    """`[tracking.options.wandb]`; the key comes from WANDB_API_KEY or `wandb login`, another server from
    WANDB_BASE_URL."""

    project: str = "flywheel"
    """Name of the project that the runs belong to."""
    entity: str | None = None
    """User or team; the key's own if not set."""
    mode: Literal["online", "offline"] = "online"
    """`offline`: no network; `wandb sync` sends the files later."""
    folder: str = ""
    """Folder of its files; `wandb` in the work folder if not set."""


class WandB(Tracker[WandBOptions]):
    """Writes to Weights & Biases; a resumed start has the same run id and continues its run."""

    section = WandBOptions
    packages = {"wandb": "flywheel[wandb]"}  # noqa: RUF012

    @classmethod
    def require(cls, options: Any) -> None:
        """Checks that the package is installed and, for the mode `online`, that there is a key."""
        super().require(options)
        if options.mode == "online" and not _has_key():
            raise FlywheelError(
                "`tracking.trackers`: wandb has no key.",
                "Set WANDB_API_KEY or run `wandb login`; or set `tracking.options.wandb.mode=offline`.",
            )

    def start(self, resumed: int) -> None:
        """Starts or resumes the run with this training's id."""
        wandb: Any = import_module("wandb")
        options, training = self.options, self.training
        folder = Path(options.folder) if options.folder else home() / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=options.project,
            entity=options.entity,
            mode=options.mode,
            dir=str(folder),
            id=training.id,
            name=training.policy,
            group=training.lake,
            job_type=training.method,
            config=dict(training.config),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
            ),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, points: Sequence[Point]) -> None:
        """Sends a row for each point; the step is a column, since a run's own steps cannot decrease."""
        for point in points:
            self._run.log({"step": point.step, **point.measures})

    def finish(self, whole: bool) -> None:
        """Ends the run."""
        self._run.finish(exit_code=0 if whole else 1)


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", SERVER)).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
