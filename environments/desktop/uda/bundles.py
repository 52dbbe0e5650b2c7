"""Read task bundles in the form of UDA-Gym: a folder with an instruction, a setup, hidden files and a check.

Source: the bundles that CUA-Gym's prompts `setup-gen` and `reward-gen` describe (xlang-ai/CUA-Gym @4eefedb). A bundle
has `meta.json` (`id`, `driver: "uda-gym"`, `timeout_seconds`), `instruction.md`, `setup.sh`, `check.sh`, and the
optional folders `exec/`, `hidden/` and `gt/`. Only `instruction.md` is for the policy.
"""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from schemas.failure import UsageError
from schemas.problem import problem_of
from schemas.tables.task import TaskEntry

META, INSTRUCTION, SETUP, CHECK = "meta.json", "instruction.md", "setup.sh", "check.sh"
EXEC, HIDDEN, TRUTH = "exec", "hidden", "gt"
SECRETS = "harness_env.tsv"
MAX_MB = 64
"""Maximum megabytes of a bundle's files, which a lease sends to its desktop."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")


class _Meta(BaseModel):
    id: str
    driver: Literal["uda-gym"]
    runtime: dict[str, Any] = {}
    timeout_seconds: Annotated[float, Field(gt=0.0)] = 1800.0


@dataclass(frozen=True, slots=True)
class UdaBundle:
    """A bundle."""

    bundle_id: str
    instruction: str
    timeout_s: float
    """Maximum seconds of the setup, and of the check."""
    folder: Path
    profile: str = ""
    """Profile of the machine that the bundle was made for (`runtime.profile`), such as `datascience`."""

    def script(self, name: str) -> bytes:
        """Returns the content of `setup.sh` or `check.sh`."""
        return (self.folder / name).read_bytes()

    def files(self, part: str) -> dict[str, tuple[bytes, int]]:
        """Returns content and mode of the files below a folder of the bundle, by path; empty if there is none."""
        root = self.folder / part
        found = sorted(one for one in root.rglob("*") if one.is_file()) if root.is_dir() else []
        return {str(one.relative_to(root)): (one.read_bytes(), one.stat().st_mode & 0o777) for one in found}


def read_uda_bundles(named: str | Path, key: str) -> dict[str, UdaBundle]:
    """Reads a bundle, or all bundles in a folder.

    Args:
        named: the folder; empty if the config names none.
        key: config key with the folder, for messages.

    Raises:
        UsageError: no folder is named, there is no bundle, or one is incomplete; the message names its file and field.
    """
    if not named:
        raise UsageError(f"`{key}` is not set.", "Set it to a folder of bundles.")
    folder = Path(named).expanduser().absolute()
    if not folder.is_dir():
        raise UsageError(f"`{key}`: {folder} is no folder.", f"Name a folder of bundles, each with {META}.")
    places = [folder] if (folder / META).is_file() else sorted(one.parent for one in folder.glob(f"*/{META}"))
    if not places:
        raise UsageError(f"`{key}`: no folder in {folder} has {META}.", "Name the folder that the bundles are in.")
    found: dict[str, UdaBundle] = {}
    for place in places:
        bundle = _read(place, key)
        if (other := found.get(bundle.bundle_id)) is not None:
            problem = f"`{key}`: {place} and {other.folder} have the id {bundle.bundle_id!r}."
            raise UsageError(problem, f"Give each bundle an `id` of its own in {META}.")
        found[bundle.bundle_id] = bundle
    return found


def entries_of(bundles: Iterable[str], kind: str, max_steps: int) -> dict[str, TaskEntry]:
    """Makes the entry of each bundle's task, by its id.

    Args:
        bundles: ids.
        kind: tag of the environment's kind.
        max_steps: limit of steps of each task.
    """
    return {
        name: TaskEntry(
            instruction="{}",
            tags=(kind, "uda-gym"),
            max_steps=max_steps,
            lineage=f"uda-gym {name}",
            deterministic=False,
            graded=True,
        )
        for name in bundles
    }


def _read(place: Path, key: str) -> UdaBundle:
    try:
        meta = _Meta.model_validate(json.loads((place / META).read_text(encoding="utf-8")))
    except ValidationError as error:
        where, problem = problem_of(error)
        raise _incomplete(place / META, key, f"`{where}`: {problem}") from error
    except (OSError, ValueError) as error:
        raise _incomplete(place / META, key, str(error)) from error
    if not _NAME.fullmatch(meta.id):
        raise _incomplete(place / META, key, f"`id`: {meta.id[:80]!r} is no name of letters, digits, dots and dashes")
    for name in (INSTRUCTION, SETUP, CHECK):
        if not (place / name).is_file():
            raise _incomplete(place / name, key, "there is no such file")
    if (place / SECRETS).is_file() and (place / SECRETS).read_bytes().strip():
        problem = "programs that the setup starts would show the policy these variables"
        raise _incomplete(place / SECRETS, key, problem)
    size = 0
    for folder, folders, files in os.walk(place):
        for name in (*folders, *files):
            one = Path(folder, name)
            if one.is_symlink():
                raise _incomplete(one, key, "links are not followed: put the file itself there")
            size += one.stat().st_size
    if size > MAX_MB << 20:
        raise _incomplete(place, key, f"{size >> 20} MB, and a bundle has at most {MAX_MB} MB")
    instruction = (place / INSTRUCTION).read_text(encoding="utf-8", errors="replace").strip()
    if not instruction:
        raise _incomplete(place / INSTRUCTION, key, "it is empty")
    return UdaBundle(meta.id, instruction, meta.timeout_seconds, place, str(meta.runtime.get("profile") or ""))


def _incomplete(file: Path, key: str, problem: str) -> UsageError:
    return UsageError(f"`{key}`: {file}: {problem}.", "Repair the bundle, or move it out of the folder.")
