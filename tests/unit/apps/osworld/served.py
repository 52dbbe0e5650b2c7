"""A server of OSWorld's interface over a desktop of ours, in this process."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from apps.osworld.app import make_app
from apps.osworld.machine import DesktopMachine
from environments.desktop.environment import DesktopEnvironment
from environments.desktop.tasks.task import Command
from tests.desktops import CONFIG


@dataclass(slots=True)
class Served:
    """Its address, and the desktop behind it."""

    url: str
    machine: DesktopMachine
    loop: asyncio.AbstractEventLoop

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """What the desktop answers, in the loop that it lives in."""
        return asyncio.run_coroutine_threadsafe(self.machine.box.ask(what, **fields), self.loop).result(30)


@contextmanager
def serving(programs: Sequence[Command] = (), task: str | None = None, token: str | None = None) -> Iterator[Served]:
    """A server while it is used."""
    machine = DesktopMachine(DesktopEnvironment("desktop", CONFIG), programs, task)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    server = uvicorn.Server(uvicorn.Config(make_app(machine, token), log_level="error", lifespan="on"))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve([listening])), daemon=True)
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}", machine, loop)
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
