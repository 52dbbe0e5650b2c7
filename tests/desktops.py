"""What tests of the desktop share: whether one can be had here, and a program in it that says what input reaches it."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from apps.osworld.serve import require_pyautogui
from environments.desktop.boxed import RunningDesktop
from environments.desktop.environment import DesktopConfig, missing_packages, require_programs
from environments.desktop.isolation import require_walls
from environments.desktop.sandbox import begin
from schemas.failure import FlywheelError
from tests.tiers import lacks

T = TypeVar("T")


def _absent() -> str:
    """What is missing here for a desktop, in words; empty where nothing is."""
    if missing := missing_packages():
        return lacks("no desktop", f"apt-get install {' '.join(missing)}")
    try:
        require_programs()
    except FlywheelError as error:
        return lacks("no desktop", error.problem)
    return ""


def _isolation() -> str:
    try:
        require_walls()
    except FlywheelError:
        return "none"
    return "namespaces"


def _no_pyautogui() -> str:
    try:
        require_pyautogui()
    except FlywheelError:
        return lacks("no pyautogui", "make setup")
    return ""


ABSENT = _absent()
NO_PYAUTOGUI = _no_pyautogui()
ON_OSWORLD_S = pytest.mark.skipif(bool(ABSENT or NO_PYAUTOGUI), reason=ABSENT or NO_PYAUTOGUI)
ON_A_DESKTOP = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
WALLED = not ABSENT and _isolation() == "namespaces"
IN_NAMESPACES = pytest.mark.skipif(
    not WALLED, reason=ABSENT or lacks("no sandbox", "apt-get install bubblewrap, and permit user namespaces")
)
CONFIG = DesktopConfig.model_validate({"kind": "desktop", "isolation": "namespaces" if WALLED else "none"})

WITNESS = """
import json, os, sys
from Xlib import X, Xutil, display
shown = display.Display()
screen = shown.screen()
window = screen.root.create_window(
    100, 100, 600, 400, 0, X.CopyFromParent, background_pixel=screen.white_pixel,
    event_mask=X.KeyPressMask | X.KeyReleaseMask | X.ButtonPressMask | X.ButtonReleaseMask | X.PointerMotionMask,
)
window.set_wm_normal_hints(flags=Xutil.USPosition | Xutil.USSize)
window.set_wm_name("witness")
window.set_wm_class("witness", "Witness")
window.map()
kinds = {X.KeyPress: "key", X.KeyRelease: "key up", X.ButtonPress: "button", X.ButtonRelease: "button up",
         X.MotionNotify: "move"}
with open(os.path.expanduser("~/events.txt"), "w", buffering=1) as log:
    while True:
        event = shown.next_event()
        if event.type == X.MappingNotify:
            shown.refresh_keyboard_mapping(event)
        elif event.type in kinds:
            keys = event.type in (X.KeyPress, X.KeyRelease)
            shifted = 1 if keys and event.state & X.ShiftMask else 0
            what = shown.keycode_to_keysym(event.detail, shifted) if keys else event.detail
            log.write(json.dumps([kinds[event.type], what, event.root_x, event.root_y, event.time]) + chr(10))
"""
"""A window that writes every input event that reaches it into events.txt, with the keysym or the button."""


async def witness(box: RunningDesktop) -> None:
    """Opens the witness, and puts the pointer on it, so that it has the focus."""
    await box.set_out({".witness.py": WITNESS.encode()})
    answer = await box.ask("open", command=["python", f"{box.home}/.witness.py"], window_s=10)
    assert answer["shown"]
    await box.ask("rest", rest_s=2)


def rows_of(content: bytes) -> list[list[Any]]:
    """The events in what the witness wrote: kind, keysym or button, x, y, time in milliseconds."""
    return [json.loads(row) for row in content.replace(b"\0", b"").splitlines()]


def inputs_of(rows: Sequence[Sequence[Any]]) -> int:
    """How many of these events press or let go of something."""
    return sum(row[0] != "move" for row in rows)


async def witnessed(box: RunningDesktop, least: int = 0) -> list[list[Any]]:
    """The events since the last call, once at least so many press or let go of something (after 20 s, what came)."""
    late = time.monotonic() + 20
    while True:
        await box.ask("rest", rest_s=1)
        _, content = await box.content("read", path="events.txt")
        rows = rows_of(content)
        if inputs_of(rows) >= least or time.monotonic() > late:
            break
    await box.ask("execute", command=["truncate", "-s", "0", f"{box.home}/events.txt"], timeout_s=5)
    return rows


def on_a_box(work: Callable[[RunningDesktop], Awaitable[T]], config: DesktopConfig = CONFIG) -> T:
    """What comes of work on a fresh desktop, which is ended after it."""

    async def run() -> T:
        box = await begin(config)
        try:
            return await work(box)
        finally:
            await box.end()

    return asyncio.run(run())
