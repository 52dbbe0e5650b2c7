"""Set the environment variables of every process of ours, before anything heavy is imported.

Libraries read these variables when they are imported, and child processes inherit them: no telemetry, no model hub,
threads that do not spin while they wait, and Prefect's own state next to the work folder. Variables that the caller has
set are kept.
"""

import os
import warnings
from pathlib import Path

from common.process import home
from tasks.running import log

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}


def settle() -> None:
    """Sets the variables that are not set yet."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_HOME", str(home() / "prefect"))
    warnings.filterwarnings("ignore", message="Failed to create the Prefect home")  # made when it is needed
    log.settle()


def make_prefect_home() -> None:
    """Makes Prefect's folder: without it, its server does not start and prints no reason."""
    if folder := os.environ.get("PREFECT_HOME"):
        Path(folder).mkdir(parents=True, exist_ok=True)
