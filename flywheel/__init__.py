"""Open a lake from Python, and read it with Polars or SQL.

    import flywheel
    import polars as pl

    lake = flywheel.open("lake")
    lake.trajectories().filter(pl.col("success")).select("task_id", "n_steps").collect()

Importing the package loads neither torch nor Prefect; each part loads when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flywheel.lake import OpenLake, StoredTrajectory

__all__ = ["OpenLake", "StoredTrajectory", "open"]


def open(uri: str | None = None, *, config: str | None = None, **lake: Any) -> "OpenLake":
    """Open an existing lake.

    Args:
        uri: a folder, or `s3://bucket/prefix`; the config's `lake.uri` if not given, which is `lake` by default.
            Credentials for S3 come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
        config: a config file or profile; the folder's own if not given.
        lake: further keys of the section `[lake]`, such as `endpoint="http://127.0.0.1:8333"`.

    Returns:
        The lake. It is read at its latest version each time a frame is collected.

    Raises:
        LakeError: no lake at the address, a lake of another schema version, storage unreachable.
        UsageError: an unknown key or a broken config file.
    """
    from flywheel.lake import OpenLake

    return OpenLake.open(uri, config, lake)


def __getattr__(name: str) -> Any:
    if name in __all__:
        from flywheel import lake

        return getattr(lake, name)
    raise AttributeError(f"module 'flywheel' has no attribute {name!r}")
