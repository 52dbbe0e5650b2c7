"""Upgrade a lake of an earlier schema version in place.

Each step is one commit, and is skipped if an earlier upgrade made it. The schema marker is renewed last. A killed
upgrade continues when it is started again. Until the upgrade is complete, older code can read the tables whose columns
did not change, and cannot write to the others. Table versions that policies pin do not change. Their missing columns
are computed when they are read (`schemas.table.Table.added`).
"""

import json
from collections.abc import Callable

from schemas.config.load import modern
from schemas.config.sections import LakeConfig
from schemas.table import SCHEMA_VERSION
from schemas.tables import TABLES
from storage.forgetting import heal, unreadable
from storage.lake import Lake

OLDEST = 1
"""Oldest schema version that can be upgraded."""


def upgrade(
    config: LakeConfig, note: Callable[[str], None], require_idle: Callable[[Lake], None] = lambda lake: None
) -> list[str]:
    """Upgrade the lake at `lake.uri`.

    A lake of the current version only gets columns that were added later, and fixes for files that `flywheel forget` of
    an earlier release wrote.

    Args:
        config: the lake's address and settings.
        note: called with the text of every step.
        require_idle: raises an error if other processes use the lake; called before files are removed.

    Returns:
        Texts of the steps.

    Raises:
        LakeError: there is no lake, or it has a newer schema version.
    """
    lake = Lake.open(config, create=False, oldest=OLDEST)
    made: list[str] = []

    def done(step: str) -> None:
        made.append(step)
        note(step)

    for name, contract in TABLES.items():
        if contract.added and (lacked := lake.upgrade(name)):
            done(f"table {name}: {', '.join(lacked)}")
    if unreadable(lake):
        require_idle(lake)
    for name, count in heal(lake).items():
        done(f"table {name}: {count} files that only flywheel could read since something was forgotten")
    if lake.schema_version == SCHEMA_VERSION:
        return made
    if changed := _configs(lake):
        done(f"configs of {changed} policies")
    lake.finish_upgrade()
    done(f"schema version {SCHEMA_VERSION}")
    return made


def _configs(lake: Lake) -> int:
    """Rewrite the configs of policies with the current keys, and return the number of changed ones."""
    rows = lake.read("policies").to_pylist()
    renewed = [{**row, "config": json.dumps(modern(json.loads(row["config"])))} for row in rows]
    changed = [
        new for new, old in zip(renewed, rows, strict=True) if json.loads(new["config"]) != json.loads(old["config"])
    ]
    lake.upsert("policies", changed)
    return len(changed)
