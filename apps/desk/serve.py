"""Implement `flywheel serve` and `flywheel desk`: open the lake, then answer requests until a signal."""

import ipaddress
import os
import re
import socket

import uvicorn
from starlette.types import ASGIApp

from apps.desk.app import make_app
from apps.desk.security import LOOPBACK
from apps.desk.speech import RECOGNIZERS
from apps.options import open_lake
from schemas.config import Config
from schemas.failure import FlywheelError, UsageError
from tasks.running.console import out


def serve(config: Config, host: str | None = None, port: int | None = None, page: str = "") -> None:
    """Serves the pages, the desk among them, of the config's lake until a signal ends it.

    Args:
        config: the resolved config; section `desk` has the defaults.
        host: the address to listen at.
        port: 0 selects any free port.
        page: a page whose address is printed next to the site's.

    Raises:
        UsageError: the address is not this machine's own and no token is in the environment; `desk.speech` names no
            recognizer.
        FlywheelError: there is no lake, or the port is taken.
    """
    host, port = host or config.desk.host, config.desk.port if port is None else port
    token = token_for(host, config.desk.token_variable)
    RECOGNIZERS.class_of(config.desk.speech, "desk.speech")
    app = site_of(config, token, (*LOOPBACK, host.lower()))
    with listening_at(host, port) as listening:
        address = f"{address_of(host, listening)}/"
        also = f"  {page} {address}{page}" if page else ""
        how = "" if token is None else f"?token=...  (the token is in {config.desk.token_variable})"
        out().print(f"{'desk' if page else 'dashboard'} {address}{how}{also}", highlight=False, soft_wrap=True)
        running = uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=3)
        uvicorn.Server(running).run(sockets=[listening])


def site_of(config: Config, token: str | None, hosts: tuple[str, ...]) -> ASGIApp:
    """Makes the pages of the config's lake.

    Pages do not retry an unreachable store. Work for which no user waits, such as storing live sessions, retries for
    `lake.patience_s`. Raises LakeError if there is no lake, and the errors of `make_app`.
    """
    prompt = config.model_copy(update={"lake": config.lake.model_copy(update={"patience_s": 0.0})})
    return make_app(config, open_lake(prompt), token, hosts, open_lake(config))


def token_for(host: str, variable: str, key: str = "desk.host") -> str | None:
    """Reads the token from the environment; None if there is none and only this machine can connect.

    Args:
        host: the listening address.
        variable: the environment variable.
        key: config key of the host, for messages.

    Raises:
        UsageError: there is no token although other machines can connect, or the token is short or has characters other
    than ASCII.
    """
    token = os.environ.get(variable) or None
    if token is None and not is_loopback(host):
        raise UsageError(
            f"`{key}`: others can reach {host}, and {variable} holds no token.",
            f"Set {variable} to a long random text, or listen at 127.0.0.1.",
        )
    if token is not None and len(token) < 16:
        raise UsageError(f"{variable} holds a token of {len(token)} characters.", "Take at least 16, at random.")
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise UsageError(
            f"{variable} holds a token that no header or cookie can carry.",
            "Take letters, digits and signs of ASCII, without blanks.",
        )
    return token


def address_of(host: str, listening: socket.socket) -> str:
    """Returns the address of a server that listens at a host."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOOPBACK


def listening_at(host: str, port: int, key: str = "desk.port") -> socket.socket:
    """Opens a listening socket; raises FlywheelError, naming the port's config key, if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()  # a client that reads the address can connect at once, and waits
    except OSError as error:
        listening.close()
        problem = f"`{key}`: cannot listen at {host}, port {port}: {error.strerror or error}."
        raise FlywheelError(problem, f"Choose another one: `{key}=0` takes any that is free.") from error
    return listening
