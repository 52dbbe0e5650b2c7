"""Finds the config file, also if none is named or a profile is: no command needs the project's folder.

A project's own `flywheel.toml` (`flywheel init` writes it) comes before the laptop profile. Profiles ship with the
code, in `configs/`, in a checkout and in a wheel alike.
"""

import tomllib
from pathlib import Path
from typing import Any

from schemas.failure import UsageError

OWN = "flywheel.toml"
"""A project's config, in its folder."""
LAPTOP = "laptop"
FOLDER = Path(__file__).parents[2] / "configs"


def config_file(named: str | Path | None = None) -> Path:
    """Finds the config file.

    Args:
        named: a file; or a profile, as `laptop` or as `configs/laptop.toml`, where there is no such file; or nothing.

    Raises:
        UsageError: there is neither.
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
    """Reads the fields of a config file, or of the profile that it names.

    Raises:
        UsageError: there is none, or it is not TOML in UTF-8.
    """
    path = config_file(path)
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.", "Correct that line.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}.", "Save it as UTF-8.") from error
