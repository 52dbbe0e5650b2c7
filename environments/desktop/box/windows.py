"""Read the windows and the clipboard of an X display from its window manager and its programs (EWMH, ICCCM)."""

import time
from collections.abc import Callable
from typing import Any

from Xlib import X, Xatom
from Xlib.error import XError
from Xlib.protocol.event import ClientMessage

ANSWER_S = 0.5
"""Seconds that the owner of the clipboard may take to send its text."""
PROBE_S = 0.5
"""Seconds that a window manager may take to manage a test window."""
FROM_PAGER = 2
"""Source of requests to a window manager (EWMH): a pager, whose requests are obeyed."""


class Windows:
    """Reads and moves the windows of one display.

    Args:
        display: an `Xlib.display.Display`.
    """

    def __init__(self, display: Any) -> None:
        self._display = display
        self._root = display.screen().root
        self._mine = self._root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)

    def managed(self) -> bool:
        """Whether a window manager runs and manages a newly mapped window.

        A window that is mapped while the manager starts may be lost to it, since it announces itself before it scans
        for windows.
        """
        if not self._numbers(self._root, "_NET_SUPPORTING_WM_CHECK"):
            return False
        probe = self._root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
        probe.map()
        taken = self._comes_to(lambda: probe.id in self._numbers(self._root, "_NET_CLIENT_LIST"))
        probe.destroy()
        return taken and self._comes_to(lambda: probe.id not in self._numbers(self._root, "_NET_CLIENT_LIST"))

    @staticmethod
    def _comes_to(holds: Callable[[], bool]) -> bool:
        until = time.monotonic() + PROBE_S
        while not (held := holds()) and time.monotonic() < until:
            time.sleep(0.002)
        return held

    def listed(self) -> list[dict[str, Any]]:
        """Lists the windows of programs, the oldest first: `id`, `title`, `classes`, the inner `x`, `y`, `width` and
        `height` in pixels, and whether the window is `active`, `maximised` or `minimised`."""
        active = self._numbers(self._root, "_NET_ACTIVE_WINDOW")
        found: list[dict[str, Any]] = []
        for number in self._numbers(self._root, "_NET_CLIENT_LIST"):
            try:
                found.append({**self._one(number), "active": number in active})
            except XError:
                continue  # it has been closed
        return found

    def _one(self, number: int) -> dict[str, Any]:
        window = self._display.create_resource_object("window", number)
        size, at = window.get_geometry(), window.translate_coords(self._root, 0, 0)
        states = {self._display.get_atom_name(atom) for atom in self._numbers(window, "_NET_WM_STATE")}
        return {
            "id": number,
            "title": self._title(window),
            "classes": list(window.get_wm_class() or ()),
            "x": -at.x,
            "y": -at.y,
            "width": size.width,
            "height": size.height,
            "maximised": {"_NET_WM_STATE_MAXIMIZED_VERT", "_NET_WM_STATE_MAXIMIZED_HORZ"} <= states,
            "minimised": "_NET_WM_STATE_HIDDEN" in states,
        }

    def _title(self, window: Any) -> str:
        named = window.get_full_property(self._atom("_NET_WM_NAME"), self._atom("UTF8_STRING"))
        if named is not None:
            value = named.value
            return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        name = window.get_wm_name()
        return name.decode("latin-1") if isinstance(name, bytes) else name or ""

    def _numbers(self, window: Any, name: str) -> list[int]:
        held = window.get_full_property(self._atom(name), X.AnyPropertyType)
        return [] if held is None else [int(one) for one in held.value]

    def _atom(self, name: str) -> int:
        return self._display.intern_atom(name)

    def ask_manager(self, number: int, wish: str) -> None:
        """Asks the window manager to `activate` or to `close` a window."""
        name = {"activate": "_NET_ACTIVE_WINDOW", "close": "_NET_CLOSE_WINDOW"}[wish]
        first = [FROM_PAGER, X.CurrentTime] if wish == "activate" else [X.CurrentTime, FROM_PAGER]
        window = self._display.create_resource_object("window", number)
        message = ClientMessage(window=window, client_type=self._atom(name), data=(32, [*first, 0, 0, 0]))
        self._root.send_event(message, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
        self._display.sync()

    def pointer(self) -> tuple[int, int]:
        """Returns the position of the pointer."""
        at = self._root.query_pointer()
        return at.root_x, at.root_y

    def clipboard(self) -> str:
        """Returns the text in the clipboard; empty if there is none, or its owner does not answer."""
        selection, target = self._atom("CLIPBOARD"), self._atom("UTF8_STRING")
        if self._display.get_selection_owner(selection) == X.NONE:
            return ""
        self._mine.convert_selection(selection, target, target, X.CurrentTime)
        self._display.sync()
        until = time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            while self._display.pending_events():
                event = self._display.next_event()
                if event.type == X.SelectionNotify:
                    return self._handed_over(event.property)
            time.sleep(0.005)
        return ""

    def _handed_over(self, name: int) -> str:
        if name == X.NONE:
            return ""
        held = self._mine.get_full_property(name, X.AnyPropertyType)
        self._mine.delete_property(name)
        if held is None or held.property_type == Xatom.ATOM:
            return ""
        return held.value.decode(errors="replace") if isinstance(held.value, bytes) else str(held.value)
