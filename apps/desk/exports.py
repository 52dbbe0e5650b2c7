"""Export selected trajectories from a page, as a zip file of the folder that `flywheel data export` writes."""

import re
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from apps.commands.data import screen_reader
from curation.converters.format import FORMATS
from curation.redaction import Redactor
from schemas.config import Config
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.exchange.export import export_trajectories
from tasks.shared.paths import work_folder

KEPT = 5
"""Number of exports that the work folder keeps, the newest ones."""
_NAME = re.compile(r"[a-z0-9-]{1,60}\.zip")


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """An export that a page can download."""

    trajectories: list[str]
    file: str
    """Name of the zip file, below `/exports/`."""
    mb: float
    """Size of the zip file in MB."""
    redacted: bool
    """Whether secrets and personal data were removed, as of all formats that are not imported back."""
    notes: list[str]


def write_export(config: Config, lake: Lake, names: Sequence[str], form_name: str) -> ExportedFile:
    """Writes trajectories in a format to a zip file in the work folder.

    Args:
        config: the server's resolved config.
        lake: the lake.
        names: ids of the trajectories.
        form_name: name of the format, such as `agentnet`.

    Raises:
        UsageError: there is no such format or trajectory.
        LakeError: a picture is not in the lake.
    """
    if form_name not in FORMATS.names:  # a dotted path would import any module of the server
        problem = f"`format`: {form_name[:40]!r} is no built-in format."
        raise UsageError(problem, f"One of {', '.join(FORMATS.names)}; `flywheel data export` also takes your own.")
    form = FORMATS.class_of(form_name)()
    redactor = None if form.comes_home else Redactor()
    reader = screen_reader(config, lake) if redactor else None
    name = f"{form.name}-{uuid.uuid4().hex[:12]}"
    folder = _folder(lake)
    to = folder / name
    try:
        export_trajectories(config, lake, form, to, redactor=redactor, reader=reader, chosen=names)
        made = Path(shutil.make_archive(str(folder / f".{name}"), "zip", folder, name))
    finally:
        shutil.rmtree(to, ignore_errors=True)
    made = made.replace(folder / f"{name}.zip")
    for old in sorted(folder.glob("*.zip"), key=lambda one: one.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)
    return ExportedFile(list(names), made.name, made.stat().st_size / 1e6, redactor is not None, form.notes)


def export_file(lake: Lake, name: str) -> Path | None:
    """Returns the path of an export by the name of its file; None if there is none."""
    path = _folder(lake) / name
    return path if _NAME.fullmatch(name) and path.is_file() else None


def _folder(lake: Lake) -> Path:
    return work_folder(lake, "exports")
