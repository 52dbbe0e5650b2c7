"""Serve think-aloud over HTTP: converts notes or sound to words by step, which the reviewer edits and stores as
reviews."""

import threading
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from apps.desk.desk import Desk
from apps.desk.pages import page
from apps.desk.speech import recognizer, sound_of
from apps.desk.views import DeskItem, item_of
from curation.aloud import Phrase, align, read_notes

Offset = Annotated[float, Query(ge=-86_400.0, le=86_400.0)]
_ONE_AT_A_TIME = threading.Lock()


class Notes(BaseModel):
    """A reviewer's notes, with times."""

    model_config = ConfigDict(extra="forbid")

    notes: Annotated[str, Field(max_length=200_000)]
    offset_s: Annotated[float, Field(ge=-86_400.0, le=86_400.0)] = 0.0


class SpokenThought(BaseModel):
    """The speech at a step."""

    step: int
    thought: str


class Aligned(BaseModel):
    """Phrases, and their steps."""

    phrases: list[Phrase]
    steps: list[SpokenThought]


def router(desk: Desk) -> APIRouter:
    """Makes the routes of think-aloud."""
    routes = APIRouter()

    @routes.get("/aloud/{name}", response_class=HTMLResponse)
    def aloud(name: str) -> HTMLResponse:
        item = item_of(desk.lake, name)
        return page("aloud", item=item, speech=desk.config.desk.speech)

    @routes.post("/api/trajectories/{name}/aloud/notes")
    def notes(name: str, given: Notes) -> Aligned:
        return _aligned(item_of(desk.lake, name), read_notes(given.notes), given.offset_s)

    @routes.post("/api/trajectories/{name}/aloud/sound")
    async def sound(name: str, request: Request, offset_s: Offset = 0.0) -> Aligned:
        data = await request.body()
        return await run_in_threadpool(transcribe, name, data, offset_s)

    def transcribe(name: str, data: bytes, offset_s: float) -> Aligned:
        item, pcm = item_of(desk.lake, name), sound_of(data)
        with _ONE_AT_A_TIME:
            phrases = recognizer(desk.config.desk.speech).listen(pcm)
        return _aligned(item, phrases, offset_s)

    return routes


def _aligned(item: DeskItem, phrases: list[Phrase], offset_s: float) -> Aligned:
    words = align(phrases, [step.starts_s for step in item.steps], offset_s)
    thoughts = [SpokenThought(step=item.steps[place].step, thought=text) for place, text in words.items()]
    return Aligned(phrases=phrases, steps=thoughts)
