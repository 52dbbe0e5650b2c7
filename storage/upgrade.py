"""Brings a lake of an earlier schema version up to date, in place.

Each step is one commit and knows by looking whether it was made, and the mark is renewed last: an upgrade that is
killed anywhere is gone on with by starting it again. Until then older code reads the lake, but is refused where it
would write to a table that has new columns. Versions that policies pin stay as they are; what they lack is computed as
they are read (`schemas.table.Table.added`).
"""

import json
from collections.abc import Callable

from schemas.config.old import modern
from schemas.config.sections import LakeConfig
from schemas.table import SCHEMA_VERSION
from schemas.tables import TABLES
from storage.forgetting import heal, unreadable
from storage.lake import Lake

OLDEST = 1
"""The oldest schema version that can be brought up to date."""


def upgrade(
    config: LakeConfig, note: Callable[[str], None], require_idle: Callable[[Lake], None] = lambda lake: None
) -> list[str]:
    """Upgrades the lake at `lake.uri`; does nothing to one of today's version but give it columns that came later
    and put right what a `forget` of an earlier release left.

    Args:
        config: where the lake is.
        note: is called with every step that was made, as it is made.

        require_idle: raises where somebody works on the lake; asked before files are taken away.

    Returns:
        The steps that were made.

    Raises:
        LakeError: there is no lake, or a newer one.
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
    """Writes the configs that policies were made by in today's keys; returns how many there were to write."""
    rows = lake.read("policies").to_pylist()
    renewed = [{**row, "config": json.dumps(modern(json.loads(row["config"])))} for row in rows]
    changed = [
        new for new, old in zip(renewed, rows, strict=True) if json.loads(new["config"]) != json.loads(old["config"])
    ]
    lake.upsert("policies", changed)
    return len(changed)
