"""Read and register policies by version, and find the champion."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.config import Config
from schemas.failure import UsageError
from schemas.table import utc_now
from schemas.tables.policy import Kind, PolicyVersion, Status
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.shared.version import code_version

STATUS: dict[Kind, Status] = {"initial": "champion", "intermediate": "intermediate"}
"""Status of a new policy by kind, if it is not a candidate."""
UNPROMOTED: dict[str, Status] = {"hold": "held", "reject": "rejected"}
"""Status of a candidate after a decision that keeps the champion."""


@dataclass(frozen=True, slots=True)
class PolicyRecipe:
    """Recipe of a policy, in addition to the config."""

    version: str
    parent: str
    """Policy that the training starts from; empty for a policy without a parent."""
    iteration: int
    pins: Mapping[str, int]
    """Versions of the tables that the policy is made from."""
    kind: Kind = "iteration"
    """Kind of the policy. An intermediate policy is only the start of another training. Other policies are measured and
    may be promoted."""
    like: str | None = None
    """Policy whose training is repeated. The training set must be the same."""


def register(
    lake: Lake,
    config: Config,
    recipe: PolicyRecipe,
    method: str,
    checkpoint: str,
    metrics: Mapping[str, Any],
    seed: int,
    training_set: str | None = None,
) -> None:
    """Add the row of a policy. The first policy of a lake is champion; later policies are candidates or
    intermediate."""
    row = PolicyVersion(
        policy_version=recipe.version,
        kind=recipe.kind,
        parent=recipe.parent or None,
        iteration=recipe.iteration,
        method=method,
        checkpoint=checkpoint,
        data_versions=json.dumps(dict(recipe.pins), sort_keys=True),
        config=config.canonical(),
        code=code_version(),
        seed=seed,
        metrics=json.dumps(metrics, sort_keys=True),
        status=STATUS.get(recipe.kind, "candidate"),
        created_at=utc_now(),
        repeats=recipe.like,
        training_set=training_set,
    )
    lake.append("policies", [row])


def promotions(lake: Lake) -> list[Promotion]:
    """Return the log of promotions and rollbacks, oldest first."""
    return sorted(lake.rows(Promotion), key=lambda one: (one.created_at, one.event))


def policies(lake: Lake) -> dict[str, PolicyVersion]:
    """Return all policies by version, oldest first, each with its current status.

    The table `promotions` determines the status. A policy without an entry has its stored status.
    """
    rows = {row.policy_version: row for row in sorted(lake.rows(PolicyVersion), key=lambda row: row.created_at)}
    status: dict[str, Status] = {}
    now = None
    for name, row in rows.items():
        status[name], now = ("retired", name) if row.status == "champion" else (row.status, now)
    for event in promotions(lake):
        name = event.champion
        if event.decision in UNPROMOTED and status.get(event.policy_version) == "candidate":
            status[event.policy_version] = UNPROMOTED[event.decision]
        elif event.decision in ("promote", "rollback") and name in rows:
            status[name], now = "retired", name
    if now is not None:
        status[now] = "champion"
    return {name: row.model_copy(update={"status": status[name]}) for name, row in rows.items()}


def champion_if_any(lake: Lake) -> PolicyVersion | None:
    """Return the champion, or None if the lake has no policy yet."""
    return next((row for row in reversed(policies(lake).values()) if row.status == "champion"), None)


def champion(lake: Lake) -> PolicyVersion:
    """Return the champion. Raise UsageError if the lake has no policy yet."""
    if (row := champion_if_any(lake)) is None:
        raise UsageError(f"The lake {lake.uri} has no champion yet.", "`flywheel run` makes the first policy.")
    return row


def policy_row(lake: Lake, version: str) -> PolicyVersion:
    """Return a policy by its version, or the current champion for the name `champion`.

    Raises:
        UsageError: the policy does not exist. The message has the existing versions.
    """
    if version == "champion":
        return champion(lake)
    rows = policies(lake)
    if version not in rows:
        raise UsageError(f"There is no policy `{version}` in {lake.uri}.", f"There are: {', '.join(rows) or 'none'}.")
    return rows[version]


def measured_ancestor(lake: Lake, version: str | None) -> PolicyVersion:
    """Return the policy to compare with: the named policy or, for an intermediate policy, its measured ancestor."""
    row = policy_row(lake, version or "champion")
    return measured_ancestor(lake, row.parent) if row.kind == "intermediate" else row


def ancestry(rows: Mapping[str, PolicyVersion], version: str | None) -> list[str]:
    """Return a policy and its ancestors among these policies, the nearest first."""
    found: list[str] = []
    while version is not None and version in rows and version not in found:
        found.append(version)
        version = rows[version].parent
    return found


def begins(row: PolicyVersion) -> bool:
    """Check whether a policy is the first of its lake, made from random weights or from `policy.base`."""
    return row.method in ("random", "given")


def origin_of(lake: Lake) -> PolicyVersion | None:
    """Return the policy without a parent that the champion descends from; None before the first policy."""
    rows = policies(lake)
    current = next((name for name in reversed(rows) if rows[name].status == "champion"), None)
    return None if current is None else rows[ancestry(rows, current)[-1]]


def made_from(lake: Lake, names: Collection[str]) -> list[str]:
    """Return the policies that were trained or merged from the named policies, oldest first."""
    rows, found = policies(lake), set(names)
    sources = {name: {row.parent, *json.loads(row.metrics or "{}").get("merged", {})} for name, row in rows.items()}
    while new := {name for name, above in sources.items() if above & found} - found:
        found |= new
    return [name for name in rows if name in found.difference(names)]


def made_in(lake: Lake, iteration: int, kind: Kind = "iteration") -> PolicyVersion | None:
    """Return the policy of this kind that an iteration made, or None. The candidate has the kind `iteration`."""
    made = (row for row in policies(lake).values() if (row.iteration, row.kind) == (iteration, kind))
    return next(made, None)


def version_of(iteration: int) -> str:
    """Return the name of the policy that an iteration trains."""
    return f"policy-{iteration:04d}"


def last_iteration(lake: Lake) -> int:
    """Return the latest iteration with trajectories; 0 if there is none. Imports do not count."""
    return max([0, *lake.iterations("trajectories")])
