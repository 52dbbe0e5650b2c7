"""Serve decisions about many trajectories: selected ones, or all that match the filters of the page."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from apps.desk.api import Iteration
from apps.desk.desk import Desk
from common.text import Storable
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.shared.finding import Wanted, find
from tasks.shared.many import MOST, Decided, decide_all, undo_batch
from tasks.shared.tags import add_tag, remove_tag

Seed = Annotated[int | None, Field(ge=0, lt=2**63)]
Total = Annotated[int | None, Field(ge=0, le=MOST)]


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
    total: Total = None
    """Number of matching trajectories that the page showed."""


class ManyDecided(Many):
    """A decision about many trajectories."""

    decision: str
    """`accept`, `reject`, or `route:` with a route."""
    note: Storable = ""


class ManyTagged(Many):
    """A tag of many trajectories, or its removal."""

    tag: Storable
    remove: bool = False


class Tagged(BaseModel):
    """The trajectories whose tags changed."""

    trajectories: list[str]


class ManyUndone(BaseModel):
    """The undo of an operation in a page's request."""

    model_config = ConfigDict(extra="forbid")

    person: Storable


def router(desk: Desk) -> APIRouter:
    """Makes the routes of decisions about many trajectories, of their undo, and of tags."""
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

    return routes


def _names(lake: Lake, given: Many) -> list[str]:
    """Returns the ids; raises UsageError if the number of those that match is not what the page showed."""
    if given.ids is not None:
        return given.ids
    found = find(lake, given.filters.wanted, MOST)
    if found.total != given.total:
        problem = f"`total`: {found.total:,} trajectories match now, and the page showed {given.total}."
        raise UsageError(problem, "Load the page again, then decide.")
    return [one.row.trajectory_id for one in found]
