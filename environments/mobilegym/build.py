"""Build the phone of the user's MobileGym checkout, and keep its tasks and judges next to it.

The build has `dist`, which is served to pages, and `checkout`, which is not: the checkout's Python package `bench_env`
and the data files that its tasks and judges read. `tasks.json` lists tasks and splits, so that a config can be read
without MobileGym's Python, and `mobilegym.toml` is a config with all of them.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from environments.programs import alone, asked_json
from environments.webapp.build import Built, build_one
from schemas.failure import UsageError

DIST, CHECKOUT, TASKS, SUITE = "dist", "checkout", "tasks.json", "mobilegym.toml"
SCRIPT = Path(__file__).parents[1] / "workers" / "foreign" / "mobilegym_worker.py"
LIST_S = 120.0
"""Time limit in seconds for listing the checkout's tasks."""
NOTICES = ("LICENSE", "LICENSE-DATA", "NOTICE", "DISCLAIMER.md")


def build(checkout: Path, to: Path, python: Path, log: Callable[[str], None]) -> Built:
    """Builds the phone of a checkout, unless it is there already.

    Args:
        checkout: the user's checkout; it is only read.
        to: folder of the build.
        python: a Python with the requirements of the checkout's `bench_env`.
        log: is called with a line for each step.

    Raises:
        UsageError: the folder is not a checkout of MobileGym.
        FlywheelError: npm is missing, another process builds in the folder, or a step of the build fails.
    """
    require_checkout(checkout)

    def arranged(app: Path) -> Path:
        whole = app.parent / "whole"
        shutil.copytree(
            app / "bench_env", whole / CHECKOUT / "bench_env", ignore=shutil.ignore_patterns("tests", "docs")
        )
        for data in sorted(app.glob("apps/*/data")):
            shutil.copytree(data, whole / CHECKOUT / data.relative_to(app))
        for notice in NOTICES:
            if (app / notice).is_file():
                shutil.copy(app / notice, whole / notice)
        (app / DIST).rename(whole / DIST)
        tasks = _listed(whole / CHECKOUT, python)
        (whole / TASKS).write_text(tasks, "utf-8")
        (whole / SUITE).write_text(_suite(tasks), "utf-8")
        return whole

    to.parent.mkdir(parents=True, exist_ok=True)
    log("the phone (1 to 3 min)")
    with alone(to, "mobilegym"):
        return build_one("mobilegym", checkout, to, arranged, log)


def require_checkout(checkout: Path) -> None:
    """Raises UsageError if a folder is not a checkout of MobileGym."""
    for part in ("bench_env/task/registry.py", "package.json", "vite.config.ts"):
        if not (checkout / part).is_file():
            raise UsageError(
                f"`--from`: {checkout} is not a checkout of MobileGym: it has no {part}.",
                "Clone it, and name that folder.",
            )


def _listed(checkout: Path, python: Path) -> str:
    words = (str(python), "-B", str(SCRIPT), "--list", str(checkout))
    return json.dumps(asked_json(words, LIST_S, "its bench_env does not list its tasks"), ensure_ascii=False, indent=1)


def _suite(tasks: str) -> str:
    """Returns a config that rolls out the tasks of the split `train`, and holds out those of `test`."""
    listed = json.loads(tasks)
    lines = ["[environments.mobilegym]", 'kind = "mobilegym"', "", "[suite]"]
    for key, split in (("tasks", "train"), ("held_out", "test")):
        names = [name for name in listed["splits"].get(split, ()) if name in listed["tasks"]]
        lines += [f"{key} = [", *(f'    "{name}",' for name in names), "]"]
    return "\n".join(lines) + "\n"
