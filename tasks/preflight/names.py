"""Find files of the user that have the name of a module that this project imports."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from schemas.failure import UsageError

PACKAGES = (
    "apps", "common", "configs", "curation", "environments", "flows", "flywheel", "learning", "models", "rollout",
    "schemas", "storage", "tasks",
)  # fmt: skip
"""Packages of this project."""
_NAMES = {*PACKAGES, *sys.stdlib_module_names}
"""Names that no module of the user may have on the path: Python's own, such as `secrets`, are imported by libraries."""


def shadowing() -> str:
    """Describe modules in the current folder and in the folders of `PYTHONPATH` that have a name of ours or Python's.

    Processes of this project import nothing from the current folder, so a file there only hides a module from the
    user's own scripts.

    Raises:
        UsageError: a folder of `PYTHONPATH` has such a module, which every process would import.
    """
    here, entries = Path.cwd(), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    on_path = {Path(one).absolute() for one in entries if one}
    if found := [file for folder in sorted(on_path) for file in _of(folder)]:
        raise UsageError(
            f"`PYTHONPATH` has {', '.join(map(str, found))}, which {_hide(found)}.",
            "Rename it, or take its folder out of PYTHONPATH.",
        )
    if local := list(_of(here)):
        names = ", ".join(file.name for file in local)
        return (
            f"{names} in this folder {_hide(local)} from your scripts here; flywheel's processes import nothing from it"
        )
    return "no file of yours has the name of a module that flywheel imports"


def _hide(files: list[Path]) -> str:
    """Return the modules that files hide, as the end of a sentence."""
    names = sorted({file.stem for file in files})
    kinds = [f"{name} ({'flywheel' if name in PACKAGES else 'Python'})" for name in names]
    return f"{'hides' if len(files) == 1 else 'hide'} {', '.join(kinds)}"


def _of(folder: Path) -> Iterator[Path]:
    """Yield the modules in a folder that have a name of `_NAMES`, except this project's and Python's own."""
    if not folder.is_dir() or folder in _own():
        return
    for file in sorted(folder.iterdir()):
        module = (file / "__init__.py").is_file() or (file.suffix == ".py" and file.is_file())
        if module and file.stem in _NAMES:
            yield file


def _own() -> set[Path]:
    """Return the folders of this project's packages and of Python's standard library."""
    origins = [found.origin for name in ("common.process", "os") if (found := find_spec(name)) and found.origin]
    return {Path(origins[0]).parents[1], *(Path(one).parent for one in origins[1:])}
