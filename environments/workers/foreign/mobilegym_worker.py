"""Serve the tasks of a MobileGym checkout, each on a phone of its own in a headless browser.

The fields of `reset` are `task` (`clock.ToggleAlarm`), `seed`, `eval_mode` (`grounded` or `text`) and `time` (the
phone's time, which stands still between actions). Tasks, seeds and judges are those of the checkout's `bench_env`; its
own driver is not used. A screen has one pixel for each of the phone's CSS pixels, and a wait takes no real time
(`mobilegym_clock.js`). `python mobilegym_worker.py --list CHECKOUT` prints the checkout's tasks and splits as JSON.

Sources: MobileGym 0.1.0, `bench_env/env/mobile_gym.py` (gestures), `bench_env/task/registry.py` (seeds),
`bench_env/runner/base.py` (score).
"""

# pyright: reportMissingImports=false
import asyncio
import functools
import http.server
import json
import os
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flywheel_devtools import Chromium, DevtoolsPage, ScriptError
from flywheel_worker import Refused, serve, shown

WIDTH, HEIGHT = 360, 800
"""The phone's screen in CSS pixels, which are the screenshot's."""
ORIGIN, EMPTY = "http://phone.localhost", "/flywheel-empty"
ACTION_MS, OPEN_MS, WAIT_MS, BOOT_MS, TICK_MS = 1000, 1000, 1000, 10_000, 100
"""Milliseconds of the phone's time: after an action, after an app opened, of a `wait`, of its start, and a moment."""
LONG_PRESS_MS, SWIPE_MS = 800, 400
SCROLL_SHARE, EDGE_SHARE = 0.4, 0.1
"""Shares of the screen that a scroll moves, and that it leaves out at each edge."""
START_S, LOADING_S, LOADING_POLL_S, MOST_MOVES, ATTEMPTS = 60.0, 5.0, 0.005, 8, 5
READY = "Boolean(window.__SIM__?.getState && window.__OS__?.openApp && window.__SIM_FS__ && window.__SIM_INPUT__)"
STATE = """JSON.stringify(__SIM__.getState(), (key, value) =>
  typeof value === 'function' || typeof value === 'symbol' || value instanceof Node || value instanceof Window
    ? undefined : value instanceof Error ? { message: value.message, name: value.name } : value)"""
TYPE = """((text) => {
  const field = document.activeElement, value = field?.value;
  const whole = value && field.selectionStart === 0 && field.selectionEnd === value.length;
  return __clock.during(__SIM_INPUT__.type(text, { clear: Boolean(whole) })).then(() => null, (error) => error.message);
})"""
KEYS = {
    "enter": "__SIM_INPUT__.enter()", "ctrl a": "document.execCommand('selectAll')",
    "backspace": "document.execCommand('delete')", "delete": "document.execCommand('forwardDelete')",
}  # fmt: skip
BUTTONS = {
    "press_home": "__SIM_INPUT__.home()", "press_back": "__SIM_INPUT__.back()", "navigate_back": "__SIM_INPUT__.back()",
    "press_recent": "__SIM_INPUT__.recent()", "press_enter": KEYS["enter"],
}  # fmt: skip


class Phone:
    """A phone in a page, which tasks use as their environment (`bench_env.env.base.BaseMobileEnv`).

    Its methods are asynchronous as the tasks' are, but block.

    Args:
        browser: the browser, which has no other phone.
        agent: user agent of the phone.
        apps: ids of apps by their names.
        stopwatch: measures the phases of a task's setup.
    """

    supports_state_injection = True

    def __init__(self, browser: Chromium, agent: str, apps: dict[str, str], stopwatch: Any) -> None:
        self._browser, self._agent, self.stopwatch = browser, agent, stopwatch
        self._apps = {**{one: one for one in apps.values()}, **{name.lower(): one for name, one in apps.items()}}
        self._page: DevtoolsPage | None = None
        self._keeper: DevtoolsPage | None = None
        self._epoch_ms = 0
        self._clock = Path(__file__).with_name("mobilegym_clock.js").read_text().rstrip()
        self.agent_answer: str | None = None
        self.agent_message: str | None = None

    @property
    def page(self) -> "Phone":
        """Returns itself, since tasks call `env.page.evaluate`."""
        return self

    def set_time(self, text: str) -> None:
        """Sets the time of the next start, in ISO format and this process's time zone; raises ValueError."""
        self._epoch_ms = round(datetime.fromisoformat(text).timestamp() * 1000)

    async def reset(self, app_ids: list[str] | None = None) -> None:
        """Starts the phone anew, with the data of some apps or of all."""
        self.close()
        self._keep_process()
        self._page = page = self._browser.page(WIDTH, HEIGHT)
        page.send("Storage.clearDataForOrigin", origin=ORIGIN, storageTypes="all")
        page.send("Network.enable")
        page.send("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=True)
        page.send("Emulation.setTouchEmulationEnabled", enabled=True)
        page.send("Emulation.setUserAgentOverride", userAgent=self._agent, acceptLanguage="en-US")
        page.send("Network.setBypassServiceWorker", bypass=True)
        page.send("Page.addScriptToEvaluateOnNewDocument", source=f"{self._clock}({self._epoch_ms})")
        page.send("Page.navigate", url=f"{ORIGIN}/")
        self._wait_until_ready()
        page.run(f"__SIM_TIME__.setSimulatedTime({self._epoch_ms}, false)")
        page.run(f"__clock.during(__SIM__.waitForData({json.dumps(app_ids or [])}))")
        self.settle(OPEN_MS)

    async def get_state(self, *, required_apps: list[str] | None = None) -> dict[str, Any]:
        """Returns the phone's state; raises RuntimeError if it has none."""
        state: dict[str, Any] | None = None
        for _ in range(ATTEMPTS):
            state = json.loads(self._run(STATE) or "null")
            if state and "os" in state and set(required_apps or ()) <= state.get("apps", {}).keys():
                return state
            self.settle(OPEN_MS)
        if state and "os" in state:
            return state
        raise RuntimeError("the phone has no state")

    async def set_state(self, patch: dict[str, Any], *, deep: bool = True, reload: bool = False) -> None:
        """Merges a patch into the phone's state."""
        options = json.dumps({"deep": deep, "reload": reload})
        self._run(f"__clock.during(__SIM__.setState({json.dumps(patch)}, {options})).then(() => null)")
        if reload:
            self._wait_until_ready()
        self.settle(TICK_MS)

    async def open_app(self, app_name: str, timeout_ms: int = 0, wait_stable: bool = False) -> None:
        """Opens an app by its id or name; ignores an unknown one, as MobileGym does."""
        self.open(app_name)

    async def warm_apps(self, app_ids: list[str], settle_ms: int = 0) -> None:
        """Opens each app once, and goes home."""
        for app in app_ids:
            self.open(app)
        await self.go_home()

    async def go_home(self) -> None:
        """Shows the home screen."""
        self._run("__OS__.goHome()")
        self.settle(OPEN_MS)

    async def get_route(self) -> dict[str, Any]:
        """Returns the open app and its path."""
        return self._run("__OS__.getAppRoute?.() ?? null") or {}

    async def get_observation(self) -> Any:
        """Returns the phone's route and state, for the judges; none of them looks at the screen."""
        from bench_env.env.base import Observation

        route, state = await self.get_route(), await self.get_state()
        return Observation(route=route, state=state)

    async def evaluate(self, expression: str, argument: Any = None) -> Any:
        """Returns the value of a script, or of a function with one argument, as Playwright's `evaluate` does."""
        call = f"((it) => typeof it === 'function' ? it({json.dumps(argument)}) : it)({expression})"
        return self._run(f"__clock.during({call})")

    def get_device_size(self) -> tuple[int, int]:
        """Returns the size of the screen in pixels."""
        return WIDTH, HEIGHT

    def open(self, name: str) -> str | None:
        """Opens an app by its id or name; returns the reason if there is none."""
        app = self._apps.get(name.strip().lower())
        if app is None:
            near = get_close_matches(name.strip().lower(), self._apps, 3, 0.4)
            return f"the phone has no app {name!r}" + (f"; the nearest: {', '.join(near)}" if near else "")
        self._run(f"__OS__.openApp({json.dumps(app)})")
        self.settle(OPEN_MS)
        return None

    def perform(self, action: dict[str, Any]) -> str | None:
        """Performs an action of flywheel; returns the reason if it has no effect, and raises Refused for a type that
        phones lack."""
        kind = action["type"]
        if kind == "open_app":
            return self.open(action["app_name"])
        if kind == "type":
            return self._type(action["content"])
        if kind == "hotkey" and action["key"] not in KEYS:
            raise Refused(f"a phone has no key {action['key']!r}: there are {', '.join(KEYS)}")
        if script := KEYS[action["key"]] if kind == "hotkey" else BUTTONS.get(kind):
            self._run(f"void {script}")
        elif kind in GESTURES:
            self._run(f"__clock.during({GESTURES[kind](action)}).then(() => null)")
        elif kind == "wait":
            seconds = action.get("seconds")
            self.settle(WAIT_MS if seconds is None else round(seconds * 1000))
        else:
            raise Refused(f"a phone cannot perform {kind}")
        self.settle(ACTION_MS)
        return None

    @property
    def submitted(self) -> bool:
        """Whether the answer sheet was submitted."""
        return self._run("Boolean(__SIM__.getState().apps?.answer_sheet?.submitted)")

    def screenshot(self) -> bytes:
        """Returns the screen as PNG."""
        assert self._page is not None
        return self._page.screenshot()

    def settle(self, ms: int) -> None:
        """Lets the phone's time pass, until nothing loads and nothing moves; an endless animation does not count."""
        assert self._page is not None
        self._run(f"__clock.advance({ms})")
        moves, ends = 0, time.monotonic() + LOADING_S
        while moves < MOST_MOVES:
            if self._browser.loading and time.monotonic() < ends:
                time.sleep(LOADING_POLL_S)
                self._run("0")  # reads what the browser reports about its requests
                continue
            self._page.frame()
            if self._run("__clock.moves()"):
                moves += 1
            elif not self._browser.loading or time.monotonic() >= ends:
                break
        self._run("__clock.pictures()")

    def close(self) -> None:
        """Closes the phone's page."""
        page, self._page = self._page, None
        if page is not None:
            page.close()
        self._browser.loading.clear()

    def _keep_process(self) -> None:
        """Opens an empty page of the phone's site, once, so that all phones run in one process, whose compiled scripts
        stay."""
        if self._keeper is None:
            self._keeper = self._browser.page(WIDTH, HEIGHT)
            self._keeper.send("Page.navigate", url=ORIGIN + EMPTY)

    def _run(self, expression: str) -> Any:
        assert self._page is not None
        return self._page.run(expression)

    def _wait_until_ready(self) -> None:
        """Waits until the phone has started, and sets its clock to `BOOT_MS`, however long loading took; raises
        RuntimeError."""
        ends = time.monotonic() + START_S
        while time.monotonic() < ends:
            try:
                if self._run(READY):
                    self._run(f"__clock.until({BOOT_MS})")
                    return
                self._run(f"window.__SIM_TIME__ && __clock.until({BOOT_MS}, {TICK_MS})")
            except ScriptError:  # the page is between two documents
                pass
            time.sleep(LOADING_POLL_S)
        raise RuntimeError(f"the phone did not start within {START_S:g} s: {ORIGIN} is not a MobileGym build")

    def _type(self, text: str) -> str | None:
        for number, line in enumerate(text.split("\n")):
            if number:
                self._run(f"void {KEYS['enter']}")
                self.settle(TICK_MS)
            if line and (why := self._run(f"{TYPE}({json.dumps(line)})")):
                return str(why)
        self.settle(ACTION_MS)
        return None


def _at(action: dict[str, Any], prefix: str = "") -> str:
    """Returns a point of an action as two arguments, in CSS pixels within the screen."""
    if f"{prefix}x" not in action:
        raise Refused(f"a phone has no pointer, and the {action['type']} has no place")
    x, y = (min(action[f"{prefix}{axis}"] * size, size - 1) for axis, size in (("x", WIDTH), ("y", HEIGHT)))
    return f"{x:.2f}, {y:.2f}"


def _scroll(action: dict[str, Any]) -> str:
    """Moves a finger against the direction, since `down` shows the content below."""
    x, y = action.get("x", 0.5), action.get("y", 0.5)
    upright, back = action["direction"] in ("up", "down"), action["direction"] in ("down", "right")
    low, high = EDGE_SHARE + (SCROLL_SHARE if back else 0.0), 1 - EDGE_SHARE - (0.0 if back else SCROLL_SHARE)
    start = min(max(y if upright else x, low), high)
    end = start - SCROLL_SHARE if back else start + SCROLL_SHARE
    ends = {"x": x, "y": start, "to_x": x, "to_y": end} if upright else {"x": start, "y": y, "to_x": end, "to_y": y}
    return _swipe({"type": "scroll", **ends})


def _swipe(action: dict[str, Any]) -> str:
    return f"__SIM_INPUT__.swipe([{_at(action)}], [{_at(action, 'to_')}], {{ ms: {SWIPE_MS} }})"


def _long_press(action: dict[str, Any]) -> str:
    seconds = action.get("seconds")
    return f"__SIM_INPUT__.longPress({_at(action)}, {LONG_PRESS_MS if seconds is None else round(seconds * 1000)})"


GESTURES: dict[str, Callable[[dict[str, Any]], str]] = {
    "click": lambda action: f"__SIM_INPUT__.tap({_at(action)})",
    "left_double": lambda action: f"__SIM_INPUT__.doubleTap({_at(action)})",
    "long_press": _long_press,
    "scroll": _scroll,
    "drag": _swipe,
}


class MobileGym:
    """One task after the other, each on a new phone."""

    def __init__(self) -> None:
        folder = Path(os.environ["FLYWHEEL_MOBILEGYM"])
        sys.path.insert(0, str(folder / "checkout"))
        from bench_env.env.mobile_gym import MobileGymEnv
        from bench_env.env.stopwatch import StopWatch

        port = _served(folder / "dist")
        flags = [
            *os.environ["FLYWHEEL_BROWSER_FLAGS"].split(),
            f"--host-resolver-rules={_rules(port)}",
            "--process-per-site",
        ]
        browser = Chromium(os.environ["FLYWHEEL_BROWSER"], flags, tempfile.mkdtemp(prefix="profile-"))
        self._phone = Phone(browser, MobileGymEnv.MOBILE_USER_AGENT, dict(MobileGymEnv.APP_NAME_MAP), StopWatch())
        self._task: Any = None
        self._first: Any = None
        self._eval_mode = "grounded"

    def reset(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Starts a phone and sets the task up; raises ValueError for a task that the checkout lacks."""
        from bench_env.runner.base import Controller

        self._eval_mode = fields["eval_mode"]
        self._phone.set_time(fields["time"])
        self._task = task_of(fields["task"], fields["seed"])
        self._first, _ = asyncio.run(Controller.setup(self._phone, self._task, self._eval_mode))
        self._phone.settle(TICK_MS)
        return self._answer()

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Performs an action. `finished` is judged, and so is an answer sheet as soon as it is submitted."""
        if action["type"] == "call_user":
            return self._answer(reward=0.0, done=True)
        if action["type"] == "finished":
            return self._answer(done=True, **self._judged(action["content"] or None))
        error = self._phone.perform(action)
        return self._answer(reward=self._submitted(), action_error=error)

    def close(self) -> None:
        """Closes the phone."""
        self._phone.close()

    def _answer(self, **given: Any) -> dict[str, Any]:
        return shown(self._phone.screenshot(), self._task.description, **given)

    def _submitted(self) -> float:
        """Returns the score of a submitted answer sheet, which counts without `finished` too."""
        if self._eval_mode != "grounded" or not getattr(self._task, "answer_fields", None):
            return 0.0
        if not self._phone.submitted:
            return 0.0
        return self._judged(None).get("reward", 0.0)

    def _judged(self, answer: str | None) -> dict[str, Any]:
        """Returns the score of the current state, or the failure of the judge."""
        from bench_env.runner.base import Evaluator

        try:
            last = asyncio.run(self._phone.get_observation())
            of = SimpleNamespace(agent_answer=answer)
            result = asyncio.run(Evaluator(eval_mode=self._eval_mode).evaluate(self._task, self._first, last, of))
        except Exception as error:
            return {"failure": "verifier", "reason": f"{self._task.id}: {type(error).__name__}: {error}"}
        if result.judge_error:
            return {"failure": "verifier", "reason": f"{self._task.id}: {result.judge_error}"}
        return {"reward": float(result.passed), "success": result.success, "clean": result.clean}


def task_of(task_id: str, seed: int) -> Any:
    """Makes the first instance of a task with a seed, as `bench_env.task.registry` does; raises ValueError."""
    from bench_env.task import TaskRegistry

    return TaskRegistry().get_by_id(task_id)(_seed=(seed ^ zlib.crc32(f"{task_id}:0".encode())) & 0xFFFFFFFF)


def listed(checkout: str) -> dict[str, Any]:
    """Returns the tasks of a checkout by id, with their instruction, apps and step limits, and its splits."""
    sys.path.insert(0, checkout)
    from bench_env.config import RunnerConfig
    from bench_env.splits import list_splits, resolve_split
    from bench_env.task import TaskRegistry

    registry, tasks = TaskRegistry(), dict[str, Any]()
    limits = {mode: RunnerConfig(agent="", model_name="", eval_mode=mode) for mode in ("grounded", "text")}
    for suite in registry.list_suites(include_generated=False):
        for name in registry.list_tasks(suite):
            kind = registry.get(suite, name)
            steps = {mode: limit.get_max_steps(kind) for mode, limit in limits.items()}
            given = {"instruction": kind.templates[0], "apps": list(kind.apps), "difficulty": kind.difficulty}
            tasks[f"{suite}.{name}"] = {**given, "max_steps": steps}
    return {"tasks": tasks, "splits": {name: sorted(resolve_split(name)) for name in list_splits()}}


class _PhoneFiles(http.server.SimpleHTTPRequestHandler):
    """Serves the phone's files; a missing one is the phone itself, as with Vite's own server."""

    protocol_version = "HTTP/1.1"

    def translate_path(self, path: str) -> str:
        """Returns the file of an address."""
        found = super().translate_path(path)
        return found if Path(found).is_file() else str(Path(self.directory) / "index.html")

    def do_GET(self) -> None:
        """Answers a request; the empty page is no file of the phone."""
        if self.path != EMPTY:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def end_headers(self) -> None:
        """Lets the browser keep every file, since a build does not change."""
        self.send_header("Cache-Control", "public, max-age=86400, immutable")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a connection that a closed page leaves."""


def _served(folder: Path) -> int:
    """Serves a folder on this machine, and returns the port."""
    server = _Server(("127.0.0.1", 0), functools.partial(_PhoneFiles, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def _rules(port: int) -> str:
    """Returns the rules by which the browser reaches the phone's files and nothing else."""
    return f"MAP phone.localhost:80 127.0.0.1:{port},MAP * ~NOTFOUND"


if __name__ == "__main__":
    if sys.argv[1] == "--list":
        print(json.dumps(listed(sys.argv[2])))
    else:
        serve(MobileGym)
