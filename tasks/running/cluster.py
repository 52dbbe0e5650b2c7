"""Distribute work over several machines. The parts of the work are Prefect tasks, and Prefect's Ray task runner runs
them.

If a machine dies, its part starts again on another machine, so a part must find its finished work. All machines use the
same addresses of the lake and of Prefect's server, and have the same code. The calling process counts the tokens of
models on other machines (`models.serving.openai`).
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from models.serving.openai import charge, charged, charged_since
from schemas.config import Config
from schemas.failure import FlywheelError, UsageError
from tasks.running.console import bar

EXTRA = "pip install 'flywheel[ray]'"
GIVEN = ("PYTHONPATH", "HF_HUB_OFFLINE", "OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM", "TQDM_DISABLE")
"""Environment variables that workers get from the run. Each machine has its own credentials, because Ray shows these
values."""


@dataclass(frozen=True, slots=True)
class _PartResult:
    """Result of a part, and the tokens that models used for it."""

    made: Any
    charged: Counter[str]


def part_task(name: str) -> Callable[[Callable[..., Any]], Task[..., Any]]:
    """Make a function a Prefect task for `share_out`."""

    def wrap(work: Callable[..., Any]) -> Task[..., Any]:
        @wraps(work)
        def metered(*args: Any, **kwargs: Any) -> _PartResult:
            before = charged()
            made = work(*args, **kwargs)
            return _PartResult(made, charged_since(before))

        return task(name=name, cache_policy=NO_CACHE, persist_result=False)(metered)

    return wrap


def shares_out(config: Config) -> bool:
    """Whether the work is distributed over other machines."""
    return config.cluster.kind != "local"


def divided(config: Config, names: Sequence[str]) -> list[list[str]]:
    """Divide names into parts. No part is empty."""
    parts = config.cluster.parts
    return [mine for number in range(parts) if (mine := list(names[number::parts]))]


def share_out(config: Config, work: Task[..., Any], parts: Sequence[dict[str, Any]], label: str) -> list[Any]:
    """Run a task once for each part, on the machines of `cluster`.

    Args:
        config: config with the section `cluster`.
        work: the task, made by `part_task`.
        parts: keyword arguments of each call.
        label: text on the progress bar, which counts parts.

    Returns:
        The results, in the order of the parts.

    Raises:
        FlywheelError: a package is missing, the cluster is unreachable, or a part failed on every machine that had it.
    """
    if not parts:
        return []
    require_cluster(config)
    from prefect_ray.context import remote_options
    from prefect_ray.task_runners import RayTaskRunner

    with bar() as progress, _server(), _runner(RayTaskRunner, config) as runner:
        shown = progress.add_task(label, total=len(parts), message="")
        with remote_options(num_cpus=config.cluster.cpus, max_retries=config.cluster.retries):
            futures = [runner.submit(work, parameters=part) for part in parts]
        made: list[Any] = []
        for future in futures:
            future.wait()
            done: _PartResult = future.result(raise_on_failure=True)
            for who, tokens in done.charged.items():
                charge(who, tokens)
            made.append(done.made)
            progress.advance(shown)
        return made


def require_cluster(config: Config) -> str:
    """Check the cluster's requirements, and describe it.

    Raises:
        UsageError: no Prefect server is configured that workers on other machines can reach.
        FlywheelError: a package is missing.
    """
    cluster = config.cluster
    if not shares_out(config):
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
            "`cluster.address`: the parts are Prefect's tasks, and no Prefect server is configured for them.",
            "Set PREFECT_API_URL to a server that all machines reach (`prefect server start --host 0.0.0.0`).",
        )
    return f"ray {ray.__version__} (prefect-ray {prefect_ray.__version__}) at {cluster.address or 'this machine'}"


def _path_hook(address: str) -> dict[str, Any]:
    """Return options that stop Ray's workers from importing from the current folder.

    Ray puts the current folder first on the import path of its workers; Ray's client (`ray://`) does not. The options
    are empty if this project's code is in the current folder, or if PYTHONPATH has the folder.
    """
    folder = os.getcwd()
    wanted = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    left_in = address.startswith("ray://") or folder in map(os.path.abspath, filter(None, wanted))
    return {} if left_in else {"worker_process_setup_hook": without_folder(folder)}


def without_folder(folder: str) -> Callable[[], None]:
    """Make a function that removes a folder from the import path of the process that calls it."""

    def hook() -> None:  # nested, so that it is pickled by value: workers cannot import this module yet
        import sys

        class Empty:
            @staticmethod
            def find_spec(name: str, target: object = None) -> None:
                return None

        sys.path_importer_cache[folder] = Empty()  # type: ignore[assignment]

    return hook


@contextmanager
def _server() -> Iterator[None]:
    """Start a Prefect server for the workers of this machine, unless one is configured."""
    if PREFECT_API_URL.value():
        yield
        return
    from prefect.server.api.server import SubprocessASGIServer

    PREFECT_HOME.value().mkdir(parents=True, exist_ok=True)
    server = SubprocessASGIServer()
    server.start()
    try:
        with temporary_settings({PREFECT_API_URL: server.api_url}):
            yield
    finally:
        server.stop()


def _runner(kind: Any, config: Config) -> Any:
    variables = {name: os.environ[name] for name in GIVEN if name in os.environ}
    variables["PREFECT_API_URL"] = str(PREFECT_API_URL.value())
    environ: dict[str, Any] = {"env_vars": variables, **_path_hook(config.cluster.address)}
    options: dict[str, Any] = {"runtime_env": environ, "log_to_driver": False, "logging_level": "ERROR"}
    if not config.cluster.address:
        options |= {"include_dashboard": False}
    return kind(address=config.cluster.address or None, init_kwargs=options)
