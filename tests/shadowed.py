"""A user's folder whose files have the names of our packages, and of packages that we use: none of them is imported."""

from pathlib import Path

FOLDERS = ("schemas", "tasks", "apps", "environments", "storage", "prefect")
FILES = ("models", "learning", "flows", "rollout", "curation", "torch", "uvicorn", "yaml", "typing_extensions")
OWN = 'raise RuntimeError(f"{__file__} is the user\'s own")\n'


def shadow(folder: Path) -> None:
    """Puts them there."""
    for name in FOLDERS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(OWN)
    for name in FILES:
        (folder / f"{name}.py").write_text(OWN)
