"""The installed pyautogui, run without a display: what reaches its platform's module is recorded."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

SIZE = (1000, 500)
START = (500, 250)


class Recorder(ModuleType):
    """pyautogui's platform module: where the pointer is, and the events in order."""

    def __init__(self) -> None:
        super().__init__("pyautogui._pyautogui_x11")
        self.at = START
        self.events: list[tuple[Any, ...]] = []
        self.keyboardMapping: dict[str, int] = {}
        for button in ("_mouseDown", "_mouseUp", "_click"):
            setattr(self, button, lambda x, y, button, kind=button: self._button(kind, x, y, button))
        self._keyDown = lambda key: self.events.append(("down", key))
        self._keyUp = lambda key: self.events.append(("up", key))
        self._scroll = self._vscroll = lambda clicks, x, y: self._wheel(("up", "down"), clicks, x, y)
        self._hscroll = lambda clicks, x, y: self._wheel(("right", "left"), clicks, x, y)

    def _position(self) -> tuple[int, int]:
        return self.at

    def _size(self) -> tuple[int, int]:
        return SIZE

    def _mouse_is_swapped(self) -> bool:
        return False

    def _moveTo(self, x: int, y: int) -> None:
        self.at = (x, y)
        self.events.append(("move", x, y))

    def _button(self, kind: str, x: int, y: int, button: Any) -> None:
        self.at = (x, y)
        kinds = ("_mouseDown", "_mouseUp") if kind == "_click" else (kind,)
        self.events += [(one, *self.at, button) for one in kinds]

    def _wheel(self, ways: tuple[str, str], clicks: float, x: int, y: int) -> None:
        self.at = (x, y)
        if int(clicks):
            self.events.append(("wheel", *self.at, ways[0 if clicks > 0 else 1]))


@contextlib.contextmanager
def recorded() -> Iterator[tuple[Any, Recorder]]:
    """pyautogui on a recorder, which is put back afterwards; its pauses take no time."""
    recorder = Recorder()
    names = [name for name in sys.modules if name.partition(".")[0] == "pyautogui"]
    kept = {name: sys.modules.pop(name) for name in names}
    fakes = {"pyautogui._pyautogui_x11": recorder, "mouseinfo": ModuleType("mouseinfo")}
    fakes["mouseinfo"].MouseInfoWindow = None  # pyright: ignore[reportAttributeAccessIssue]
    before = {name: sys.modules.get(name) for name in fakes}
    sys.modules.update(fakes)
    try:
        module = importlib.import_module("pyautogui")
        module.PAUSE, module.FAILSAFE = 0, False  # pyright: ignore[reportAttributeAccessIssue]
        module.time = SimpleNamespace(sleep=lambda seconds: None, time=lambda: 0.0)  # pyright: ignore[reportAttributeAccessIssue]
        yield module, recorder
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "pyautogui"]:
            del sys.modules[name]
        for name, module in (kept | before).items():
            if module is not None:
                sys.modules[name] = module
            else:
                sys.modules.pop(name, None)
