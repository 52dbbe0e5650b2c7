"""One Prefect server for all the wheels of a benchmark, as where they are scheduled: each then starts in seconds."""

import os
from pathlib import Path


def serve_prefect(folder: Path) -> None:
    """Starts it with its database in a folder; it ends with this process, and those started from now on use it."""
    os.environ["PREFECT_HOME"] = str(folder / "prefect")
    from apps.environment import make_prefect_home
    from apps.server import TemporaryServer

    make_prefect_home()
    TemporaryServer().wait()
