"""Drive a headless Chromium over a pipe: one page at a time, which is drawn only when asked.

Messages of the Chrome DevTools Protocol are NUL-separated JSON on two descriptors. It needs Python 3.11 and its
standard library. All calls block, and an answer that never comes is ended by the time limit of the worker's owner.
"""

import base64
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

DRAWING_S = 10.0
"""Seconds within which a browser draws a screenshot; the first frames of a new document have none."""
_HIGH = 10
"""Lowest number of the pipe's descriptors, so that they are not the browser's 3 and 4."""
_EXEC = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


class BrowserGone(Exception):
    """Raised if the browser, or its page, has ended."""


class ScriptError(Exception):
    """Raised if a script in the page threw an exception."""


class Chromium:
    """A running browser.

    Args:
        path: the headless shell.
        flags: its flags, without the profile.
        profile: folder of its profile.
    """

    def __init__(self, path: str, flags: Sequence[str], profile: str) -> None:
        reads, self._to = _pipe()
        self._from, writes = _pipe()
        command = (sys.executable, "-I", "-c", _EXEC, str(reads), str(writes), path, *flags)
        self._process = subprocess.Popen(
            (*command, f"--user-data-dir={profile}", "about:blank"), pass_fds=(reads, writes), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(reads)
        os.close(writes)
        self._number, self._buffer = 0, bytearray()
        self.loading = set[str]()
        """Ids of the requests whose answer is not complete, of pages whose network domain is enabled."""

    def send(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Sends a command and returns its result; raises BrowserGone, or ScriptError if it is refused."""
        self._number += 1
        message = {
            "id": self._number,
            "method": method,
            "params": params,
            **({"sessionId": session} if session else {}),
        }
        content = memoryview(json.dumps(message).encode() + b"\0")
        try:
            while content:
                content = content[os.write(self._to, content) :]
        except OSError as error:
            raise BrowserGone(f"{method}: the browser has ended") from error
        while True:
            answer = self._read(method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise ScriptError(f"{method}: {answer['error'].get('message', '')}")
                return answer["result"]
            self._noted(method, answer)

    def page(self, width: int, height: int) -> "DevtoolsPage":
        """Opens a blank page that has the focus, with a size in pixels."""
        made = self.send(
            "Target.createTarget", url="about:blank", width=width, height=height, enableBeginFrameControl=True
        )
        target = made["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = DevtoolsPage(self, target, session)
        page.send("Page.enable")
        page.send("Emulation.setFocusEmulationEnabled", enabled=True)
        return page

    def close(self) -> None:
        """Ends the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _noted(self, method: str, event: dict[str, Any]) -> None:
        kind = event.get("method")
        if kind == "Inspector.targetCrashed":
            raise BrowserGone(f"{method}: the page has crashed")
        if kind == "Network.requestWillBeSent":
            self.loading.add(event["params"]["requestId"])
        elif kind in ("Network.loadingFinished", "Network.loadingFailed"):
            self.loading.discard(event["params"]["requestId"])

    def _read(self, method: str) -> dict[str, Any]:
        while (end := self._buffer.find(b"\0")) < 0:
            part = os.read(self._from, 1 << 20)
            if not part:
                raise BrowserGone(f"{method}: the browser has ended")
            self._buffer += part
        message = json.loads(self._buffer[:end])
        del self._buffer[: end + 1]
        return message


class DevtoolsPage:
    """One page of a browser, made by `Chromium.page`."""

    def __init__(self, browser: Chromium, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command to the page."""
        return self._browser.send(method, self._session, **params)

    def run(self, expression: str) -> Any:
        """Returns the JSON value of a JavaScript expression or its promise; raises ScriptError for an exception."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ScriptError(details.get("exception", {}).get("description", details["text"])[:400])
        return answer["result"].get("value")

    def frame(self) -> None:
        """Draws a frame."""
        self.send("HeadlessExperimental.beginFrame")

    def screenshot(self) -> bytes:
        """Draws a frame and returns it as PNG; raises BrowserGone if there is none in time."""
        ends = time.monotonic() + DRAWING_S
        while time.monotonic() < ends:
            drawn = self.send("HeadlessExperimental.beginFrame", screenshot={"format": "png", "optimizeForSpeed": True})
            if "screenshotData" in drawn:
                return base64.b64decode(drawn["screenshotData"])
            time.sleep(0.005)
        raise BrowserGone(f"the browser drew no screenshot within {DRAWING_S:g} s")

    def close(self) -> None:
        """Closes the page."""
        self._browser.send("Target.closeTarget", targetId=self._target)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _HIGH) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
