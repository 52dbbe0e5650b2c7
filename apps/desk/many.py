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

    @property
    def wanted(self) -> Wanted:
        """Converts them to conditions on trajectories."""
        return Wanted(**self.model_dump())


class ManyDecided(BaseModel):
    """A decision about many trajectories in a page's request."""

    model_config = ConfigDict(extra="forbid")

    decision: str
    """`accept`, `reject`, or `route:` with a route."""
    person: Storable
    note: Storable = ""
    ids: Annotated[list[str], Field(max_length=MOST)] | None = None
    """The selected trajectories; null to decide on all that match the filters."""
    filters: Filters = Filters()
    total: Total = None
    """Number of matching trajectories that the page showed."""


class ManyUndone(BaseModel):
    """The undo of an operation in a page's request."""

    model_config = ConfigDict(extra="forbid")

    person: Storable


def router(desk: Desk) -> APIRouter:
    """Makes the routes of decisions about many trajectories, and of their undo."""
    routes = APIRouter()

    @routes.post("/api/decisions", status_code=201)
    def decide(given: ManyDecided) -> Decided:
        names = _matching(desk.lake, given) if given.ids is None else given.ids
        return decide_all(desk.lake, names, given.decision, given.person, given.note)

    @routes.post("/api/decisions/{batch}/undo", status_code=201)
    def undo(batch: str, given: ManyUndone) -> Decided:
        return undo_batch(desk.lake, batch, given.person)

    return routes


def _matching(lake: Lake, given: ManyDecided) -> list[str]:
    """Returns the ids that match; raises UsageError if their number is not what the page showed."""
    found = find(lake, given.filters.wanted, MOST)
    if found.total != given.total:
        problem = f"`total`: {found.total:,} trajectories match now, and the page showed {given.total}."
        raise UsageError(problem, "Load the page again, then decide.")
    return [one.row.trajectory_id for one in found]
