"""Open a lake from Python, and read it with Polars or SQL.

    import flywheel
    import polars as pl

    lake = flywheel.open("lake")
    lake.trajectories().filter(pl.col("success")).select("task_id", "n_steps").collect()
    flywheel.run(overrides=["train.steps=100"], iterations=1).champion

Importing the package loads neither torch nor Prefect. Each part is loaded at its first use.
"""

import importlib
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flywheel.lake import OpenLake, StoredTrajectory
    from flywheel.runs import RunResult

__all__ = ["OpenLake", "RunResult", "StoredTrajectory", "open", "run"]


def open(uri: "str | os.PathLike[str] | None" = None, *, config: "str | Path | None" = None, **lake: Any) -> "OpenLake":
    """Open an existing lake.

    Args:
        uri: a folder, or `s3://bucket/prefix`; `lake.uri` of the config (by default `lake`) if not given. Credentials
            for S3 come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
        config: a config file or profile; the config of the current folder if not given.
        lake: further keys of the section `[lake]`, such as `endpoint="http://127.0.0.1:8333"`.

    Returns:
        The lake. A frame reads the latest version of its table when it is collected.

    Raises:
        LakeError: the address has no lake or a lake of another schema version, or the storage is unreachable.
        UsageError: the config has an unknown key, or the config file is broken.
    """
    from flywheel.lake import OpenLake
    from schemas.config import load_config
    from storage.lake import Lake

    given = lake if uri is None else {"uri": uri, **lake}
    overrides = [f"lake.{key}={json.dumps(value, default=os.fspath)}" for key, value in given.items()]
    return OpenLake(Lake.open(load_config(config, overrides).lake, create=False))


def run(
    config: "str | Path | None" = None, overrides: "Sequence[str]" = (), *, iterations: int | None = None
) -> "RunResult":
    """Run iterations as `flywheel run` does, and resume the lake's last iteration.

    The run is a separate process, so that its memory is free afterwards. An interrupt ends the run as Ctrl-C does.

    Args:
        config: a config file or profile; the config of the current folder if not given.
        overrides: config keys, such as "train.steps=100".
        iterations: number of iterations to run; `iterations` of the config if not given.

    Returns:
        The lake, the finished iterations, the champion and the report.

    Raises:
        UsageError: the config has an unknown key, or the config file is broken.
        Paused: the lake is paused, or its budget is spent.
        GateRefused: the quality gate stopped an iteration.
        FlywheelError: a check failed, another run is active in the lake, or a stage failed.
    """
    from flywheel.runs import run

    return run(config, overrides, iterations=iterations)


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = importlib.import_module("flywheel.runs" if name == "RunResult" else "flywheel.lake")
        return getattr(module, name)
    raise AttributeError(f"module 'flywheel' has no attribute {name!r}")
