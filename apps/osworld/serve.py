"""Implement `flywheel serve-osworld`: start a desktop, then answer requests until a signal."""

import asyncio
import shlex
import shutil
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

import uvicorn

from apps.desk.security import LOOPBACK
from apps.desk.serve import address_of, listening_at
from apps.osworld.app import make_app
from apps.osworld.machine import DesktopMachine
from apps.process import Interrupts
from apps.sandboxes.guard import token_named
from environments.desktop.environment import EXTRA, DesktopConfig, DesktopEnvironment
from environments.registry import environments_of
from schemas.config import Config
from schemas.failure import FlywheelError, UsageError
from tasks.running.console import out

TOKEN_VARIABLE = "FLYWHEEL_OSWORLD_TOKEN"
"""Default environment variable of the token."""
SERVED = "the desktop and all changes on it are gone; the same command serves a fresh one"
"""The message at the end."""


def serve_osworld(
    config: Config,
    host: str,
    port: int,
    token_variable: str,
    programs: Sequence[str],
    task: str | None,
    seed: int,
) -> None:
    """Serves one desktop on the interface of OSWorld's machines until a signal ends it.

    Args:
        config: the resolved config; its environment of kind `desktop`, if it has one, sets the desktop's options.
        host: the address to listen at.
        port: 0 takes any that is free.
        token_variable: the environment variable with the token.
        programs: commands that are opened on a fresh desktop.
        task: a task of ours to begin with.
        seed: of that task.

    Raises:
        UsageError: there is no such task, or it and programs are named; or the address is not this machine's own and
            there is no token, or none in the named variable.
        FlywheelError: the port is taken, a program or pyautogui is missing, or no desktop starts.
    """
    token = token_named(host, token_variable, TOKEN_VARIABLE)
    Interrupts.kept = SERVED
    environment = _desktop(config)
    if task is not None and task not in environment.entries:
        raise UsageError(f"`--task`: there is no task {task}.", f"There are {', '.join(environment.entries)}.")
    if task is not None and programs:
        raise UsageError("`--open` and `--task` exclude each other.", "A task opens its own programs.")
    commands = [_command(one) for one in programs]
    environment.host()
    require_pyautogui()
    machine = DesktopMachine(environment, commands, task, seed)
    app = make_app(machine, token, (*LOOPBACK, host.lower()))
    with listening_at(host, port, "--port") as listening:
        how = "" if token is None else f"  (the token is in {token_variable})"
        address = address_of(host, listening)

        async def answer() -> None:
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False))
            out().print(f"osworld {address}{how}", highlight=False, soft_wrap=True)
            await server.serve([listening])

        asyncio.run(answer())


def _command(written: str) -> tuple[str, ...]:
    """A command in words; raises UsageError for one that names no program of this machine."""
    try:
        words = tuple(shlex.split(written))
    except ValueError as error:
        raise UsageError(f"`--open`: {written!r} is not a command: {error}.", "Close its quotes.") from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"`--open`: there is no program {words[0] if words else written!r}.", "Install or correct it.")
    return words


def require_pyautogui() -> None:
    """Raises FlywheelError if OSWorld's clients could not act: pyautogui ends its program without tkinter, and text
    beyond ASCII is pasted."""
    if find_spec("pyautogui") is None:
        raise FlywheelError("OSWorld's clients act with pyautogui, which is not installed.", f"`{EXTRA}` installs it.")
    if shutil.which("xclip") is None:
        raise FlywheelError("OSWorld's clients paste with xclip, which is not installed.", "`apt install xclip`.")
    try:
        import_module("tkinter")
    except ImportError as error:
        hint = "`apt install python3-tk`, or libtk8.6 for a Python that is not Debian's."
        raise FlywheelError(f"pyautogui needs tkinter: {error}.", hint) from error


def _desktop(config: Config) -> DesktopEnvironment:
    for one in environments_of(config):
        if isinstance(one, DesktopEnvironment):
            return one
    return DesktopEnvironment("desktop", DesktopConfig(kind="desktop"))
