"""Run a demo phone: a page with five apps in a headless browser, behind a server of adb's protocol.

It needs no emulator. `Adb` and Debian's `adb` can use it as a phone. It imitates Android's commands `wm`, `screencap`,
`input`, `am`, `pm`, `ime`, `monkey`, `settings`, `dumpsys window` and `cat`.
"""

import asyncio
import contextlib
import itertools
import json
import shlex
import struct
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from environments.android.actions import KEYBOARD
from environments.android.task import PhoneTask
from environments.chromium.browser import Browser
from environments.chromium.page import Page, PageKind
from schemas.action import Click, Scroll, Type
from schemas.failure import SandboxFailure

PAGE = Path(__file__).with_name("phone.html")
SERIAL = "demo"
WIDTH, HEIGHT = 360, 640
LONG_PRESS_MS = 400
"""Minimum milliseconds of a long press."""
APPS: Mapping[str, str] = {
    name: f"org.flywheel.demo.{name}" for name in ("settings", "notes", "clock", "contacts", "browser")
}
"""Packages by app."""
TASKS: Mapping[str, PhoneTask] = {
    "phone-wifi": PhoneTask(
        instruction="Turn on Wi-Fi in Settings.", max_steps=6, deterministic=True, tags=("phone",),
        check="settings get global wifi_on", matches="1",
        script=(Click(x=0.25, y=0.14), Click(x=0.5, y=0.17)),
    ),
    "phone-clock": PhoneTask(
        instruction="Open the app Clock.", max_steps=4, deterministic=True, tags=("phone",),
        check="dumpsys window", matches=".*mCurrentFocus=Window\\{demo u0 org.flywheel.demo.clock/.*",
        script=(Click(x=0.25, y=0.31),),
    ),
    "phone-note": PhoneTask(
        instruction="Save the note `Grüße, 世界` in Notes.", max_steps=8, deterministic=True, tags=("phone",),
        check="cat /sdcard/notes.txt", matches="Grüße, 世界",
        script=(
            Click(x=0.75, y=0.14), Click(x=0.5, y=0.2), Type(content="Grüße, 世界"), Click(x=0.5, y=0.33),
        ),
    ),
    "phone-call": PhoneTask(
        instruction="Call Tim, the last of the contacts.", max_steps=10, deterministic=True, tags=("phone",),
        app="contacts", check="cat /sdcard/called.txt", matches="Tim",
        script=(*[Scroll(x=0.5, y=0.5, direction="down")] * 3, Click(x=0.5, y=0.85), Click(x=0.5, y=0.18)),
    ),
}  # fmt: skip
"""Tasks of the demo phone, by template."""
Reply = tuple[bytes, int]
_FILES = {"/sdcard/notes.txt": "data.notes.join('\\n')", "/sdcard/called.txt": "data.contacts"}
_BUTTONS = {"3": "home", "4": "back", "187": "recent", "67": "erase"}


class DemoPhone:
    """A demo phone and its server."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self._browser, self._page = browser, page
        self._server: asyncio.Server | None = None
        self._connections = set[asyncio.StreamWriter]()
        self._input_method = "com.android.inputmethod.latin/.LatinIME"
        self._lock = asyncio.Lock()
        self.keyboards = [self._input_method, KEYBOARD]
        """Installed input methods."""
        self.serial = SERIAL
        """Serial of the phone in the list of devices."""
        self.state = "device"
        """State of the phone in the list of devices; empty if it is unplugged."""
        self.port = 0
        """Port of the server on this machine."""

    @classmethod
    async def start(cls, path: Path) -> Self:
        """Starts the phone in the browser at `path`; raises SandboxFailure."""
        browser = await Browser.launch(path)
        try:
            page = await Page.acquire(browser, PageKind(WIDTH, HEIGHT, f"{PAGE.parent.as_uri()}/", ""))
            await page.open(PAGE.as_uri(), "null")
            phone = cls(browser, page)
            phone._server = await asyncio.start_server(phone._connected, "127.0.0.1", 0)
        except BaseException:
            await browser.end()
            raise
        phone.port = phone._server.sockets[0].getsockname()[1]
        return phone

    @property
    def alive(self) -> bool:
        """Whether the phone's browser runs."""
        return self._browser.alive

    @property
    def pid(self) -> int:
        """Id of the browser's process."""
        return self._browser.pid

    async def ask(self) -> object:
        """Asks the page for its screen; raises SandboxFailure."""
        return await self._js("screen()")

    async def end(self) -> None:
        """Ends the server and the browser."""
        if self._server is not None:
            self._server.close()
        for one in list(self._connections):
            one.close()
        await self._browser.end()

    async def _js(self, expression: str) -> Any:
        return await self._page.evaluate(f"world.phone.{expression}")

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            # The client, which has no answer, reports a browser that has ended.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, SandboxFailure):
                while await self._answered(reader, writer):
                    await writer.drain()
                await writer.drain()
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers a request; returns whether the connection serves another one."""
        request = (await reader.readexactly(int(await reader.readexactly(4), 16))).decode()
        if request.startswith("host-serial:") and not request.startswith(f"host-serial:{self.serial}:"):
            writer.write(b"FAIL" + _counted(f"device '{request.split(':')[1]}' not found"))
            return False
        verb = request.removeprefix(f"host-serial:{self.serial}:").removeprefix("host:")
        answers = {
            "version": "0029", "features": "shell_v2,cmd", "get-state": self.state, "get-serialno": self.serial,
            "devices": f"{self.serial}\t{self.state}\n" if self.state else "",
            "devices-l": f"{self.serial:<22} {self.state} product:demo model:Demo device:demo\n" if self.state else "",
        }  # fmt: skip
        if verb in answers:
            writer.write(b"OKAY" + _counted(answers[verb]))
            return False
        if verb.startswith("wait-for-"):
            writer.write(b"OKAYOKAY")
            return False
        if verb.startswith(("transport", "tport")):
            asked = verb.rpartition(":")[2]
            if asked not in (self.serial, "any", "transport-any") or self.state != "device":
                wrong = (
                    f"device '{asked}' not found" if asked != self.serial or not self.state else f"device {self.state}"
                )
                writer.write(b"FAIL" + _counted(wrong))
                return False
            writer.write(b"OKAY" + (struct.pack("<Q", 1) if verb.startswith("tport") else b""))
            return True
        service, _, command = request.partition(":")
        if service.split(",")[0] not in ("shell", "exec") or self.state != "device":
            writer.write(b"FAIL" + _counted(f"unknown host service {request[:40]!r}"))
            return False
        writer.write(b"OKAY")
        async with self._lock:
            out, code = await self._run(command)
        if service.startswith("shell,v2"):
            out = struct.pack("<BI", 1, len(out)) + out + struct.pack("<BIB", 3, 1, code)
        writer.write(out)
        return False

    async def _run(self, line: str) -> Reply:
        """Runs the commands of a line up to the first that fails before an `&&`."""
        parts = shlex.shlex(line, posix=True, punctuation_chars=";&")
        parts.whitespace_split, parts.commenters = True, ""
        command, out, code = list[str](), b"", 0
        for part in [*parts, ";"]:
            if part not in (";", "&&"):
                command.append(part)
                continue
            if command:
                made = _COMMANDS.get(command[0])
                given, code = await made(self, command[1:]) if made else _missing(command[0])
                out, command = out + given, []
            if part == "&&" and code:
                break
        return out, code

    async def _wm(self, given: Sequence[str]) -> Reply:
        return f"Physical size: {WIDTH}x{HEIGHT}\n".encode(), 0

    async def _screencap(self, given: Sequence[str]) -> Reply:
        return await self._page.screenshot(), 0

    async def _input(self, given: Sequence[str]) -> Reply:
        verb, *values = given
        if verb == "tap":
            await self._touch(*map(int, values))
        elif verb == "text":
            if not values[0].isascii():
                return b"java.lang.NullPointerException: Attempt to get length of null array\n", 255
            await self._insert(values[0].replace("%s", " "))
        elif verb in ("keyevent", "keycombination"):
            await self._key(values[-1])
        elif verb in ("swipe", "draganddrop"):
            x, y, to_x, to_y, *ms = map(int, values)
            if (x, y) != (to_x, to_y):
                await self._js(f"swipe({x}, {y}, {to_x}, {to_y})")
            elif ms and ms[0] >= LONG_PRESS_MS:
                await self._js(f"hold({x}, {y})")
            else:
                await self._touch(x, y)
        else:
            return f"Error: Unknown command: {verb}\n".encode(), 255
        return b"", 0

    async def _touch(self, x: int, y: int) -> None:
        await self._page.ready()
        await self._page.input(
            [
                self._page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
                for kind in ("mousePressed", "mouseReleased")
            ]
        )

    async def _insert(self, text: str) -> None:
        await self._page.input([self._page.send("Input.insertText", text=text)])

    async def _key(self, code: str) -> None:
        if code in _BUTTONS:
            await self._js(f"{_BUTTONS[code]}()")
        elif code in ("66", "KEYCODE_ENTER"):
            await self._insert("\n")
        elif code in ("61", "KEYCODE_TAB"):
            await self._insert("\t")  # as Android's text fields of several lines do

    async def _am(self, given: Sequence[str]) -> Reply:
        verb, *values = given
        fields = dict(itertools.pairwise(values))
        if verb == "force-stop":
            await self._js(f"stop({json.dumps(values[0])})")
        elif verb == "start":
            await self._js(f"browse({json.dumps(fields['-d'])})")
        elif verb == "broadcast":
            if fields.get("-a") == "ADB_INPUT_B64" and self._input_method == KEYBOARD:
                await self._insert(b64decode(fields["msg"]).decode())
            return b"Broadcast completed: result=0\n", 0
        return b"", 0

    async def _pm(self, given: Sequence[str]) -> Reply:
        if given[0] == "list":
            return "".join(f"package:{one}\n" for one in await self._js("packages()")).encode(), 0
        cleared = await self._js(f"clear({json.dumps(given[1])})")
        return (b"Success\n", 0) if cleared else (b"Failed\n", 1)

    async def _ime(self, given: Sequence[str]) -> Reply:
        if given[0] == "list":
            return "".join(f"{one}\n" for one in self.keyboards).encode(), 0
        if given[1] not in self.keyboards:
            return f"Unknown input method {given[1]}\n".encode(), 255
        if given[0] == "set":
            self._input_method = given[1]
        return b"", 0

    async def _monkey(self, given: Sequence[str]) -> Reply:
        opened = await self._js(f"open({json.dumps(given[1])})")
        return (b"Events injected: 1\n", 0) if opened else (b"** No activities found to run, monkey aborted.\n", 252)

    async def _settings(self, given: Sequence[str]) -> Reply:
        verb, _, key, *value = given
        if verb == "put":
            await self._js(f"put({json.dumps(key)}, {int(value[0])})")
            return b"", 0
        if key == "default_input_method":
            return f"{self._input_method}\n".encode(), 0
        return f"{await self._js(f'data.settings[{json.dumps(key)}] ?? null')}\n".replace("None", "null").encode(), 0

    async def _dumpsys(self, given: Sequence[str]) -> Reply:
        return f"  mCurrentFocus=Window{{demo u0 {await self._js('screen()')}/.Main}}\n".encode(), 0

    async def _cat(self, given: Sequence[str]) -> Reply:
        if given[0] not in _FILES:
            return f"cat: {given[0]}: No such file or directory\n".encode(), 1
        return str(await self._js(_FILES[given[0]])).encode(), 0


_COMMANDS: Mapping[str, Callable[[DemoPhone, Sequence[str]], Awaitable[Reply]]] = {
    "wm": DemoPhone._wm,
    "screencap": DemoPhone._screencap,
    "input": DemoPhone._input,
    "am": DemoPhone._am,
    "pm": DemoPhone._pm,
    "ime": DemoPhone._ime,
    "monkey": DemoPhone._monkey,
    "settings": DemoPhone._settings,
    "dumpsys": DemoPhone._dumpsys,
    "cat": DemoPhone._cat,
}


def _missing(name: str) -> Reply:
    return f"/system/bin/sh: {name}: inaccessible or not found\n".encode(), 127


def _counted(text: str) -> bytes:
    return b"%04x" % len(text.encode()) + text.encode()
