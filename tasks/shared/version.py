"""Find the version of the running code."""

import subprocess
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path


def version() -> str:
    """Return the version in `pyproject.toml` of the checkout, else of the installed package."""
    project = Path(__file__).parents[2] / "pyproject.toml"
    if project.is_file():
        return tomllib.loads(project.read_text())["project"]["version"]
    try:
        return metadata.version("flywheel")
    except metadata.PackageNotFoundError:
        return "unknown"


@cache
def code_version() -> str:
    """Return the commit of the running code, with `+changes` if files differ from it; its version if installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():  # a repository around an installed package is another project's
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
