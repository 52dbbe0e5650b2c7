"""Implement `flywheel serve-sandboxes`: start the pool, then answer requests until a signal."""

import asyncio
from collections.abc import Sequence

import uvicorn

from apps.desk.security import LOOPBACK
from apps.desk.serve import listening_at
from apps.process import Interrupts
from apps.sandboxes.app import make_app
from apps.sandboxes.guard import token_named
from apps.sandboxes.serving import Serving
from common.text import counted
from environments.registry import require
from schemas.config import Config
from tasks.running.console import out

MOST_BYTES = 1 << 20
"""Maximum bytes of one message: an action is short."""
PING_S, PONG_S = 20.0, 60.0
"""Seconds between pings of a quiet client, and time limit in seconds for a busy client's answer to a ping."""
TOKEN_VARIABLE = "FLYWHEEL_SANDBOXES_TOKEN"
"""Default environment variable of the token."""
SERVED = "the sessions are over, and their sandboxes are given back; the same command serves them again"
"""The message at the end."""


def serve_sandboxes(
    config: Config,
    host: str,
    port: int,
    token_variable: str,
    names: Sequence[str] | None,
    held_out: bool,
    idle_s: float,
) -> None:
    """Serves sandboxes of the config's environments until a signal ends it.

    Args:
        config: the resolved config.
        host: the address to listen at.
        port: 0 selects any free port.
        token_variable: the environment variable with the token.
        names: the served tasks; the suite's, if not given.
        held_out: whether to serve held-out tasks and seeds, too.
        idle_s: seconds without a message after which a session ends.

    Raises:
        UsageError: a task is unknown, or other machines can connect and there is no token in the variable.
        FlywheelError: the port is taken, or a required browser is missing or does not start.
    """
    token = token_named(host, token_variable, TOKEN_VARIABLE)
    Interrupts.kept = SERVED
    serving = Serving(config, names, held_out)
    require(serving.environments)
    app = make_app(serving, idle_s, token, (*LOOPBACK, host.lower()))
    with listening_at(host, port, "--port") as listening:
        shown = f"[{host}]" if ":" in host else host
        how = "" if token is None else f"  (the token is in {token_variable})"
        what = f"{counted(len(serving.tasks), 'task')}, {counted(serving.sandboxes, 'session')}"
        address = f"http://{shown}:{listening.getsockname()[1]}"

        async def answer() -> None:
            async with serving.pool:
                out().print(f"sandboxes {address}  {what}{how}", highlight=False, soft_wrap=True)
                await uvicorn.Server(running(app)).serve([listening])

        asyncio.run(answer())


def running(app: object) -> uvicorn.Config:
    """Returns the settings of the server. Frames are not compressed, since screenshots already are, and compression
    would cost ten times the rest of a step."""
    return uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType]
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=3,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_max_size=MOST_BYTES,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PONG_S,
    )
