"""Work that several machines share out: parts of it, as Prefect tasks, by Prefect's task runner for Ray.

A part is begun anew on another machine where its own dies, so it must be one that finds what it has done already. Every
machine reaches the lake and Prefect's server by the same addresses, and has the same code installed.
"""

import os
from collections.abc import Sequence
from typing import Any

from prefect import Task
from prefect.settings import PREFECT_API_URL

from schemas.config import Config
from schemas.failure import FlywheelError, UsageError
from tasks.running.console import bar

EXTRA = "pip install 'flywheel[ray]'"
GIVEN = ("PYTHONPATH", "HF_HUB_OFFLINE", "OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM", "TQDM_DISABLE")
"""Variables that workers get from the run; credentials are those of each machine, for Ray shows what it is given."""


def share_out(config: Config, work: Task[..., Any], parts: Sequence[dict[str, Any]], label: str) -> list[Any]:
    """Runs a task once for each part, on the machines of `cluster`.

    Args:
        config: its section `cluster`.
        work: the task.
        parts: the arguments of each call, by name.
        label: the word on the bar, which counts parts.

    Returns:
        What each call returned, in the order of the parts.

    Raises:
        FlywheelError: a package is missing, the cluster is out of reach, or a part failed on every machine that had it.
    """
    require_cluster(config)
    from prefect_ray.context import remote_options
    from prefect_ray.task_runners import RayTaskRunner

    with bar() as progress, _runner(RayTaskRunner, config) as runner:
        shown = progress.add_task(label, total=len(parts), message="")
        with remote_options(num_cpus=config.cluster.cpus, max_retries=config.cluster.retries):
            futures = [runner.submit(work, parameters=part) for part in parts]
        made: list[Any] = []
        for future in futures:
            future.wait()
            made.append(future.result(raise_on_failure=True))
            progress.advance(shown)
        return made


def require_cluster(config: Config) -> str:
    """Says who shares the work out.

    Raises:
        UsageError: workers on other machines could not reach Prefect's temporary server.
        FlywheelError: the package for it is missing.
    """
    cluster = config.cluster
    if cluster.kind == "local":
        return "none: one machine does all"
    try:
        import prefect_ray
        import ray
    except ImportError as error:
        raise FlywheelError(
            f"`cluster.kind` is ray, and {error.name} is not installed.", f"{EXTRA} gets it."
        ) from error
    if cluster.address and not PREFECT_API_URL.value():
        raise UsageError(
            "`cluster.address`: workers of a cluster cannot reach the temporary Prefect server that this run starts.",
            "Set PREFECT_API_URL to a server that all machines reach (`prefect server start --host 0.0.0.0`).",
        )
    return f"ray {ray.__version__} (prefect-ray {prefect_ray.__version__}) at {cluster.address or 'this machine'}"


def _runner(kind: Any, config: Config) -> Any:
    variables = {name: os.environ[name] for name in GIVEN if name in os.environ}
    if url := PREFECT_API_URL.value():
        variables["PREFECT_API_URL"] = str(url)
    options: dict[str, Any] = {"runtime_env": {"env_vars": variables}, "log_to_driver": False, "logging_level": "ERROR"}
    if not config.cluster.address:
        options |= {"include_dashboard": False}
    return kind(address=config.cluster.address or None, init_kwargs=options)
