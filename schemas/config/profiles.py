"""Finds the config file: a named file, a named profile, or the default.

The default is `flywheel.toml` in the current folder, which `flywheel init` writes, else the profile `laptop`. Profiles
are installed with the code, in `configs/`.
"""

import tomllib
from pathlib import Path
from typing import Any

from schemas.failure import UsageError

OWN = "flywheel.toml"
"""Name of a project's config file."""
LAPTOP = "laptop"
FOLDER = Path(__file__).parents[2] / "configs"


def config_file(named: str | Path | None = None) -> Path:
    """Finds the config file.

    Args:
        named: a file; or, if there is no such file, a profile such as `laptop` or `configs/laptop.toml`. The default
            config if not given.

    Raises:
        UsageError: there is neither such a file nor such a profile.
    """
    path = Path(named if named is not None else OWN)
    if path.is_file():
        return path
    name = LAPTOP if named is None else path.stem
    if named is None or path in (Path(name), Path("configs", f"{name}.toml")):
        profile = FOLDER / f"{name}.toml"
        if profile.is_file():
            return profile
    there = ", ".join(sorted(one.stem for one in FOLDER.glob("*.toml")))
    raise UsageError(
        f"There is no config file {path}.",
        f"Name one with --config, or a profile ({there}); `flywheel init` writes one.",
    )


def read_toml(path: Path | None) -> dict[str, Any]:
    """Reads the fields of a config file, or of a profile.

    Raises:
        UsageError: the file does not exist, or is not TOML in UTF-8.
    """
    path = config_file(path)
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.", "Correct that line.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}.", "Save it as UTF-8.") from error
