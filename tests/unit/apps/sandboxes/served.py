"""A server of the fake environment's tasks in this process, as `flywheel serve-sandboxes` runs it."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from apps.desk.serve import listening_at
from apps.sandboxes.serve import make_app, running
from apps.sandboxes.serving import Serving
from environments.openenv.client import StepResponse, WireClient
from schemas.config import load_config

TASKS = ["click-one", "two-steps", "enter-text", "dies", "note", "click-red"]
WAIT = {"type": "wait"}
Play = Callable[[WireClient], Awaitable[Any]]


def serving(
    sandboxes: int = 3, held_out: bool = False, names: list[str] | None = None, wait_s: float = 20.0, **keys: Any
) -> Serving:
    environments = {"fake": {"sandboxes": sandboxes, **keys}}
    given = [f"environments={json.dumps(environments)}", f"suite.tasks={json.dumps(TASKS[:-1])}"]
    config = load_config(None, [*given, 'suite.held_out=["click-red"]', "suite.practice=[]", "suite.hard=[]",
                                "suite.max_steps={}"])  # fmt: skip
    return Serving(config, names, held_out, wait_s)


@asynccontextmanager
async def served(one: Serving, idle_s: float = 60.0, token: str | None = None) -> AsyncIterator[str]:
    """The server's base URL, while it runs in this loop."""
    with listening_at("127.0.0.1", 0) as listening:
        async with one.pool:
            server = uvicorn.Server(running(make_app(one, idle_s, token)))
            task = asyncio.create_task(server.serve([listening]))
            while not server.started:
                await asyncio.sleep(0.005)
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = True
                await task


@contextmanager
def served_apart(one: Serving, idle_s: float = 60.0) -> Iterator[str]:
    """The same in a thread, for clients that wait."""
    ready, ended, url = threading.Event(), asyncio.Event(), list[str]()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        async with served(one, idle_s) as address:
            url.append(address)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    try:
        assert ready.wait(20)
        yield url[0]
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join(20)


def played(play: Play, one: Serving | None = None, **keys: Any) -> Any:
    async def run() -> Any:
        async with served(one or serving(), **keys) as url:
            client = WireClient(url, keys.get("token"))
            await client.open()
            try:
                return await play(client)
            finally:
                await client.close()

    return asyncio.run(run())


def button(answer: StepResponse, number: int = 0) -> dict[str, Any]:
    """A click on one of the buttons."""
    boxes = [box for _, kind, box, _, _ in answer.observation["elements"] if kind == "button"]
    left, top, right, bottom = boxes[number]
    return {"type": "click", "x": (left + right) / 2, "y": (top + bottom) / 2}
