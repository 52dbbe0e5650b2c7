"""Tracks trainings with MLflow: one run for each training, on a server or in a local file."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from common.process import home
from learning.tracking.tracker import Point, Tracker
from schemas.config.section import Section
from schemas.failure import FlywheelError

TAG = "flywheel.training"
MOST = 1000
"""Maximum metrics of one request, the limit of MLflow's server."""


class MLflowOptions(Section):
    """`[tracking.options.mlflow]`; user and password, or a token, come from MLFLOW_TRACKING_USERNAME and
    MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."""

    uri: str = ""
    """A server (`http://HOST:5000`) or a file (`sqlite:///PATH`); if not set MLFLOW_TRACKING_URI, else `mlflow.db` in
    the work folder."""
    experiment: str = "flywheel"
    """Name of the experiment that the runs belong to."""


class MLflow(Tracker[MLflowOptions]):
    """Writes to MLflow; a resumed start finds its run by a tag and continues it."""

    section = MLflowOptions
    packages = {"mlflow": "flywheel[mlflow]"}  # noqa: RUF012

    @classmethod
    def require(cls, options: Any) -> None:
        """Checks that the package is installed, and that MLflow supports the address."""
        super().require(options)
        kind = options.uri.partition(":")[0] if ":" in options.uri else "file"
        if options.uri and kind == "file" and not os.environ.get("MLFLOW_ALLOW_FILE_STORE"):
            raise FlywheelError(
                f"`tracking.options.mlflow.uri` is {options.uri}, and MLflow begins no folders of runs any more.",
                "Set it to sqlite:///PATH/mlflow.db, or to a server.",
            )

    def start(self, resumed: int) -> None:
        """Finds or makes the training's run."""
        mlflow: Any = import_module("mlflow")
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        uri = self.options.uri or os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            home().mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{home() / 'mlflow.db'}"
        self._client = mlflow.MlflowClient(uri)
        found = self._client.get_experiment_by_name(self.options.experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(self.options.experiment)
        runs = self._client.search_runs([experiment], f"tags.`{TAG}` = '{self.training.id}'", max_results=1)
        if runs:
            self._run = runs[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
        else:
            self._run = self._begun(experiment)

    def _begun(self, experiment: str) -> str:
        training = self.training
        tags = {TAG: training.id, "flywheel.lake": training.lake, "flywheel.iteration": str(training.iteration)}
        run = self._client.create_run(experiment, tags=tags, run_name=training.policy).info.run_id
        for name, value in _flat(training.config.get("train", {})):
            self._client.log_param(run, f"train.{name}", value)
        for name in ("policy", "parent", "method"):
            self._client.log_param(run, name, getattr(training, name))
        return run

    def log(self, points: Sequence[Point]) -> None:
        """Sends a value for each measure and step."""
        entities: Any = import_module("mlflow.entities")
        values = [
            entities.Metric(name, value, int(point.at * 1000), point.step)
            for point in points
            for name, value in point.measures.items()
        ]
        for start in range(0, len(values), MOST):
            self._client.log_batch(self._run, metrics=values[start : start + MOST])

    def finish(self, whole: bool) -> None:
        """Ends the run."""
        self._client.set_terminated(self._run, "FINISHED" if whole else "FAILED")


def _flat(section: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted keys of a section with their values."""
    for name, value in section.items():
        yield from _flat(value, f"{before}{name}.") if isinstance(value, dict) else [(f"{before}{name}", value)]
