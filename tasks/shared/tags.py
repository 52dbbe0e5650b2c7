"""Tag trajectories, policies and runs, and write notes on them. Tags change no training."""

import re
import uuid
from collections.abc import Collection, Sequence
from typing import Literal

from schemas.failure import UnknownId, UsageError
from schemas.table import utc_now
from schemas.tables.tag import Tag
from storage.lake import Lake
from tasks.shared.policies import policies
from tasks.shared.reviews import LONGEST, require_name
from tasks.shared.runs import run_named
from tasks.shared.trajectories import episode_of, trajectories_beginning

Subject = Literal["trajectory_id", "policy_version", "run_id"]
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
_TABLES: dict[str, Subject] = {
    "trajectories": "trajectory_id",
    "evaluation_trajectories": "trajectory_id",
    "stages": "run_id",
}
"""Tables with trajectories and runs, each with its column of their ids."""


def add_tag(lake: Lake, names: Sequence[str], tag: str, person: str, note: str = "") -> list[Tag]:
    """Tag trajectories, policies or runs; those that have the tag already keep it.

    Args:
        lake: the lake.
        names: ids of trajectories, versions of policies, or ids of runs.
        tag: the tag; empty for a note alone.
        person: the name of its author.
        note: free text.

    Returns:
        The new rows.

    Raises:
        UsageError: a name is unknown, or the tag, note or person is invalid. Nothing is written.
    """
    _require_valid(tag, note, person)
    subjects = subjects_of(lake, names)
    there = {subject_of(one) for one in tags_of(lake, subjects) if one.tag == tag and not note}
    rows = [_row(kind, name, tag, note, person) for name, kind in subjects.items() if (kind, name) not in there]
    lake.append("tags", rows)
    return rows


def remove_tag(lake: Lake, names: Sequence[str], tag: str, person: str) -> list[Tag]:
    """Remove a tag, and return the removed rows.

    Raises:
        UsageError: a name is unknown, or none of them has the tag.
    """
    require_name(person)
    there = tags_of(lake, subjects_of(lake, names))
    found = [one for one in there if one.tag == tag]
    if not found:
        known = ", ".join(sorted({one.tag for one in there} - {""})) or "none"
        raise UsageError(f"`tag`: none of them has the tag {tag[:40]!r}.", f"Their tags: {known}.")
    change = {"tag": "", "note": "", "person": person, "created_at": utc_now()}
    lake.append(
        "tags", [one.model_copy(update={**change, "tag_id": _new_id(), "removes": one.tag_id}) for one in found]
    )
    return found


def tags_of(lake: Lake, names: Collection[str]) -> list[Tag]:
    """Return the tags and notes of trajectories, policies and runs that were not removed, oldest first."""
    rows = lake.rows(Tag)
    removed, wanted = {one.removes for one in rows}, set(names)
    kept = [one for one in rows if one.removes is None and one.tag_id not in removed and subject_of(one)[1] in wanted]
    return sorted(kept, key=lambda one: one.created_at)


def subjects_of(lake: Lake, names: Sequence[str]) -> dict[str, Subject]:
    """Return the kind of each name; ids of trajectories and runs may be abbreviated, and are whole in the result.

    Raises:
        UsageError: no name is given.
        UnknownId: a name is unknown, or several ids of trajectories begin so.
    """
    known = policies(lake)
    found: dict[str, Subject] = {name: "policy_version" for name in names if name in known}
    for table, column in _TABLES.items():
        left = [name for name in names if name not in found]
        if left:
            there = set(lake.read(table, [column], {column: left})[column].to_pylist())
            found |= dict.fromkeys(there, column)
    if not names:
        raise UsageError("`name`: nothing is named.", "Name trajectories, policies or runs.")
    subjects: dict[str, Subject] = {}
    for name in names:
        if name in found:
            subjects[name] = found[name]
        elif trajectories_beginning(lake, name, ("trajectories", "evaluation_trajectories")):
            subjects[episode_of(lake, name).trajectory_id] = "trajectory_id"
        elif run := run_named(lake, name):
            subjects[run.run_id] = "run_id"
        else:
            problem = f"`name`: there is no trajectory, policy or run {name[:80]!r}."
            raise UnknownId(problem, "`flywheel trajectories` and `flywheel status` list them.")
    return subjects


def _require_valid(tag: str, note: str, person: str) -> None:
    require_name(person)
    if tag and not NAME.fullmatch(tag):
        problem = f"`tag`: {tag[:40]!r} is no tag."
        raise UsageError(problem, "Use small letters, digits, `.`, `_` and `-`, at most 40, such as `flaky`.")
    if not tag and not note.strip():
        raise UsageError("`tag`: there is neither a tag nor a note.", "Give a tag or a note.")
    if len(note) > LONGEST["note"]:
        raise UsageError(f"`note`: {len(note):,} characters.", f"At most {LONGEST['note']:,} are kept.")


def subject_of(row: Tag) -> tuple[str, str]:
    """Return the column and the name of the trajectory, policy or run that a row is about."""
    for column in ("trajectory_id", "policy_version", "run_id"):
        if (name := getattr(row, column)) is not None:
            return column, name
    return "", ""


def _row(kind: Subject, name: str, tag: str, note: str, person: str) -> Tag:
    subject = {"trajectory_id": None, "policy_version": None, "run_id": None} | {kind: name}
    return Tag(
        **subject, tag_id=_new_id(), tag=tag, note=note.strip(), person=person, removes=None, created_at=utc_now()
    )


def _new_id() -> str:
    return uuid.uuid4().hex[:24]
