"""Implement `flywheel forget`: remove a trajectory from the lake for good, and name the policies trained on it."""

import json
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from apps.commands.lineage import NAMED
from apps.commands.readers import made_from_readers, readers_of
from apps.report.build import report_folder
from common.process import home
from common.text import counted
from curation.gates.repeats import DuplicatesGate
from schemas.failure import UsageError
from schemas.table import utc_now
from schemas.tables.forgotten import Forgotten
from schemas.tables.trajectory import Trajectory
from storage.catalog import ask
from storage.forgetting import GONE, Doomed, erase, own_screenshots, rows_of, successors
from storage.lake import Lake
from storage.objects import open_store
from tasks.running.console import out
from tasks.running.run_status import require_idle
from tasks.shared.lease import iteration_lock, require_free
from tasks.shared.trajectories import trajectories_beginning

NO_REASON = "no reason was given"
ACTED, RECORDED = ("trajectories", "evaluation_trajectories"), "recordings"
"""Tables whose rows can be forgotten by their `trajectory_id`."""
SAMPLES = ("samples*.arrow", "screenshots*.arrow", "drawn-*.parquet")
"""Data files of an interrupted training in the work folder; a training writes them again."""


@dataclass(frozen=True, slots=True)
class Erased:
    """Rows, files and policies that forgetting removed or affected, or would remove or affect."""

    trajectories: list[str]
    with_them: list[str]
    """The removed trajectories that repeat steps of the named ones."""
    recordings: list[str]
    """Those of `trajectories` that are ids of recordings without a trajectory."""
    policies: dict[str, list[str]]
    """Policies whose training read the removed trajectories, by trajectory."""
    through: list[str]
    """Policies that were made from these policies."""
    unknown: list[str]
    """Policies whose training data is unknown."""
    duplicates: list[str]
    """Trajectories that were rejected as duplicates of removed ones; `flywheel refilter` can accept one of them."""
    judges: list[str]
    """Judges of this lake that were trained on pages of removed trajectories."""
    rows: dict[str, int]
    """Number of rows by table."""
    screenshots: int
    dry_run: bool


def forget_trajectories(lake: Lake, names: Collection[str], reason: str, dry_run: bool = False) -> Erased:
    """Removes trajectories, and trajectories that repeat their steps, from the whole lake.

    A recording that was imported without an event log has no trajectory; its own id removes it.

    A record of the ids is written first. From then on, no process writes the trajectories again, and the same command
    finishes an interrupted removal. Exports, and copies of the lake, are not changed.

    Raises:
        UsageError: an id is unknown, or a run, a training or similar work is active in the lake.
    """
    require_free(lake)
    require_idle(lake)
    before = {row.trajectory_id: row for row in lake.rows(Forgotten, {"trajectory_id": list(names)})}
    where = {"trajectory_id": list(names)}
    acted, recorded = _found_in(lake, where, *ACTED), _found_in(lake, where, RECORDED)
    there = acted | recorded
    if unknown := sorted(set(names) - there - before.keys()):
        begin_so = trajectories_beginning(lake, unknown[0], (*ACTED, RECORDED, "forgotten"))[:NAMED]
        which = f"use a full id: {', '.join(begin_so)}" if begin_so else "ids are in the report"
        raise UsageError(f"There is no trajectory `{unknown[0]}` in {lake.uri}.", f"Nothing was removed; {which}.")
    with_them = successors(lake, names)
    new = (there | with_them) - before.keys()
    reached, unknown = readers_of(lake, new)
    policies = reached | {name: row.policies for name, row in before.items()}
    kept = {sha256 for row in before.values() for sha256 in row.screenshots}
    everything = set(policies)
    pictures = own_screenshots(lake, everything) | (kept - _used_pictures(lake, kept, everything))
    doomed = Doomed(sorted(everything), sorted(pictures))
    through, unknown = made_from_readers(lake, {one for learned in policies.values() for one in learned}, unknown)
    found = Erased(
        trajectories=sorted(everything),
        with_them=sorted(with_them),
        recordings=sorted(recorded - acted),
        policies={name: policies[name] for name in sorted(policies)},
        through=through,
        unknown=unknown,
        duplicates=rejected_for(lake, everything),
        judges=judges_of(lake, everything),
        rows=rows_of(lake, doomed),
        screenshots=len(pictures),
        dry_run=dry_run,
    )
    if not dry_run:
        with iteration_lock(lake):
            _remove(lake, doomed, policies, reason or NO_REASON)
    return found


def _found_in(lake: Lake, where: Mapping[str, list[str]], *tables: str) -> set[str]:
    """Returns the ids of trajectories in the rows of tables that fulfil a condition."""
    return {name for table in tables for name in lake.read(table, ["trajectory_id"], where)[0].to_pylist()}


def judges_of(lake: Lake, names: Collection[str]) -> list[str]:
    """Lists the judges in the lake (`flywheel judge --train`) that learned from a page (a task with a seed) of one of
    these finished trajectories. The record of a judge names pages, not trajectories."""
    store = lake.blobs.store
    there = [name for name in store.sizes("judges") if name.endswith("/judge.json")]
    if not there:
        return []
    from models.judges.local import page_of

    ended = [one for one in lake.rows(Trajectory, {"trajectory_id": sorted(names)}) if one.success is not None]
    pages = {page_of(one.task_id, one.seed) for one in ended}
    return sorted(name.split("/")[1] for name in there if pages & set(json.loads(store.get(name))["learned"]))


def rejected_for(lake: Lake, names: Collection[str]) -> list[str]:
    """Lists other trajectories that were rejected as duplicates of these, or of earlier forgotten trajectories."""
    found = ask(lake, "decisions", iteration=None)
    of_one_of = re.compile(rf"\b(?:{'|'.join(map(re.escape, [*names, GONE]))})\b")
    rows = zip(*(found[name].to_pylist() for name in ("trajectory_id", "decided_by", "reason")), strict=True)
    alike = {name for name, gate, reason in rows if gate == DuplicatesGate.name and of_one_of.search(reason)}
    return sorted(alike.difference(names))


def _remove(lake: Lake, doomed: Doomed, policies: dict[str, list[str]], reason: str) -> None:
    rows = [
        Forgotten(
            trajectory_id=name,
            reason=reason,
            policies=policies[name],
            screenshots=list(doomed.screenshots) if number == 0 else [],  # only in the first row
            done=False,
            created_at=utc_now(),
        )
        for number, name in enumerate(doomed.trajectories)
    ]
    lake.append("forgotten", rows)
    erase(lake, doomed)
    for pattern in SAMPLES:
        for file in (home() / "work" / lake.lake_id).glob(f"*/{pattern}"):
            file.unlink(missing_ok=True)
    for copies in (report_folder(lake), home() / "cache" / lake.lake_id):
        shutil.rmtree(copies, ignore_errors=True)  # both are written again without the trajectories
    _drop_pages(lake, doomed.trajectories)
    done = lake.rows(Forgotten, {"trajectory_id": list(doomed.trajectories)})
    lake.upsert("forgotten", [_closed(row, reason) for row in done])


def _closed(row: Forgotten, reason: str) -> Forgotten:
    """Makes the record of a finished removal, with every given reason."""
    reasons = row.reason if reason in (NO_REASON, *row.reason.split("; ")) else f"{row.reason}; {reason}"
    return row.model_copy(update={"done": True, "screenshots": [], "reason": reasons.removeprefix(f"{NO_REASON}; ")})


def _drop_pages(lake: Lake, names: Collection[str]) -> None:
    """Removes pages of data quality that name a trajectory, in the work folder and below the lake's blobs."""
    for store in (open_store(home() / "work" / lake.lake_id), lake.blobs.store):
        for page in store.sizes("data_docs"):
            if page.endswith(".html") and any(name.encode() in store.get(page) for name in names):
                store.delete(page)


def _used_pictures(lake: Lake, pictures: Collection[str], doomed: Collection[str]) -> set[str]:
    """Returns the screenshots that another trajectory, recording, annotation or rendered page now uses."""
    found = set(lake.read("pages", ["sha256"], {"sha256": list(pictures)})["sha256"].to_pylist())
    for column in ("before", "after"):
        rows = lake.read("annotations", ["trajectory_id", column], {column: list(pictures)}).to_pylist()
        found |= {row[column] for row in rows if row["trajectory_id"] not in doomed}
    for row in lake.read(RECORDED, ["trajectory_id", "frames"]).to_pylist():
        found |= set() if row["trajectory_id"] in doomed else set(pictures) & set(row["frames"])
    for table in ("steps", "evaluation_steps"):
        for column in ("screenshot", "next_screenshot"):
            rows = lake.read(table, ["trajectory_id", column], {column: list(pictures)}).to_pylist()
            found |= {row[column] for row in rows if row["trajectory_id"] not in doomed}
        for row in lake.read(table, ["trajectory_id", "frames"]).to_pylist():
            found |= set() if row["trajectory_id"] in doomed else set(pictures) & set(row["frames"])
    return found


def show_forgotten(found: Erased) -> None:
    """Prints the result."""
    console = out()
    word = "would be forgotten" if found.dry_run else "forgotten"
    alone = len(found.recordings)
    acted = counted(len(found.trajectories) - alone, "trajectory", "trajectories")
    parts = [acted] if len(found.trajectories) > alone else []
    parts += [f"{counted(alone, 'recording')} without a trajectory"] if alone else []
    console.print(f"{', '.join(parts)} {word}")
    if found.with_them:
        console.print(f"with them, since they repeat their steps: {', '.join(found.with_them)}", soft_wrap=True)
    for table, count in found.rows.items():
        console.print(f"{table:<14} {count:>7,}")
    reached = sorted({policy for policies in found.policies.values() for policy in policies})
    console.print(f"policies that learned from them: {', '.join(reached) or 'none'}", soft_wrap=True)
    if found.through:
        console.print(f"policies that were made from those: {', '.join(found.through)}", soft_wrap=True)
    if found.unknown:
        console.print(f"training data no longer known for: {', '.join(found.unknown)}", soft_wrap=True)
    if found.duplicates:
        listed = ", ".join(found.duplicates)
        console.print(f"rejected as duplicates of them (`flywheel refilter` decides again): {listed}", soft_wrap=True)
    if found.judges:
        console.print(f"judges that learned from pages of them: {', '.join(found.judges)}", soft_wrap=True)
    if not found.dry_run:
        console.print("The report was removed too; `flywheel report` writes a new one. Exported files keep their data.")
