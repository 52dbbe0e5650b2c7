"""Remember the config of a folder's last run, so that later commands there need no `--config`.

The work folder holds the record. It ends with its lake: after the lake is deleted, the default config holds again.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from common.process import home
from schemas.config.profiles import FOLDER, OWN, config_file
from schemas.failure import UsageError

if TYPE_CHECKING:
    from schemas.config.sections import LakeConfig

FILE = "configs.json"
"""File in the work folder: by folder, the `--config` of its last run, and the lake's address."""


def record(named: Path | None, lake: "LakeConfig") -> None:
    """Records the config of a run that starts in the current folder.

    Args:
        named: file or profile, as given by `--config`; None for the default config, which needs no record.
        lake: the lake of the run.
    """
    from storage.address import resolve

    known, folder = _known(), str(Path.cwd())
    if known.pop(folder, None) is None and named is None:
        return
    if named is not None:
        file = config_file(named)
        name = file.stem if file.parent == FOLDER else str(file.absolute())
        known[folder] = {"config": name, "lake": resolve(lake).uri}
    target = home() / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{FILE}.{os.getpid()}")
    draft.write_text(json.dumps(known, indent=2))
    draft.replace(target)


def last_config() -> str | None:
    """Returns the profile or file that the last run in the current folder named with `--config`.

    Returns:
        None if the folder has a `flywheel.toml`, if no run named a config, or if the run's lake or config is gone.
    """
    from storage.schema_marker import NAME

    found = None if Path(OWN).is_file() else _known().get(str(Path.cwd()))
    if found is None or ("://" not in found["lake"] and not Path(found["lake"], NAME).is_file()):
        return None
    try:
        config_file(found["config"])
    except UsageError:
        return None
    return found["config"]


def _known() -> dict[str, dict[str, str]]:
    """Returns the records; none if the file is unreadable, and only those of this form."""
    try:
        held = json.loads((home() / FILE).read_text())
    except (OSError, ValueError):
        return {}
    return {
        folder: one
        for folder, one in (held.items() if isinstance(held, dict) else ())
        if isinstance(one, dict) and all(isinstance(one.get(name), str) for name in ("config", "lake"))
    }
