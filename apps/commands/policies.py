"""Implement the operations of `evaluate`, `retrain` and `export` on policies."""

import json
import shutil
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from apps.calling import call
from apps.commands.model_card import write_model_card
from apps.commands.status import bar
from apps.options import open_lake
from common.atomic_folder import atomic_folder
from models.tiny.layout import TRAINING
from schemas.config import Config
from schemas.failure import UsageError
from schemas.table import utc_now
from schemas.tables.promotion import Promotion
from storage.blobs import MANIFEST
from storage.lake import Lake
from tasks.promote.events import as_dict, event_of
from tasks.running.console import make_table, out
from tasks.shared.cards import check_license
from tasks.shared.paths import cache_folder
from tasks.shared.policies import policy_row
from tasks.shared.status import PolicySuccess, success_of

if TYPE_CHECKING:
    from tasks.measure import Measured

JUST_NOW_S = 60.0
"""Seconds within which an earlier rollback may already be the intended one."""
COLUMNS = ("task", "seed", "success", "attempt", "n_steps")
"""Fields of a measured trajectory; `attempt` and `n_steps` only for more than one attempt."""


@dataclass(frozen=True, slots=True)
class ChallengerOutcome:
    """The outcome of a candidate."""

    policy: str
    status: str
    decision: Promotion | None
    """The promotion decision, with its reason and numbers."""
    success: PolicySuccess | None
    """Success of the candidate; None if it was not measured."""

    @property
    def line(self) -> str:
        """Returns the outcome in one line."""
        if self.status == "candidate" and not (self.decision or self.success):
            again = "the same command without `--train-only` evaluates it"
            return f"{self.policy}: not evaluated; {again}, `flywheel export --policy {self.policy} --to DIR` copies it"
        reason = f": {self.decision.reason}" if self.decision else ""
        return f"{self.policy}: {self.status}{reason}" + (f"; success {self.success.text}" if self.success else "")

    @property
    def as_dict(self) -> dict[str, Any]:
        """Converts the outcome to JSON."""
        return {
            "policy": self.policy, "status": self.status, "success": self.success,
            "decision": self.decision and as_dict(self.decision),
        }  # fmt: skip


def measure(
    config: Config, policy: str, tasks: list[str] | None, seeds: tuple[int, int] | None, attempts: int = 1
) -> "Measured":
    """Measures a policy on tasks with names as in the config."""
    from environments.catalog import name_in
    from tasks.measure import check_seeds
    from tasks.shared.paths import lake_if_any
    from tasks.shared.suite import made_named

    made = made_named(config, lake_if_any(config)) if tasks else {}
    check_tasks(config, [name for name in tasks or () if name not in made])
    if seeds is not None:
        check_seeds(seeds)
    if policy != "explorer" and not Path(policy).is_dir():
        policy_row(open_lake(config), policy)

    found: Measured = call("flows.policies.evaluate", config, policy, tasks, seeds, attempts)
    names = {task: name_in(config, task) for task in found.rates.tasks}
    rates = {names[task]: rate for task, rate in found.rates.tasks.items()}
    each = [replace(one, task=names.get(one.task) or name_in(config, one.task)) for one in found.trajectories]
    return replace(found, rates=replace(found.rates, tasks=rates), trajectories=each)


def check_tasks(config: Config, tasks: list[str] | None) -> None:
    """Raises UsageError for tasks of the config or of `tasks` that no environment has."""
    from environments.catalog import catalog, tasks_named

    catalog(config)
    tasks_named(config, tasks or ())


def measured_as_json(measured: "Measured", attempts: int, each: bool) -> dict[str, Any]:
    """Converts the measurement to JSON; with `each`, every trajectory is an object, and also a bare list for older
    readers."""
    found = {"policy": measured.policy, **asdict(measured.rates)}
    columns = COLUMNS if attempts > 1 else COLUMNS[:3]
    plays = [astuple(one)[: len(columns)] for one in measured.trajectories]
    named = [dict(zip(columns, row, strict=True)) for row in plays]
    return {**found, "trajectories": named, "plays": plays} if each else found


def show_measured(measured: "Measured") -> None:
    """Prints the measurement."""
    table = make_table("<task", "success", "<", "reward", "trajectories")
    for task, at in measured.rates.tasks.items():
        table.add_row(task, f"{at.success:.3f}", Text(bar(at.success), "cyan"), f"{at.reward:.3f}", str(at.n))
    console = out()
    console.print(table)
    rates = measured.rates
    if rates.success is None:
        console.print(f"\nNo trajectory could be finished: {rates.text}.")
    else:
        interval = "{:.3f} to {:.3f}, 95 %, trajectories".format(*rates.ci)
        console.print(f"\n{measured.policy}: {rates.success:.3f} ({interval})")
    if rates.unread:
        console.print(f"{rates.unread}. Check `policy.family`.", markup=False)


def retrain_policy(config: Config, like: str | None, train_only: bool = False) -> ChallengerOutcome:
    """Trains from pinned data, and compares the new policy with the champion, unless it should only be trained.

    Raises:
        UsageError: `like` does not exist.
        Paused: the lake is paused, or was paused during the work.
    """
    from tasks.preflight.preflight import require
    from tasks.running.budget import require_budget, require_unpaused

    lake = open_lake(config)
    if like is not None:
        policy_row(lake, like)
    require_unpaused(lake)
    require_budget(lake, config.budget)
    require(config, trains_only=train_only)

    version = call("flows.policies.retrain", config, like, train_only)
    if not isinstance(version, str):
        raise version.refusal()
    return outcome_of(lake, version)


def outcome_of(lake: Lake, version: str) -> ChallengerOutcome:
    """Reads the outcome of a candidate."""
    decision = event_of(lake, f"challenge:{version}")
    return ChallengerOutcome(version, policy_row(lake, version).status, decision, success_of(lake, version))


def roll_back_to(lake: Lake, version: str | None, reason: str) -> Promotion:
    """Make an earlier champion the champion again and return the record.

    Raises:
        UsageError: no policy is named, and the previous policy was never trained or the last decision was a recent
            rollback, perhaps by another user for the same fault. Also in the cases of `roll_back`.
    """
    from tasks.promote.promote import NAME_IT, before, roll_back
    from tasks.shared.policies import promotions

    if version is not None:
        return roll_back(lake, version, reason)
    now, last = policy_row(lake, "champion"), next(reversed(promotions(lake)), None)
    if last is not None and last.decision == "rollback":
        ago = (utc_now() - last.created_at).total_seconds()
        if ago < JUST_NOW_S:
            raise UsageError(
                f"{last.against} was rolled back {ago:.0f} s ago, and {last.champion} is the champion.", NAME_IT
            )
    if (target := before(lake, now)).method == "random":
        raise UsageError(f"{target.policy_version}, the champion before, was never trained.", NAME_IT)
    return roll_back(lake, None, reason, now.policy_version)


def adopt_policy(config: Config, directory: Path, name: str | None) -> ChallengerOutcome:
    """Imports a checkpoint into the lake, and compares it with the champion, if there is one.

    Raises:
        CheckpointError: `directory` has no model; nothing was started.
    """
    from tasks.adopt import files_of
    from tasks.preflight.preflight import require

    files_of(directory.absolute())
    require(config)
    version = call("flows.policies.adopt", config, str(directory.absolute()), name)
    return outcome_of(open_lake(config), version)


def merge_policies(
    config: Config, policies: list[str], weights: list[float] | None, parts: int
) -> tuple[ChallengerOutcome, dict[str, Any]]:
    """Merges policies with a common start, and compares the new policy with the champion.

    Returns:
        The outcome, and the metrics of the merge, such as the weights (`merged`).
    """
    from tasks.merge import check_named
    from tasks.preflight.preflight import require

    lake = open_lake(config)
    check_named(lake, policies, weights)
    require(config)

    version = call("flows.merge.merge", config, policies, weights, parts)
    return outcome_of(lake, version), json.loads(policy_row(lake, version).metrics)


def require_empty(folder: Path, option: str) -> None:
    """Raises UsageError if a folder of an option is neither new nor empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"`{option}`: {folder} is not an empty folder.", "Name a new one; nothing is overwritten.")


def export_policy(lake: Lake, name: str, to: Path, license: str = "") -> str:
    """Copies a policy's checkpoint to a new or empty folder, with a card, and returns its version.

    Args:
        lake: the lake.
        name: the policy's version, or `champion`.
        to: the folder.
        license: licence for the card, as on the Hub; if empty, that of the base model's card.

    Raises:
        UsageError: the policy does not exist, the folder is not empty, or the licence has another form.
        CheckpointError: the stored checkpoint is broken.
    """
    row = policy_row(lake, name)
    require_empty(to, "--to")
    check_license(license)
    cache, without = cache_folder(lake, row.policy_version), (f"{TRAINING}/",)
    source = lake.blobs.get_directory(row.checkpoint, cache, without)
    with atomic_folder(to) as whole:
        shutil.copytree(source, whole, ignore=shutil.ignore_patterns(MANIFEST, TRAINING))
        write_model_card(lake, row, whole, license)
    return row.policy_version
