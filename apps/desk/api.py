"""Serve the desk to programs: the queue, trajectories, screenshots, and decisions as JSON. The pages use the same
interface."""

import io
import threading
from contextlib import suppress
from itertools import count
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from apps.commands.lineage import PolicyLineage, lineage_of
from apps.desk.desk import Desk
from apps.desk.openings import Asking
from apps.desk.queue import QueueEntry
from apps.desk.views import DeskItem, ReviewView, corrections_of, item_of, review_views
from common.picture import SIGNATURE, rgb_of
from common.text import Storable
from flywheel.film import fitted
from schemas.action import Action, to_json
from schemas.failure import StoreUnreachable
from schemas.tables.review import Decision
from storage.lake import Lake
from tasks.shared.reviews import Draft, reviews_of, submit

Limit = Annotated[int, Query(ge=1, le=200)]
TIDY_EVERY = 64
"""Number of decisions after which their small files are merged."""
Iteration = Annotated[int | None, Query(ge=-(2**31), lt=2**31)]
"""Number of an iteration, in the range of the lake's column; imports are below 0."""
Offset = Annotated[int, Query(ge=0, le=1_000_000)]
THUMBNAIL = 96
"""Width of a thumbnail in pixels."""
KEPT = {"Cache-Control": "private, max-age=86400, immutable"}


class Submitted(BaseModel):
    """A decision in a page's request; see `schemas.tables.review`."""

    model_config = ConfigDict(extra="forbid")

    trajectory_id: Storable
    revision: Annotated[int, Field(ge=0, lt=2**31)]
    person: Storable
    decision: Decision
    step: Annotated[int, Field(ge=0, le=1000)] | None = None
    action: Action | None = None
    thought: Storable | None = None
    note: Storable = ""
    seconds: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    undoes: Storable | None = None

    @property
    def draft(self) -> Draft:
        """Converts it to the lake's form."""
        fields = self.model_dump(exclude={"action"})
        return Draft(**fields, action=to_json(self.action) if self.action else None)


class SavedDecision(BaseModel):
    """The result of a decision: its id, and all decisions on its trajectory."""

    review_id: str
    revision: int
    reviews: list[ReviewView]


def router(desk: Desk) -> APIRouter:
    """Makes the routes below `/api`, and those of screenshots."""
    routes = APIRouter()
    decided = count(1)

    @routes.get("/api/queue")
    def queue(
        asking: Asking, limit: Limit = 20, offset: Offset = 0, task: str | None = None, iteration: Iteration = None
    ) -> list[QueueEntry]:
        return desk.queue.places(limit, offset, task, iteration, asking)

    @routes.get("/api/trajectories/{name}")
    def trajectory(name: str, asking: Asking) -> DeskItem:
        found = item_of(desk.lake, name)
        desk.queue.openings.open(asking, name)
        return found

    @routes.get("/api/trajectories/{name}/policies")
    def policies(name: str) -> list[str]:
        found = lineage_of(desk.lake, name)
        return [] if isinstance(found, PolicyLineage) else found.policies

    @routes.post("/api/reviews", status_code=201)
    def review(given: Submitted) -> SavedDecision:
        written = submit(desk.lake, given.draft)
        if next(decided) % TIDY_EVERY == 0:
            threading.Thread(target=_tidy, args=(desk.lake,), name="tidy", daemon=True).start()
        reviews = reviews_of(desk.lake, written.trajectory_id)
        shown = review_views(reviews, corrections_of(desk.lake, reviews))
        return SavedDecision(review_id=written.review_id, revision=len(reviews), reviews=shown)

    @routes.get("/screenshot/{digest}")
    def screenshot(digest: str, iteration: Iteration = None) -> Response:
        picture = _stored_picture(desk, digest, iteration)
        kind = "image/png" if picture.startswith(SIGNATURE) else "image/webp"
        return Response(picture, media_type=kind, headers=KEPT)

    @routes.get("/thumbnail/{digest}")
    def thumbnail(digest: str, iteration: Iteration = None) -> Response:
        small, held = fitted(rgb_of(_stored_picture(desk, digest, iteration)), THUMBNAIL), io.BytesIO()
        small.save(held, "WEBP", quality=70)
        return Response(held.getvalue(), media_type="image/webp", headers=KEPT)

    return routes


def _stored_picture(desk: Desk, digest: str, iteration: int | None) -> bytes:
    if (png := desk.pictures.png(digest, iteration)) is None:
        raise HTTPException(404, "There is no such screenshot in the lake.")
    return png


def _tidy(lake: Lake) -> None:
    with suppress(StoreUnreachable):  # retried after as many decisions
        for table in ("reviews", "verdicts", "annotations", "pairs"):
            lake.compact(table)
