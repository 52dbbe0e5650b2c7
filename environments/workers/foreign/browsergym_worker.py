"""A worker for BrowserGym and all that is registered with it, in a Python that has it (browsergym-core 0.14).

`reset` is sent `task` (`browsergym/miniwob.click-test`), `seed`, and whatever else `gymnasium.make` is to get. Actions
go through BrowserGym's own action set, at pixels of the screenshot that it shows: MiniWoB's is drawn at one and a half
times its page, and BrowserGym divides by that itself. Playwright, which it pins, takes the Chromium at
`FLYWHEEL_BROWSER`, through a folder of links in which it looks for its own.
"""

# pyright: reportMissingImports=false, reportArgumentType=false
import importlib
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import browsergym.core  # registers itself
import gymnasium
import playwright
from browsergym.core.action.highlevel import HighLevelActionSet
from flywheel_worker import Refused, serve, shown

SUBSETS = ["coord", "nav", "chat", "infeas"]
WHEEL_PIXELS, DRAG_MOVES, LONG_MS, WAIT_MS = 265, 4, 1000, 1000
"""As in the project's own browsers: five notches of 53 pixels of the page, four moves."""
AWAY = {"right": (1, 0), "left": (-1, 0), "down": (0, 1), "up": (0, -1)}
KEYS = {
    "enter": "Enter", "tab": "Tab", "space": "Space", "escape": "Escape", "backspace": "Backspace", "delete": "Delete",
    "insert": "Insert", "home": "Home", "end": "End", "pageup": "PageUp", "pagedown": "PageDown",
    "arrowleft": "ArrowLeft", "arrowup": "ArrowUp", "arrowright": "ArrowRight", "arrowdown": "ArrowDown",
    "shift": "Shift", "ctrl": "Control", "alt": "Alt", "meta": "Meta", **{f"f{n}": f"F{n}" for n in range(1, 13)},
}  # fmt: skip
"""Playwright's names, by the usual ones."""


class BrowserGym:
    """One environment after the other, each with browsers of its own."""

    def __init__(self) -> None:
        self._env: Any = None
        self._size = (0, 0)
        use_browser(os.environ.get("FLYWHEEL_BROWSER"))

    def reset(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Makes the task's environment and begins an episode."""
        self.close()
        given = {"slow_mo": 0, **fields}
        task, seed = given.pop("task"), given.pop("seed")
        _import_package_of(task)
        mapping = HighLevelActionSet(SUBSETS, multiaction=True, strict=True).to_python_code
        self._env = gymnasium.make(task, action_mapping=mapping, disable_env_checker=True, **given)
        seen, _ = self._env.reset(seed=seed)
        return self._shown(seen)

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Performs one action, as one of BrowserGym's steps."""
        call = written(action, *self._size, getattr(self._env.unwrapped.page, "_bgym_scale_factor", 1.0))
        seen, reward, terminated, truncated, _ = self._env.step(call)
        error = seen["last_action_error"]
        return self._shown(
            seen, float(reward), terminated or truncated, truncated=truncated and not terminated, action_error=error
        )

    def close(self) -> None:
        """Ends the environment with its browsers."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _shown(self, seen: dict[str, Any], *what: Any, **metadata: Any) -> dict[str, Any]:
        height, width = seen["screenshot"].shape[:2]
        self._size = width, height
        return shown(seen["screenshot"], seen["goal"], *what, **metadata)


def written(action: dict[str, Any], width: int, height: int, zoom: float = 1.0) -> str:
    """An action as BrowserGym has it; raises Refused for one that it has not.

    Texts are written as Python literals, which BrowserGym reads as such: nothing that a model wrote is run.

    Args:
        action: one of ours.
        width: of the screenshot in pixels.
        height: of the screenshot in pixels.
        zoom: pixels of the screenshot to one of the page, which BrowserGym divides a scroll's distance by, too.
    """
    if action["type"] == "scroll":
        across, down = (one * WHEEL_PIXELS * zoom for one in AWAY[action["direction"]])
        return f"scroll_at({_at(action['x'], action['y'], width, height)}, {across}, {down})"
    make = _WRITTEN.get(action["type"])
    if make is None:
        raise Refused(f"BrowserGym cannot perform {action['type']}")
    return make(action, lambda x, y: _at(x, y, width, height))


def _at(x: float, y: float, width: int, height: int) -> str:
    return f"{min(x * width, width - 0.5):.2f}, {min(y * height, height - 0.5):.2f}"


def key_named(name: str) -> str:
    """Playwright's name of a key; raises Refused for one that it has not."""
    if len(name) == 1:
        return name
    if name not in KEYS:
        raise Refused(f"there is no key {name!r}")
    return KEYS[name]


Place = Callable[[float, float], str]


def _pointed(*calls: str) -> Callable[[dict[str, Any], Place], str]:
    """Calls with `@` in place of the point."""
    return lambda action, at: "\n".join(call.replace("@", at(action["x"], action["y"])) for call in calls)


def _drag(action: dict[str, Any], at: Place) -> str:
    x, y, to_x, to_y = (action[name] for name in ("x", "y", "to_x", "to_y"))
    parts = (number / DRAG_MOVES for number in range(1, DRAG_MOVES + 1))
    moves = [f"mouse_move({at(x + (to_x - x) * part, y + (to_y - y) * part)})" for part in parts]
    return "\n".join([f"mouse_down({at(x, y)})", *moves, f"mouse_up({at(to_x, to_y)})"])


def _typed(action: dict[str, Any], at: Place) -> str:
    pieces = action["content"].split("\n")
    calls = [f"keyboard_type({piece!r})" if piece else "" for piece in pieces]
    return "\nkeyboard_press('Enter')\n".join(calls) if any(calls) or len(pieces) > 1 else "noop(0)"


def _hotkey(action: dict[str, Any], at: Place) -> str:
    return f"keyboard_press({'+'.join(key_named(name) for name in action['key'].split())!r})"


_WRITTEN: "dict[str, Callable[[dict[str, Any], Place], str]]" = {
    "click": _pointed("mouse_click(@)"),
    "left_double": _pointed("mouse_dblclick(@)"),
    "right_single": _pointed("mouse_click(@, 'right')"),
    "long_press": _pointed("mouse_down(@)", f"noop({LONG_MS})", "mouse_up(@)"),
    "drag": _drag,
    "type": _typed,
    "hotkey": _hotkey,
    "press": lambda action, at: f"keyboard_down({key_named(action['key'])!r})",
    "release": lambda action, at: f"keyboard_up({key_named(action['key'])!r})",
    "press_enter": lambda action, at: "keyboard_press('Enter')",
    "navigate": lambda action, at: f"goto({action['content']!r})",
    "navigate_back": lambda action, at: "go_back()",
    "wait": lambda action, at: f"noop({WAIT_MS})",
    "finished": lambda action, at: f"send_msg_to_user({action['content']!r})",
    "call_user": lambda action, at: "report_infeasible('This cannot be done.')",
}


def use_browser(path: "str | None") -> None:
    """Has Playwright take this Chromium where it looks for its own; its own where none is named."""
    if not path or os.environ.get("PLAYWRIGHT_BROWSERS_PATH"):
        return
    listed = Path(playwright.__file__).parent / "driver" / "package" / "browsers.json"
    browsers = {one["name"]: one["revision"] for one in json.loads(listed.read_text())["browsers"]}
    folder = Path(tempfile.gettempdir()) / "browsers"
    place = folder / f"chromium-{browsers['chromium']}"
    (place / "chrome-linux").mkdir(parents=True)
    (place / "chrome-linux" / "chrome").symlink_to(path)
    (place / "INSTALLATION_COMPLETE").touch()
    os.environ["PLAYWRIGHT_BROWSERS_PATH"] = str(folder)


def _import_package_of(task: str) -> None:
    """Registers a task's family, such as `browsergym.miniwob`, unless it is BrowserGym's core that has it."""
    if task not in gymnasium.registry:
        family = task.partition("/")[2].partition(".")[0]
        importlib.import_module(f"{browsergym.__name__}.{family}")


if __name__ == "__main__":
    serve(BrowserGym)
