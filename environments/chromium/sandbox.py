"""Implement a sandbox in a page of a browser, with actions performed as real input.

The module also translates keys to Chromium's key events.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from environments.chromium.browser import Browser
from environments.chromium.page import Page, PageKind
from environments.keys import key_of, keys_of
from environments.sandbox import Sandbox
from schemas import action as act
from schemas.config.sections import EnvironmentConfig
from schemas.failure import ActionFailure, SandboxFailure
from schemas.keyboard import BLANKS, KEYS, Key
from schemas.observation import Element, Observation

MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
"""Bits of `Input.dispatchKeyEvent`, by the DOM's names."""
BUTTONS: Mapping[act.Button, int] = {"left": 1, "right": 2, "middle": 4}
"""Bits of the held buttons of `Input.dispatchMouseEvent`."""
_TEXTS = {"Enter": "\r"}


def event_of(key: Key, kind: str, modifiers: int) -> dict[str, Any]:
    """Returns the parameters of `Input.dispatchKeyEvent` for a key that goes down or up.

    Args:
        key: the key.
        kind: `keyDown` or `keyUp`.
        modifiers: the bits of the held modifiers. With shift, a key writes its other character; with any other
            modifier, it writes nothing.
    """
    shown = key.shifted if key.shifted and modifiers & MODIFIERS["Shift"] else key.key
    fields: dict[str, Any] = {"type": kind, "key": shown, "code": key.code, "modifiers": modifiers}
    fields |= {"windowsVirtualKeyCode": key.number, "location": key.location, "isKeypad": key.location == 3}
    text = _TEXTS.get(shown, shown if len(shown) == 1 else "")
    if kind == "keyDown" and text and not modifiers & ~MODIFIERS["Shift"]:
        fields["text"] = text
    elif kind == "keyDown":
        fields["type"] = "rawKeyDown"
    return fields


def key_writing(character: str) -> Key:
    """Returns the key that writes this character."""
    return KEYS.get(BLANKS.get(character, character)) or Key(character, "", character, "", 0, 0)


def modifier_of(key: Key) -> int:
    """Returns the modifier bit of a key; 0 for a key that is no modifier."""
    return MODIFIERS.get(key.key, 0)


DRAG_MOVES = 4
"""Number of moves of a drag to its end. One more move at the end follows, without which a native drag is not
dropped."""
HELD_MS, MOMENT_MS = 120, 20
"""Milliseconds of the page's time before a drag's first move, and for each move. Lists with touch scrolling treat a
shorter press as a scroll."""
_PASSED = """((ms) => {
  try { if (world.__page?.advance) return world.__page.advance(ms); } catch { return null; }
  return new Promise((resolve) => setTimeout(resolve, ms));
})(%d)"""
TYPED_AT_ONCE = 400
"""Number of key events that are sent before they are awaited, so that the browser's other pages run in between."""
SCROLL_PIXELS = 5 * 53
"""One scroll is five notches of the wheel, as UI-TARS's own parser performs it; a notch is 53 pixels on Linux."""
_WHEEL = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


_MARKUP = """[...world.document.querySelectorAll("body *")].map((node) => [node.tagName.toLowerCase(),
  ...["class", "id", "type", "role", "name"].filter((name) => node.hasAttribute(name))
    .map((name) => `${name}=${node.getAttribute(name)}`)].join(" "))"""


class BrowserSandbox(Sandbox):
    """One task in one page."""

    page: type[Page] = Page
    kind: PageKind
    """Settings of the sandbox's page."""
    _elements = "world.__page.elements()"
    """JavaScript expression that lists each visible element: name, kind, the box's four edges in fractions of the
    screen, whether it is interactive, and value."""

    def __init__(self, browser: Browser, config: EnvironmentConfig) -> None:
        super().__init__(config)
        self._browser = browser
        self._opened: Page | None = None
        self._instruction = ""
        self._held: dict[str, int] = {}
        self._down: list[act.Button] = []
        """Held mouse buttons."""
        self._pointer: tuple[float, float] | None = None
        """Place of the pointer in fractions of the screen; None before the first action at a place."""
        self._acting = False
        """Whether an action is in progress."""

    @abstractmethod
    async def _react(self, action: act.Action) -> None:
        """Lets the page react to a performed action."""

    def _lasts_ms(self, action: act.Action, usual_ms: int) -> int:
        """Returns the milliseconds of the page's time that an action takes: a wait's own, else the usual ones."""
        seconds = act.seconds_of(action)
        return usual_ms if seconds is None else round(seconds * 1000)

    @property
    def _page(self) -> Page:
        if self._opened is None:
            raise SandboxFailure("the sandbox is not started")
        return self._opened

    async def markup(self) -> list[str]:
        """Returns the document's elements in order, each as its tag and the attributes that give it a structure, such
        as `input type=text name=word`."""
        return await self._page.evaluate(_MARKUP)

    async def _open(self, url: str, start: str, before: str = "null") -> Any:
        """Opens a document in a page of its kind and evaluates the JavaScript expression `start` in it.

        `before` is an expression that is evaluated before the document's own scripts.
        """
        if self._opened is None:
            self._opened = await self.page.acquire(self._browser, self.kind)
        return await self._opened.open(url, start, before)

    async def _observe(self, elements: bool) -> Observation:
        png = await self._page.screenshot()
        found: list[Any] = await self._page.evaluate(self._elements) if elements else []
        listed = tuple(Element(name, kind, tuple(box), live, value) for name, kind, *box, live, value in found)
        return Observation(png, self.kind.width, self.kind.height, self._instruction, listed)

    async def _perform(self, action: act.Action) -> str | None:
        perform = self._handlers().get(action.type)
        if perform is None:
            raise ActionFailure(f"a browser cannot perform {action.type}")
        await self._page.ready()
        self._acting = True
        await perform(action)
        await self._react(action)
        self._acting = False

    async def _stop(self) -> None:
        if self._opened is None:
            return
        if self._acting:
            await self._opened.close()
            return
        for key in list(self._held):
            await self._release(act.Release(key=key))
        for button in list(self._down):
            await self._mouse_up(act.MouseUp(button=button))
        await self._opened.release()

    async def _abandon(self) -> None:
        page, ended = self._opened, False
        try:
            ended = page is not None and await page.end()  # so that other pages of the browser are not ended
        finally:
            self._opened = None
            if not ended:
                self._browser.kill(f"the browser was ended: {self.playing} in it gave no answer")

    def _handlers(self) -> dict[str, Callable[[Any], Coroutine[Any, Any, None]]]:
        return {
            "click": lambda action: self._press("left", action),
            "left_double": lambda action: self._press("left", action, 2),
            "triple_click": lambda action: self._press("left", action, 3),
            "right_single": lambda action: self._press("right", action),
            "middle_single": lambda action: self._press("middle", action),
            "move": lambda action: self._slide(action.x, action.y),
            "mouse_down": self._mouse_down,
            "mouse_up": self._mouse_up,
            "drag": self._drag,
            "scroll": self._scroll,
            "type": self._type,
            "hotkey": self._hotkey,
            "press": self._hold,
            "release": self._release,
            "wait": lambda action: asyncio.sleep(0),
        }

    @property
    def _modifiers(self) -> int:
        return sum(set(self._held.values()))

    def _mouse(self, kind: str, x: float, y: float, **more: Any) -> "asyncio.Future[dict[str, Any]]":
        width, height = self.kind.width, self.kind.height
        place = {"x": min(x * width, width - 0.5), "y": min(y * height, height - 0.5)}
        self._pointer = x, y
        if self._down and "buttons" not in more:
            more |= {"button": self._down[-1], "buttons": sum(BUTTONS[one] for one in self._down), **more}
        return self._page.send("Input.dispatchMouseEvent", type=kind, **place, modifiers=self._modifiers, **more)

    def _key(self, key: Key, kind: str, modifiers: int) -> "asyncio.Future[dict[str, Any]]":
        return self._page.send("Input.dispatchKeyEvent", **event_of(key, kind, modifiers))

    async def _press(self, button: act.Button, action: Any, times: int = 1) -> None:
        x, y = self._place_of(action)
        moved = self._mouse("mouseMoved", x, y)
        clicks = [
            self._mouse(kind, x, y, button=button, clickCount=count)
            for count in range(1, times + 1)
            for kind in ("mousePressed", "mouseReleased")
        ]
        await self._page.input([moved, *clicks])

    async def _drag(self, action: act.Drag) -> None:
        await self._mouse_down(act.MouseDown(x=action.x, y=action.y))
        await self._pass_time(HELD_MS)
        await self._slide(action.to_x, action.to_y)
        await self._mouse_up(act.MouseUp())

    async def _mouse_down(self, action: act.MouseDown) -> None:
        x, y = self._place_of(action)
        sent = [self._mouse("mouseMoved", x, y)] if action.x is not None else []
        pressed = self._mouse("mousePressed", x, y, button=action.button, clickCount=1)
        self._down = [*(one for one in self._down if one != action.button), action.button]
        await self._page.input([*sent, pressed])

    async def _mouse_up(self, action: act.MouseUp) -> None:
        x, y = self._place_of(action)
        if (x, y) != self._pointer:
            await self._slide(x, y)
        self._down = [one for one in self._down if one != action.button]
        await self._page.input([self._mouse("mouseReleased", x, y, button=action.button, clickCount=1)])

    def _place_of(self, action: act.Action) -> tuple[float, float]:
        """Returns the place of an action, or the pointer's; raises ActionFailure if there is none."""
        if (place := act.point_of(action) or self._pointer) is None:
            raise ActionFailure(f"{action.type} without a place, and no action has moved the pointer yet")
        return place

    async def _slide(self, x: float, y: float) -> None:
        """Moves the pointer; in several moves while a button is held, since programs start a drag only after some."""
        if not self._down or self._pointer is None:
            await self._page.input([self._mouse("mouseMoved", x, y)])
            return
        begin = self._pointer
        for number in range(1, DRAG_MOVES + 2):
            part = min(number / DRAG_MOVES, 1.0)
            at = begin[0] + (x - begin[0]) * part, begin[1] + (y - begin[1]) * part
            await self._page.input([self._mouse("mouseMoved", *at)])
            await self._pass_time(MOMENT_MS)
        self._pointer = x, y

    async def _pass_time(self, ms: int) -> None:
        """Lets the page's time pass during a drag, for lists that start a timer at the drag's begin.

        If the page's time is real, it waits.
        """
        await self._page.evaluate(_PASSED % ms)

    async def _scroll(self, action: act.Scroll) -> None:
        across, down = _WHEEL[action.direction]
        moved = {"deltaX": across * SCROLL_PIXELS, "deltaY": down * SCROLL_PIXELS}
        place = act.point_of(action) or self._pointer or (0.5, 0.5)
        await self._page.input([self._mouse("mouseWheel", *place, **moved)])

    async def _type(self, action: act.Type) -> None:
        sent: list[asyncio.Future[dict[str, Any]]] = []
        for character in action.content:
            if len(sent) >= TYPED_AT_ONCE:
                await self._page.input(sent)
                sent = []
            if character.isascii():
                key = key_writing(character)
                sent += [self._key(key, kind, self._modifiers) for kind in ("keyDown", "keyUp")]
            else:
                sent.append(self._page.send("Input.insertText", text=character))
        await self._page.input(sent)

    async def _hotkey(self, action: act.Hotkey) -> None:
        keys, modifiers, sent = keys_of(action.key), self._modifiers, []
        for key in keys:
            modifiers |= modifier_of(key)
            sent.append(self._key(key, "keyDown", modifiers))
        for key in reversed(keys):
            modifiers &= ~modifier_of(key) | self._modifiers
            sent.append(self._key(key, "keyUp", modifiers))
        await self._page.input(sent)

    async def _hold(self, action: act.Press) -> None:
        key = key_of(action.key)
        self._held[key.name] = modifier_of(key)
        await self._page.input([self._key(key, "keyDown", self._modifiers)])

    async def _release(self, action: act.Release) -> None:
        key = key_of(action.key)
        self._held.pop(key.name, None)
        await self._page.input([self._key(key, "keyUp", self._modifiers)])
