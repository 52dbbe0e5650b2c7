"""What `evaluate`, `retrain` and `export` do with policies."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from apps.calling import call
from apps.commands.status import bar
from apps.environment import make_prefect_home
from apps.lakes import open_lake
from models.tiny.layout import TRAINING
from schemas.beside import written_beside
from schemas.config import Config
from schemas.failure import UsageError
from storage.blobs import MANIFEST
from storage.lake import Lake
from tasks.promote.events import event_of, shown
from tasks.running.console import out
from tasks.shared.paths import cache_folder
from tasks.shared.policies import policy_row

COLUMNS = ("task", "seed", "success", "attempt", "n_steps")
"""Of a measured trajectory; the last two where there is more than one attempt."""
EACH = ("trajectories", "plays")
"""What holds every trajectory: named, and in the earlier form, as bare lists of the same."""


def measure(
    config: Config, policy: str, tasks: list[str] | None, seeds: tuple[int, int] | None, attempts: int = 1
) -> dict[str, Any]:
    """Success over all and by task, tasks named as in the config."""
    make_prefect_home()
    from environments.catalog import name_in
    from tasks.measure import Measured, check_seeds
    from tasks.shared.paths import lake_if_any
    from tasks.shared.suite import made_named

    made = made_named(config, lake_if_any(config)) if tasks else {}
    check_tasks(config, [name for name in tasks or () if name not in made])
    if seeds is not None:
        check_seeds(seeds)
    if policy != "explorer" and not Path(policy).is_dir():
        policy_row(open_lake(config), policy)

    found: Measured = call("flows.evaluate.evaluate", config, policy, tasks, seeds, attempts)
    names = {task: name_in(config, task) for task in found.rates.tasks}
    by_task = {names[task]: asdict(rate) for task, rate in found.rates.tasks.items()}
    each = [
        [names.get(one.task) or name_in(config, one.task), one.seed, one.success]
        + ([one.attempt, one.n_steps] if attempts > 1 else [])
        for one in found.trajectories
    ]
    named = [dict(zip(COLUMNS, row, strict=False)) for row in each]
    return {
        "policy": found.policy,
        "success": found.rates.success,
        "ci": found.rates.ci,
        "tasks": by_task,
        "trajectories": named,
        "plays": each,
    }


def check_tasks(config: Config, tasks: list[str] | None) -> None:
    """Raises UsageError for tasks of the config or of `tasks` that no environment has."""
    from environments.catalog import catalog, tasks_named

    catalog(config)
    tasks_named(config, tasks or ())


def show_measured(measured: dict[str, Any]) -> None:
    """The same for people."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("task", "success", "", "trajectories"):
        table.add_column(name, justify="left" if name in ("task", "") else "right")
    for task, numbers in measured["tasks"].items():
        table.add_row(task, f"{numbers['success']:.3f}", Text(bar(numbers["success"]), "cyan"), str(numbers["n"]))
    console = out()
    console.print(table)
    if measured["success"] is None:
        console.print("\nNo trajectory could be finished: every one was an environment failure.")
    else:
        interval = "{:.3f} to {:.3f}, 95 %, trajectories".format(*measured["ci"])
        console.print(f"\n{measured['policy']}: {measured['success']:.3f} ({interval})")


def retrain_policy(config: Config, like: str | None) -> dict[str, Any]:
    """Trains from pinned data; returns the new version, whether it is the champion now, and why.

    Raises:
        Paused: the lake's wheel is paused, or was meanwhile.
    """
    make_prefect_home()
    from tasks.preflight.preflight import require
    from tasks.running.budget import require_budget
    from tasks.running.pausing import require_unpaused

    lake = open_lake(config)
    policy_row(lake, like or "champion")
    require_unpaused(lake)
    require_budget(lake, config.budget)
    require(config)

    version = call("flows.retrain.retrain", config, like)
    if not isinstance(version, str):
        raise version.refusal()
    return outcome_of(lake, version)


def outcome_of(lake: Lake, version: str) -> dict[str, Any]:
    """What became of a challenger: `policy`, `status`, and the `decision` with its numbers."""
    event = event_of(lake, f"challenge:{version}")
    return {"policy": version, "status": policy_row(lake, version).status, "decision": event and shown(event)}


def outcome_line(done: dict[str, Any]) -> str:
    """The same in one line."""
    why = f": {done['decision']['reason']}" if done["decision"] else ""
    return f"{done['policy']}: {done['status']}{why}"


def roll_back_to(lake: Lake, version: str | None, reason: str) -> dict[str, Any]:
    """Makes an earlier champion reign again; returns the record."""
    make_prefect_home()
    from tasks.promote.rollback import roll_back

    return shown(roll_back(lake, version, reason))


def adopt_policy(config: Config, directory: Path, name: str | None) -> dict[str, Any]:
    """Brings a checkpoint into the lake; returns its version, whether it is the champion now, and why.

    Raises:
        CheckpointError: `directory` holds no model; nothing was started.
    """
    lake = open_lake(config)
    policy_row(lake, "champion")
    make_prefect_home()
    from tasks.adopt import files_of
    from tasks.preflight.preflight import require

    files_of(directory.absolute())
    require(config)
    return outcome_of(lake, call("flows.adopt.adopt", config, str(directory.absolute()), name))


def merge_policies(config: Config, policies: list[str], weights: list[float] | None, parts: int) -> dict[str, Any]:
    """Merges policies of one start; returns the new version, its weights, and whether it is the champion now."""
    make_prefect_home()
    from tasks.merge import check_named
    from tasks.preflight.preflight import require

    lake = open_lake(config)
    check_named(lake, policies, weights)
    require(config)

    version = call("flows.merge.merge", config, policies, weights, parts)
    return {**outcome_of(lake, version), **json.loads(policy_row(lake, version).metrics)}


def export_policy(lake: Lake, name: str, to: Path) -> str:
    """Copies a policy's checkpoint to a new or empty folder and returns its version.

    Raises:
        UsageError: there is no such policy, or the folder holds something.
        CheckpointError: the stored checkpoint is broken.
    """
    row = policy_row(lake, name)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f"`--to`: {to} is not an empty folder.", "Name a new one; nothing is overwritten.")
    cache, without = cache_folder(lake, row.policy_version), (f"{TRAINING}/",)
    source = lake.blobs.get_directory(row.checkpoint, cache, without)
    with written_beside(to) as whole:
        shutil.copytree(source, whole, ignore=shutil.ignore_patterns(MANIFEST, TRAINING))
    return row.policy_version
