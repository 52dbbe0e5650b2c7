"""Serve a desktop from inside its sandbox: start the X server and answer requests on standard input.

`python -m environments.desktop.box WIDTH HEIGHT HOME`. The first line lists the home's files before the start; its
answer is an empty line, or an `error`. A request is a line of JSON with `id`, `ask` and its arguments; an answer is a
line of JSON with the same `id`, followed by `bytes` bytes if it has that field. At the end of the input, all processes
that the module started end. `execute` runs concurrently with other requests; all others run in turn.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from Xlib.display import Display
from Xlib.error import ConnectionClosedError

from environments.desktop.box import home_files, programs
from environments.desktop.box.frames import Frames, settled
from environments.desktop.box.input import Input
from environments.desktop.box.windows import Windows

Answer = tuple[dict[str, Any], bytes]
MOST_BYTES = 64 << 20
"""Maximum bytes of a file that is read."""
POLL_S = 0.02
"""Seconds between two checks for a window."""


class DesktopServer:
    """A desktop that answers requests."""

    def __init__(self, width: int, height: int, home: Path, output: BinaryIO) -> None:
        self._home, self._output, self._writing = home, output, threading.Lock()
        drawn = Path(os.environ["TMPDIR"]) / ".screen"
        self._server, name = programs.start_x(width, height, drawn)
        os.environ["DISPLAY"] = name
        self._display = Display(name)
        self._windows, self._pointer, self._frames = Windows(self._display), Input(self._display), Frames(drawn)
        self._manage()
        self._asks: dict[str, Callable[..., Answer | dict[str, Any]]] = {
            "input": self._input, "look": self._look, "open": self._open,
            "windows": lambda: {"windows": self._windows.listed()},
            "clipboard": lambda: {"text": self._windows.clipboard()}, "tree": lambda: {"tree": home_files.tree(home)},
            "set_out": self._set_out, "read": self._read, "write": self._write, "window": self._window,
            "pointer": lambda: dict(zip(("x", "y"), self._windows.pointer(), strict=True)), "rest": self._rest,
        }  # fmt: skip

    def _manage(self) -> None:
        programs.opened(["openbox", "--sm-disable"], self._home)
        until = time.monotonic() + programs.START_S
        while not self._windows.managed():
            if time.monotonic() > until:
                raise programs.NotStarted("openbox: it manages no windows")
            time.sleep(POLL_S)

    def answer(self, line: bytes) -> None:
        """Answers a request; a failed request gets an `error`."""
        asked = json.loads(line)
        number, what = asked.pop("id"), asked.pop("ask")
        if what == "execute":
            threading.Thread(target=self._reply, args=(number, self._execute, asked), daemon=True).start()
        else:
            self._reply(number, self._asks[what], asked)

    def _reply(self, number: int, do: Callable[..., Answer | dict[str, Any]], asked: Mapping[str, Any]) -> None:
        try:
            given = do(**asked)
        except (OSError, ValueError, programs.NotStarted) as error:
            given = {"error": str(error) or type(error).__name__}
        fields, content = given if isinstance(given, tuple) else (given, b"")
        with self._writing:
            self._output.write(json.dumps({**fields, "id": number, "bytes": len(content)}).encode() + b"\n" + content)
            self._output.flush()

    def _input(self, events: list[list[Any]], rest_s: float) -> dict[str, Any]:
        self._pointer.play(events)
        return self._rest(rest_s)

    def _rest(self, rest_s: float) -> dict[str, Any]:
        return {"rested": settled(self._frames, rest_s)}

    def _look(self) -> Answer:
        return {"width": self._frames.width, "height": self._frames.height}, self._frames.png(self._frames.grab())

    def _window(self, number: int, wish: str) -> dict[str, Any]:
        self._windows.ask_manager(number, wish)
        return {}

    def _open(self, command: list[str] | str, window_s: float) -> dict[str, Any]:
        """Starts a program and waits at most `window_s` seconds for a new window; 0 does not wait."""
        before = {one["id"] for one in self._windows.listed()}
        pid = programs.opened(command, self._home)
        until = time.monotonic() + window_s
        while time.monotonic() < until:
            if {one["id"] for one in self._windows.listed()} - before:
                return {"pid": pid, "shown": True}
            time.sleep(POLL_S)
        return {"pid": pid, "shown": False}

    def _execute(self, command: list[str] | str, timeout_s: float, cwd: str = "") -> dict[str, Any]:
        return programs.executed(command, Path(cwd) if cwd else self._home, timeout_s)

    def _set_out(self, files: list[dict[str, Any]]) -> dict[str, Any]:
        home_files.set_out(self._home, files)
        return {}

    def _read(self, path: str) -> Answer:
        place = self._place(path)
        if not place.is_file() or place.stat().st_size > MOST_BYTES:
            raise ValueError(f"{path}: no file of at most {MOST_BYTES >> 20} MiB")
        return {}, place.read_bytes()

    def _write(self, path: str, content: str) -> dict[str, Any]:
        place = self._place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        home_files.set_out(place.parent, [{"path": place.name, "content": content}])
        return {}

    def _place(self, path: str) -> Path:
        return self._home / os.path.expandvars(os.path.expanduser(path))


def main() -> None:
    """Answers requests until the input ends."""
    width, height, home = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        home_files.set_out(home, json.loads(sys.stdin.buffer.readline()))
        box = DesktopServer(width, height, home, output)
        output.write(b"{}\n")
        output.flush()
        with suppress(ConnectionClosedError, BrokenPipeError):
            for line in sys.stdin.buffer:
                box.answer(line)
    except programs.NotStarted as error:
        output.write(json.dumps({"error": str(error)}).encode() + b"\n")
        output.flush()


if __name__ == "__main__":
    main()
