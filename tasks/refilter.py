"""Filter stored trajectories again with the current gates, and report the changes. Nothing is rolled out."""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.stage import chronological
from storage.lake import Lake
from tasks.annotate import annotate
from tasks.filter import decide_routes
from tasks.running.boundary import boundary
from tasks.running.console import bar
from tasks.running.run import Run, run_of
from tasks.shared.paths import work_folder
from tasks.shared.reviews import decisions_of
from tasks.think.think import think

EXAMPLES = 5
"""Maximum number of trajectories in the report for each change."""
Decided = Mapping[str, Sequence[str | None]]
"""Route, rejecting gate (None for accepted trajectories) and reason, by trajectory."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of trajectories, by route and by rejecting gate."""

    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RouteChange:
    """Trajectories whose route changed."""

    was: str
    now: str
    gate: str
    """Gate that decided; for accepted trajectories, the gate that rejected them before."""
    n: int
    reason: str | None
    examples: Sequence[str]


@dataclass(frozen=True, slots=True)
class Changes:
    """Differences between two runs of the filter."""

    iterations: Sequence[int]
    trajectories: int
    changed: int
    routes: Counts
    gates: Counts
    flips: Sequence[RouteChange]
    """Changes of routes, the most frequent first."""


@boundary("refilter")
def refilter_trajectories(config: Config, iterations: tuple[int, int] | None) -> Changes:
    """Run the configured gates on stored trajectories, annotate newly accepted trajectories, and report the changes.

    After an interruption, the same call continues, and its report covers both parts.

    Args:
        config: the resolved config.
        iterations: the first iteration and the iteration after the last; all if not given.

    Raises:
        UsageError: the lake has no trajectory of these iterations.
    """
    run = run_of(config, create=False)
    asked = _asked(run.lake, iterations)
    folder = work_folder(run.lake, f"refilter/{_name(config, asked)}")
    with bar() as progress:
        shown = progress.add_task("refilter", total=len(asked), message="")
        for iteration in asked:
            _again(run, iteration, folder / f"{iteration}.json")
            progress.update(shown, advance=1, message=f"iteration {iteration}")
    before = {name: one for number in asked for name, one in _read(folder / f"{number}.json")["before"].items()}
    after = {name: one for number in asked for name, one in _decided(run.lake, number).items()}
    shutil.rmtree(folder)
    return changes(asked, before, after)


def changes(iterations: Sequence[int], before: Decided, after: Decided) -> Changes:
    """Return the differences between two runs of the filter on these iterations."""
    flips: dict[tuple[str, str, str], list[str]] = {}
    for name, (route, gate, _) in sorted(after.items()):
        was, old_gate, _ = before.get(name, ("undecided", None, ""))
        if was != route:
            flips.setdefault((was or "", route or "", gate or old_gate or ""), []).append(name)
    return Changes(
        iterations=iterations,
        trajectories=len(after),
        changed=sum(len(names) for names in flips.values()),
        routes=Counts(_counted(before, 0), _counted(after, 0)),
        gates=Counts(_counted(before, 1), _counted(after, 1)),
        flips=[
            RouteChange(was, now, gate, len(names), after[names[0]][2], names[:EXAMPLES])
            for (was, now, gate), names in sorted(flips.items(), key=lambda flip: (-len(flip[1]), flip[0]))
        ],
    )


def _again(run: Run, iteration: int, path: Path) -> None:
    """Filter one iteration. The earlier decisions are written to the disk before the first new decision."""
    state = _read(path) if path.exists() else {"done": False, "before": _decided(run.lake, iteration)}
    if state["done"]:
        return
    _write(path, state)
    decide_routes(run, iteration)
    think(run, iteration)
    annotate(run, iteration)
    _write(path, {**state, "done": True})


def _decided(lake: Lake, iteration: int) -> dict[str, list[str | None]]:
    return {
        name: [one.route, None if one.passed else one.decided_by, one.reason]
        for name, one in decisions_of(lake, iteration).items()
    }


def _asked(lake: Lake, iterations: tuple[int, int] | None) -> list[int]:
    there = lake.iterations("trajectories")
    found = sorted(
        (one for one in there if iterations is None or iterations[0] <= one < iterations[1]), key=chronological
    )
    if not found:
        held = f"iterations {there[0]} to {there[-1]}" if there else "none at all"
        raise UsageError("`--iterations`: the lake holds no trajectory of these.", f"It holds {held}.")
    return found


def _name(config: Config, iterations: Sequence[int]) -> str:
    """Return the name of a folder that depends on these iterations and the config of the filter."""
    asked = f"{config.filter.model_dump_json()} {config.judge.model_dump_json()} {iterations}"
    return hashlib.sha256(asked.encode()).hexdigest()[:16]


def _counted(decided: Decided, field: int) -> dict[str, int]:
    return dict(sorted(Counter(value for one in decided.values() if (value := one[field]) is not None).items()))


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def _write(path: Path, state: Mapping[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(state))
    os.replace(part, path)
