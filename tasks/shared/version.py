"""Find the version of the running code."""

import subprocess
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path


def version() -> str:
    """Return the version in `pyproject.toml` of a checkout, else the version of the installed package."""
    project = Path(__file__).parents[2] / "pyproject.toml"
    if project.is_file():
        return tomllib.loads(project.read_text())["project"]["version"]
    try:
        return metadata.version("flywheel")
    except metadata.PackageNotFoundError:
        return "unknown"


@cache
def code_version() -> str:
    """Return the commit of a checkout, with `+changes` if files differ from it; else the version of the package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():  # a repository around an installed package belongs to another project
        return f"flywheel {version()}"
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return "unknown"
    return commit + ("+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
