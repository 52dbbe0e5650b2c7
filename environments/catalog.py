"""The tasks there are, and which of them a config plays or only measures."""

import tomllib
from difflib import get_close_matches
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from schemas.config import Config
from schemas.failure import UsageError
from schemas.task import JUDGED, GuiTask, Split

MAX_STEPS = 10
"""The step limit of a task whose entry gives none."""

_FAKE: dict[str, dict[str, Any]] = {
    "click-target": {"instruction": 'Click the "{}" button.', "tags": ["fake", "single-step"], "max_steps": 3},
    "click-one": {"instruction": 'Click the "{}" button.', "tags": ["fake", "single-step"], "max_steps": 3},
    "click-of-three": {"instruction": 'Click the "{}" button.', "tags": ["fake", "single-step"], "max_steps": 3},
    **{
        f"click-{colour}": {
            "instruction": f'Click the "{colour}" button.',
            "tags": ["fake", "single-step"],
            "max_steps": 3,
        }
        for colour in ("red", "green", "blue", "orange")
    },
    "two-steps": {
        "instruction": 'Click the "{}" button, then the "{}" button.',
        "tags": ["fake", "multi-step"],
        "max_steps": 4,
    },
    "three-steps": {
        "instruction": 'Click the "{}" button, then the "{}" button, then the "{}" button.',
        "tags": ["fake", "multi-step"],
        "max_steps": 5,
    },
    "enter-text": {"instruction": 'Type "{}" and click the "{}" button.', "tags": ["fake", "typing"], "max_steps": 5},
    "note": {
        "instruction": 'Write a note that says "{}".',
        "tags": ["fake", "typing"],
        "max_steps": 3,
        "verifier": JUDGED,
    },
    "dies": {"instruction": 'Click the "{}" button.', "tags": ["fake"], "max_steps": 3},
}


def catalog(config: Config) -> list[GuiTask]:
    """The suite's tasks (split `train`), the held-out and the practice ones, in the config's order.

    Raises:
        UsageError: a task the environment does not have, a task that is both played and held out, a hard task or a
            step limit of a task that is not in the suite; names the field and the nearest task.
    """
    suite, kind = config.suite, config.environment.kind
    for field, names in (("tasks", suite.tasks), ("held_out", suite.held_out), ("practice", suite.practice)):
        for name in names:
            _check(f"suite.{field}", name, all_templates(kind))
    if both := sorted(set(suite.tasks) & set(suite.held_out)):
        raise UsageError(f"`suite.held_out`: {both[0]} is also in suite.tasks.", "A held-out task is never played.")
    if both := sorted(set(suite.practice) & {*suite.tasks, *suite.held_out}):
        raise UsageError(f"`suite.practice`: {both[0]} is also evaluated.", "A practice page is never evaluated.")
    listed = (*suite.tasks, *suite.held_out)
    for field, names in (("hard", suite.hard), ("max_steps", suite.max_steps)):
        for name in names:
            _check(f"suite.{field}", name, listed)
    splits: tuple[tuple[Split, tuple[str, ...]], ...] = (
        ("train", suite.tasks),
        ("held_out", suite.held_out),
        ("practice", suite.practice),
    )
    return [task_named(name, kind, split, suite.max_steps.get(name)) for split, names in splits for name in names]


def all_templates(kind: str = "miniwob") -> list[str]:
    """The names of all tasks of an environment, sorted."""
    return sorted(_entries(kind))


def task_named(template: str, kind: str = "miniwob", split: Split = "train", max_steps: int | None = None) -> GuiTask:
    """One task by its template; raises UsageError for a name the environment does not have."""
    _check("task", template, all_templates(kind))
    entry = _entries(kind)[template]
    return GuiTask(
        task_id=f"{kind}/{template}",
        environment=kind,
        template=template,
        instruction=entry["instruction"],
        tags=entry["tags"],
        split=split,
        max_steps=max_steps or entry.get("max_steps", MAX_STEPS),
        verifier=entry.get("verifier", kind),
        lineage=_lineage(kind),
    )


def _check(field: str, name: str, known: list[str] | tuple[str, ...]) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.4)
        mend = f"Did you mean `{near[0]}`?" if near else f"There are {', '.join(sorted(known)[:8])} and so on."
        raise UsageError(f"`{field}`: there is no task `{name}`.", mend)


@cache
def _entries(kind: str) -> dict[str, dict[str, Any]]:
    if kind == "fake":
        return _FAKE
    return tomllib.loads((Path(__file__).parent / "miniwob" / "tasks.toml").read_text())


@cache
def _lineage(kind: str) -> str:
    try:
        return f"MiniWoB++ {version('miniwob')}" if kind == "miniwob" else "flywheel"
    except PackageNotFoundError:
        return "MiniWoB++"
