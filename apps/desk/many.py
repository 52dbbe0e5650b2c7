"""Serve operations on many trajectories: selected ones, or all that match the filters of the page."""

from typing import Annotated

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from apps.commands.forgetting import Erased, forget_trajectories
from apps.desk.api import Iteration
from apps.desk.desk import Desk
from apps.desk.exports import KEPT, ExportedFile, export_file, write_export
from common.text import Storable
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.shared.finding import Wanted, matching
from tasks.shared.many import MOST, Decided, decide_all, undo_batch
from tasks.shared.reviews import require_name
from tasks.shared.tags import add_tag, remove_tag

Seed = Annotated[int | None, Field(ge=0, lt=2**63)]


class Filters(BaseModel):
    """The filters of the page of trajectories, as in `Wanted`."""

    model_config = ConfigDict(extra="forbid")

    task: str | None = None
    outcome: str | None = None
    policy: str | None = None
    iteration: Iteration = None
    route: str | None = None
    gate: str | None = None
    text: str | None = None
    seed: Seed = None
    tag: str | None = None

    @property
    def wanted(self) -> Wanted:
        """Converts them to conditions on trajectories."""
        return Wanted(**self.model_dump())


class Many(BaseModel):
    """Many trajectories in a page's request: selected ones, or all that match the filters."""

    model_config = ConfigDict(extra="forbid")

    person: Storable
    ids: Annotated[list[str], Field(max_length=MOST)] | None = None
    """The selected trajectories; null for all that match the filters."""
    filters: Filters = Filters()
    members: str | None = None
    """Fingerprint of the matching trajectories when the page was loaded (`Matching.members`)."""


class ManyDecided(Many):
    """A decision about many trajectories."""

    decision: str
    """`accept`, `reject`, or `route:` with a route."""
    note: Storable = ""


class ManyTagged(Many):
    """A tag of many trajectories, or its removal."""

    tag: Storable
    remove: bool = False


class ManyExported(Many):
    """An export of many trajectories."""

    format: str
    """A format, such as `agentnet`."""


class ManyForgotten(Many):
    """The removal of many trajectories from the whole lake."""

    reason: Storable
    dry_run: bool = True
    """Whether to count the rows only."""


class Tagged(BaseModel):
    """The trajectories whose tags changed."""

    trajectories: list[str]


class ManyUndone(BaseModel):
    """The undo of an operation in a page's request."""

    model_config = ConfigDict(extra="forbid")

    person: Storable


def router(desk: Desk) -> APIRouter:
    """Makes the routes of decisions about many trajectories, of their undo, tags, exports and removals."""
    routes = APIRouter()

    @routes.post("/api/decisions", status_code=201)
    def decide(given: ManyDecided) -> Decided:
        return decide_all(desk.lake, _names(desk.lake, given), given.decision, given.person, given.note)

    @routes.post("/api/decisions/{batch}/undo", status_code=201)
    def undo(batch: str, given: ManyUndone) -> Decided:
        return undo_batch(desk.lake, batch, given.person)

    @routes.post("/api/tags", status_code=201)
    def tag(given: ManyTagged) -> Tagged:
        change = remove_tag if given.remove else add_tag
        rows = change(desk.lake, _names(desk.lake, given), given.tag, given.person)
        return Tagged(trajectories=[one.trajectory_id for one in rows if one.trajectory_id])

    @routes.post("/api/exports", status_code=201)
    def export(given: ManyExported) -> ExportedFile:
        require_name(given.person)
        return write_export(desk.config, desk.lake, _names(desk.lake, given), given.format)

    @routes.get("/exports/{name}")
    def exported(name: str) -> FileResponse:
        if (path := export_file(desk.lake, name)) is None:
            raise HTTPException(404, f"There is no export {name}. The newest {KEPT} are kept.")
        return FileResponse(path, media_type="application/zip", filename=name)

    @routes.post("/api/forget", status_code=201)
    def forget(given: ManyForgotten) -> Erased:
        require_name(given.person)
        if not given.reason.strip():
            raise UsageError("`reason`: the removal is permanent, and needs a reason.", "Write one next to `forget`.")
        reason = f"{given.reason.strip()} ({given.person})"
        return forget_trajectories(desk.lake, _names(desk.lake, given), reason, given.dry_run)

    return routes


def _names(lake: Lake, given: Many) -> list[str]:
    """Returns the ids; raises UsageError if other trajectories match than when the page was loaded, or too many."""
    if given.ids is not None:
        return given.ids
    found = matching(lake, given.filters.wanted, MOST)
    if found.members != given.members:
        problem = f"`members`: the page was loaded with other trajectories than the {found.total:,} that match now."
        raise UsageError(problem, "Load the page again, then decide.")
    if found.total > MOST:
        raise UsageError(f"`filters`: {found.total:,} trajectories match.", f"Filter further, to {MOST:,} at most.")
    return found.ids
