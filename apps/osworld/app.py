"""Implement the HTTP interface of OSWorld's machines over a desktop of ours, for others' controllers (docs/desktop.md).

Every client that can reach it can run any command on the desktop, as the interface intends. The desktop has its own
namespaces, and the server answers this machine alone unless a token is set.
"""

import asyncio
import base64
import html
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from apps.desk.security import LOOPBACK
from apps.osworld.machine import DesktopMachine, as_command
from apps.sandboxes.guard import SandboxGuard
from environments.desktop.boxed import AskFailed
from schemas.failure import SandboxFailure, TrajectoryFailure

COMMAND_S, PYTHON_S, SCRIPT_S = 120.0, 30.0, 30.0
"""Default seconds that a command, a Python script and a shell script may take; a client may send others."""
MOST_S = 600.0
MOST_BYTES = 256 << 20
"""Maximum bytes of a request."""
ABSENT = {
    "/start_recording": "no screen is recorded here",
    "/end_recording": "no screen is recorded here",
    "/setup/change_wallpaper": "the desktop has no wallpaper",
    "/setup/download_file": "the desktop has no network: fetch the file yourself, and send it to /setup/upload",
}
"""Requests of OSWorld's own server that this one refuses, with the reason."""
Answers = Callable[[DesktopMachine, Request], Awaitable[Response]]


def make_app(machine: DesktopMachine, token: str | None = None, hosts: Iterable[str] = LOOPBACK) -> ASGIApp:
    """Makes the server of one desktop.

    Args:
        machine: the desktop, which is started with the server and ends with it.
        token: token that is required as `Authorization: Bearer`; None requires none.
        hosts: the accepted host names if no token is required.
    """

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        await machine.reset()
        yield
        await machine.close()

    routes = [_route(machine, path, method, answer) for path, (method, answer) in _ROUTES.items()]
    routes += [_route(machine, path, "POST", _absent(why)) for path, why in ABSENT.items()]
    return SandboxGuard(Starlette(routes=routes, lifespan=running), token, hosts)


def _route(machine: DesktopMachine, path: str, method: str, answer: Answers) -> Route:
    async def answered(request: Request) -> Response:
        try:
            if int(request.headers.get("content-length") or 0) > MOST_BYTES:
                return _failed("the request is too long", 413)
            return await answer(machine, request)
        except (ValueError, KeyError, TypeError) as error:
            return _failed(f"{path} cannot read this: {error}", 400)
        except AskFailed as error:
            return _failed(str(error), 500)
        except TrajectoryFailure as failure:
            return _failed(failure.reason, 503 if isinstance(failure, SandboxFailure) else 500)

    return Route(path, answered, methods=[method])


def _failed(message: str, status: int) -> JSONResponse:
    return JSONResponse({"status": "error", "message": message}, status)


def _absent(why: str, status: int = 501) -> Answers:
    async def answer(machine: DesktopMachine, request: Request) -> Response:
        return _failed(why, status)

    return answer


async def _json(request: Request) -> dict[str, Any]:
    body = await request.body()
    given = json.loads(body) if body else {}
    if not isinstance(given, dict):
        raise ValueError("it is not a JSON object")
    return given


async def _text(request: Request, name: str, problem: str) -> tuple[str, dict[str, Any]]:
    """Returns the text of a field, and all fields; raises ValueError if there is no text."""
    given = await _json(request)
    text = given.get(name)
    if not isinstance(text, str) or not text:
        raise ValueError(problem)
    return text, given


async def _form(request: Request) -> Mapping[str, bytes]:
    return fields_of(request.headers.get("content-type", ""), await request.body())


def fields_of(kind: str, body: bytes) -> Mapping[str, bytes]:
    """The fields of a form by name in either encoding, those of files with the file's content.

    Args:
        kind: the request's `Content-Type`.
        body: of the request.

    Raises:
        ValueError: it is not a form.
    """
    if kind.startswith("application/x-www-form-urlencoded"):
        read = parse_qs(body.decode(errors="replace"), keep_blank_values=True)
        return {name: values[-1].encode() for name, values in read.items()}
    boundary = re.search(r'boundary="?([^";]+)"?', kind)
    if not kind.startswith("multipart/form-data") or boundary is None:
        raise ValueError(f"this is not a form: {kind[:60]!r}")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode())
    return dict(_part(part) for part in parts[1:] if not part.startswith(b"--"))


def _part(part: bytes) -> tuple[str, bytes]:
    head, separator, content = part.partition(b"\r\n\r\n")
    name = re.search(rb'[;\s]name="([^"]*)"', head)
    if not separator or name is None:
        raise ValueError("a part of the form has no name")
    return name[1].decode(errors="replace"), content


async def _screenshot(machine: DesktopMachine, request: Request) -> Response:
    _, png = await machine.box.content("look")
    return Response(png, media_type="image/png")


def _at_home(machine: DesktopMachine, command: list[str] | str) -> list[str] | str:
    """Replaces `~/` at the beginning of words by the desktop's home; a shell does this itself."""
    if isinstance(command, str):
        return command
    return [machine.box.home + one[1:] if one.startswith("~/") else one for one in command]


async def _run(machine: DesktopMachine, command: list[str] | str, timeout_s: float, cwd: str = "") -> dict[str, Any]:
    """Runs a command and returns the fields of OSWorld's answer; raises AskFailed for a command that did not end, or
    was none."""
    timeout_s = min(timeout_s, MOST_S)
    command = _at_home(machine, command)
    output = await machine.box.ask("execute", command=command, timeout_s=timeout_s, cwd=cwd)
    if output.get("timed_out"):
        raise AskFailed(f"the command took longer than {timeout_s:g} s")
    return {
        "status": "success",
        "output": output["stdout"],
        "error": output["stderr"],
        "returncode": output["returncode"],
    }


async def _execute(machine: DesktopMachine, request: Request) -> Response:
    given = await _json(request)
    command = as_command(given.get("command"), bool(given.get("shell")))
    return JSONResponse(await _run(machine, command, float(given.get("timeout") or COMMAND_S)))


async def _execute_verified(machine: DesktopMachine, request: Request) -> Response:
    """A command, and then a window that must be there or a command that must succeed, within a time."""
    given = await _json(request)
    output = await _run(machine, as_command(given.get("command"), bool(given.get("shell"))), COMMAND_S)
    wanted = given.get("verification") or {}
    limit_s, apart_s = min(float(given.get("max_wait_time", 10)), MOST_S), float(given.get("check_interval", 1))
    begun = time.monotonic()
    while wanted:
        shown = "window_exists" not in wanted or await machine.window(wanted["window_exists"], False, False)
        check = wanted.get("command_success")
        if shown and (check is None or not (await _run(machine, check, 5.0))["returncode"]):
            return JSONResponse({**output, "verification": "passed", "wait_time": time.monotonic() - begun})
        if time.monotonic() - begun > limit_s:
            failed = {"status": "verification_failed", "verification": "failed", "wait_time": limit_s}
            return JSONResponse({**output, **failed}, 500)
        await asyncio.sleep(max(apart_s, 0.05))
    return JSONResponse(output)


async def _run_python(machine: DesktopMachine, request: Request) -> Response:
    code, _ = await _text(request, "code", "`code` is a Python script")
    output = await _run(machine, ["python", "-c", code], PYTHON_S)
    return_code = output.pop("returncode")
    status = "success" if return_code == 0 else "error"
    message = output["output"] + output["error"]
    return JSONResponse(
        {**output, "status": status, "message": message, "need_more": False, "return_code": return_code}
    )


async def _run_bash(machine: DesktopMachine, request: Request) -> Response:
    script, given = await _text(request, "script", "`script` is a shell script")
    command = ["bash", "-c", script]
    output = await _run(machine, command, float(given.get("timeout") or SCRIPT_S), str(given.get("working_dir") or ""))
    return JSONResponse({**output, "status": "success" if output["returncode"] == 0 else "error"})


async def _launch(machine: DesktopMachine, request: Request) -> Response:
    given = await _json(request)
    command = as_command(given.get("command"), bool(given.get("shell")))
    await machine.box.ask("open", command=_at_home(machine, command), window_s=0)
    words = given["command"]
    shown = words if isinstance(words, str) else " ".join(words)
    return PlainTextResponse(f"{shown} launched successfully")


async def _accessibility(machine: DesktopMachine, request: Request) -> Response:
    """Returns the windows as OSWorld's accessibility tree, without their contents, which are unknown here."""
    frames = "".join(
        f'<application name="{html.escape(one["classes"][-1] if one["classes"] else "")}">'
        f'<frame name="{html.escape(one["title"])}" st:active="{str(one["active"]).lower()}" '
        f'cp:screencoord="({one["x"]}, {one["y"]})" cp:size="({one["width"]}, {one["height"]})"/></application>'
        for one in await machine.windows()
    )
    spaces = 'xmlns:st="uri:deskat:state.at-spi.gnome.org" xmlns:cp="uri:deskat:component.at-spi.gnome.org"'
    return JSONResponse({"AT": f"<desktop-frame {spaces}>{frames}</desktop-frame>"})


async def _terminal(machine: DesktopMachine, request: Request) -> Response:
    """Answers with an empty text, as OSWorld's own server does if no GNOME terminal is open."""
    assert machine.box
    return JSONResponse({"output": None, "status": "success"})


async def _platform(machine: DesktopMachine, request: Request) -> Response:
    return PlainTextResponse("Linux")


async def _cursor(machine: DesktopMachine, request: Request) -> Response:
    at = await machine.box.ask("pointer")
    return JSONResponse([at["x"], at["y"]])


async def _screen_size(machine: DesktopMachine, request: Request) -> Response:
    config = machine.environment.config
    return JSONResponse({"width": config.width, "height": config.height})


async def _window_size(machine: DesktopMachine, request: Request) -> Response:
    name = (await _form(request))["app_class_name"].decode()
    if (found := await machine.window(name, True, True) or await machine.window(name, True, False)) is None:
        return _failed(f"there is no window of {name}", 404)
    return JSONResponse({"width": found["width"], "height": found["height"]})


async def _desktop_path(machine: DesktopMachine, request: Request) -> Response:
    return JSONResponse({"desktop_path": machine.box.home})


async def _list_directory(machine: DesktopMachine, request: Request) -> Response:
    path = str((await _json(request))["path"])
    listing = await _run(machine, ["python", "-c", _LISTS, path], COMMAND_S)
    if listing["returncode"]:
        return JSONResponse({"error": "The provided path is not a directory"}, 400)
    return JSONResponse({"directory_tree": json.loads(listing["output"])})


_LISTS = """
import json, os, sys
def listed(place):
    children = []
    for entry in sorted(os.scandir(place), key=lambda one: one.name):
        inner = entry.is_dir(follow_symlinks=False)
        children.append(listed(entry.path) if inner else {"type": "file", "name": entry.name})
    return {"type": "directory", "name": os.path.basename(place), "children": children}
print(json.dumps(listed(os.path.expanduser(sys.argv[1]))))
"""


async def _file(machine: DesktopMachine, request: Request) -> Response:
    path = (await _form(request))["file_path"].decode()
    try:
        _, content = await machine.box.content("read", path=path)
    except AskFailed:
        return JSONResponse({"error": "File not found"}, 404)
    return Response(content, media_type="application/octet-stream")


async def _upload(machine: DesktopMachine, request: Request) -> Response:
    fields = await _form(request)
    path, content = fields["file_path"].decode(), fields["file_data"]
    await machine.box.ask("write", path=path, content=base64.b64encode(content).decode())
    return PlainTextResponse(f"File Uploaded: {len(content)} bytes")


async def _open_file(machine: DesktopMachine, request: Request) -> Response:
    path, _ = await _text(request, "path", "`path` is missing")
    if (why := await machine.open(path)) is not None:
        return PlainTextResponse(why, 404)
    return PlainTextResponse("File opened and window activated successfully")


def _window_asked(wish: str, done: str) -> Answers:
    async def answer(machine: DesktopMachine, request: Request) -> Response:
        given = await _json(request)
        found = await machine.window(str(given["window_name"]), bool(given.get("by_class")), bool(given.get("strict")))
        if found is not None:
            await machine.box.ask("window", number=found["id"], wish=wish)
        return PlainTextResponse(done)  # like OSWorld's own server, without a check that it exists

    return answer


async def _reset(machine: DesktopMachine, request: Request) -> Response:
    given = await _json(request)
    task, seed = given.get("task"), given.get("seed")
    if not (task is None or isinstance(task, str)) or not (seed is None or (type(seed) is int and seed >= 0)):
        raise ValueError("`task` is a name, and `seed` a whole number")
    return JSONResponse({"instruction": await machine.reset(task, seed)})


async def _outcome(machine: DesktopMachine, request: Request) -> Response:
    if (outcome := await machine.outcome()) is None:
        return _failed("no task was started", 404)
    return JSONResponse({"done": outcome.done, "reward": outcome.reward})


_ROUTES: Mapping[str, tuple[str, Answers]] = {
    "/screenshot": ("GET", _screenshot),
    "/accessibility": ("GET", _accessibility),
    "/terminal": ("GET", _terminal),
    "/platform": ("GET", _platform),
    "/cursor_position": ("GET", _cursor),
    "/execute": ("POST", _execute),
    "/setup/execute": ("POST", _execute),
    "/execute_with_verification": ("POST", _execute_verified),
    "/setup/execute_with_verification": ("POST", _execute_verified),
    "/run_python": ("POST", _run_python),
    "/run_bash_script": ("POST", _run_bash),
    "/screen_size": ("POST", _screen_size),
    "/window_size": ("POST", _window_size),
    "/desktop_path": ("POST", _desktop_path),
    "/wallpaper": ("POST", _absent("the desktop has no wallpaper", 404)),
    "/list_directory": ("POST", _list_directory),
    "/file": ("POST", _file),
    "/setup/upload": ("POST", _upload),
    "/setup/launch": ("POST", _launch),
    "/setup/open_file": ("POST", _open_file),
    "/setup/activate_window": ("POST", _window_asked("activate", "Window activated successfully")),
    "/setup/close_window": ("POST", _window_asked("close", "Window closed successfully.")),
    "/flywheel/reset": ("POST", _reset),
    "/flywheel/outcome": ("GET", _outcome),
}
