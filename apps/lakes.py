"""What several verbs ask of a lake that is already there."""

import json
from typing import Any

from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.stage import STAGES
from storage.lake import Lake
from tasks.shared.status import iterations


def open_lake(config: Config) -> Lake:
    """The config's lake; raises LakeError where there is none."""
    return Lake.open(config.lake, create=False)


def policies(lake: Lake) -> dict[str, dict[str, Any]]:
    """All policy rows by version, oldest first."""
    rows = lake.read("policies").to_pylist()
    return {row["policy_version"]: row for row in sorted(rows, key=lambda row: row["created_at"])}


def champion(lake: Lake) -> str:
    """The version that now plays; empty before the first policy."""
    reigning = [version for version, row in policies(lake).items() if row["status"] == "champion"]
    return reigning[-1] if reigning else ""


def policy_named(lake: Lake, name: str) -> dict[str, Any]:
    """The row of a version, or of the `champion`; raises UsageError naming the versions there are."""
    rows = policies(lake)
    version = champion(lake) if name == "champion" else name
    if version not in rows:
        raise UsageError(f"There is no policy `{name}` in {lake.uri}.", f"There are: {', '.join(rows) or 'none'}.")
    return rows[version]


def laps(lake: Lake) -> list[dict[str, Any]]:
    """The iterations begun so far, oldest first, without the preparation."""
    return [row for row in iterations(lake) if row["iteration"] >= 0]


def is_finished(lap: dict[str, Any]) -> bool:
    """Whether an iteration's last stage is recorded."""
    return STAGES[-1] in lap["stages_s"]


def pins(policy: dict[str, Any]) -> dict[str, int]:
    """The table versions that a policy was made from."""
    return json.loads(policy["data_versions"] or "{}")
