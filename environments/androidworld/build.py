"""Keep a copy of the Python package of the user's AndroidWorld checkout, with a list of its tasks.

The build has `checkout`, the package `android_world` with its protocol buffers compiled. `tasks.json` lists the tasks,
so that a config can be read without AndroidWorld's Python, and `androidworld.toml` is a config with the tasks of its
benchmark.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from environments.programs import alone, asked_json, run
from environments.webapp.build import Built, built_once
from schemas.failure import UsageError

PACKAGE, CHECKOUT, TASKS, SUITE = "android_world", "checkout", "tasks.json", "androidworld.toml"
SCRIPT = Path(__file__).parents[1] / "workers" / "foreign" / "androidworld_worker.py"
BENCHMARK = "android_world"
"""AndroidWorld's family of the tasks of its benchmark."""
LIST_S, COMPILE_S = 120.0, 120.0
"""Time limits in seconds for listing the checkout's tasks and for compiling its protocol buffers."""


def build(checkout: Path, to: Path, python: Path, log: Callable[[str], None]) -> Built:
    """Copies the package of a checkout, unless it is there already.

    Args:
        checkout: the user's checkout; it is only read.
        to: folder of the build.
        python: a Python with the checkout's requirements.
        log: is called with a line for each step.

    Raises:
        UsageError: the folder is not a checkout of AndroidWorld.
        FlywheelError: another process builds in the folder, or a step of the build fails.
    """
    require_checkout(checkout)

    def made(place: Path) -> Path:
        whole = place / "whole"
        inside = whole / CHECKOUT / PACKAGE
        shutil.copytree(checkout / PACKAGE, inside, ignore=shutil.ignore_patterns("*_test.py", "__pycache__"))
        protos = [str(path.relative_to(whole / CHECKOUT)) for path in sorted(inside.rglob("*.proto"))]
        if protos:
            compiler = (str(python), "-m", "grpc_tools.protoc", "--proto_path=.", "--python_out=.")
            run((*compiler, *protos), whole / CHECKOUT, COMPILE_S)
        if (checkout / "LICENSE").is_file():
            shutil.copy(checkout / "LICENSE", whole / "LICENSE")
        tasks = _listed(whole / CHECKOUT, python)
        (whole / TASKS).write_text(tasks, "utf-8")
        (whole / SUITE).write_text(_suite(tasks), "utf-8")
        return whole

    to.parent.mkdir(parents=True, exist_ok=True)
    log("the tasks (about 20 s)")
    with alone(to, "androidworld"):
        return built_once("androidworld", checkout / PACKAGE, to, made, log)


def require_checkout(checkout: Path) -> None:
    """Raises UsageError if a folder is not a checkout of AndroidWorld."""
    for part in ("registry.py", "suite_utils.py", "env/env_launcher.py"):
        if not (checkout / PACKAGE / part).is_file():
            raise UsageError(
                f"`--from`: {checkout} is not a checkout of AndroidWorld: it has no {PACKAGE}/{part}.",
                "Clone it, and name that folder.",
            )


def _listed(checkout: Path, python: Path) -> str:
    words = (str(python), "-B", str(SCRIPT), "--list", str(checkout))
    return json.dumps(asked_json(words, LIST_S, f"its {PACKAGE} does not list its tasks"), ensure_ascii=False, indent=1)


def _suite(tasks: str) -> str:
    """Returns a config that rolls out the tasks of the benchmark; seeds hold validation and test apart."""
    names = [name for name, task in json.loads(tasks)["tasks"].items() if BENCHMARK in task["families"]]
    lines = ["[environments.androidworld]", 'kind = "androidworld"', "", "[suite]", "tasks = ["]
    return "\n".join([*lines, *(f'    "{name}",' for name in names), "]"]) + "\n"
