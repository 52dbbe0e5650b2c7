"""Play found actions with MobileGym's own `ParallelRunner`, in its Python: `peer.py ORDER RESULT`.

The order names the address of its own server, the tasks with their actions, the pages of its browser (`isolation
pages`), and, to keep screens, the delay after an action. Three things differ from its defaults, so that both sides can
be compared: the browser is this machine's, `Date` stands at the config's time, and `Math.random` is seeded. To compare
screens, it draws one pixel for each CSS pixel with our browser's flags, as PNG, and waits as long as the order says.
"""

# pyright: reportMissingImports=false
import asyncio
import base64
import json
import os
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(os.environ["FLYWHEEL_MOBILEGYM"]) / "checkout"))
from bench_env import factory
from bench_env.config import RunnerConfig
from bench_env.env.base import Action, ActionType, Observation
from bench_env.env.mobile_gym import MobileGymEnv
from bench_env.env.pool import EnvPool
from bench_env.runner.parallel import ParallelRunner
from mobilegym_worker import SWIPE_MS, task_of

FIXED = """(() => {
  const Real = Date, now = NOW;
  window.Date = class extends Real {
    constructor(...parts) { parts.length ? super(...parts) : super(now); }
    static now() { return now; }
  };
  let state = 0x9e3779b9;
  Math.random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
})()"""
DRAWING = (
    "--disable-gpu", "--disable-checker-imaging", "--disable-partial-raster", "--disable-lcd-text", "--hide-scrollbars",
    "--font-render-hinting=none", "--force-color-profile=srgb", "--force-device-scale-factor=1",
)  # fmt: skip
"""Those of our browser's flags that decide how text and pictures are drawn."""
ORDER: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
SCREENS: dict[str, list[str]] = {}


class Script:
    """An agent that knows the actions by the instruction."""

    name, history = "script", ()
    _now: list[Action]

    def reset(self, instruction: str) -> None:
        """Begins a task."""
        task = next(one for one in ORDER["tasks"].values() if one["instruction"] == instruction)
        self._now = [
            *(theirs(action, task["solved"][:at]) for at, action in enumerate(task["solved"])),
            Action.complete(),
        ]

    def act(self, seen: Any) -> Action:
        """Returns the next action."""
        return self._now.pop(0)

    def reset_history(self) -> None:
        """Keeps none."""


def theirs(action: dict[str, Any], before: list[dict[str, Any]]) -> Action:
    """Translates one of our actions."""
    kind, at = action["type"], [1000 * action.get("x", 0.5), 1000 * action.get("y", 0.5)]
    if kind == "scroll":  # down, the only one that the scout makes
        return Action(ActionType.SWIPE, {"point1": [500, 900], "point2": [500, 500], "duration": SWIPE_MS})
    if kind == "type":
        clear = bool(before) and before[-1]["type"] == "hotkey"
        return Action(ActionType.TYPE, {"value": action["content"], "clear": clear})
    plain = {"hotkey": ActionType.NOOP, "press_back": ActionType.BACK, "press_enter": ActionType.ENTER}
    if kind in plain:
        return Action(plain[kind], {})
    if kind == "open_app":
        return Action(ActionType.AWAKE, {"value": action["app_name"]})
    return Action({"click": ActionType.CLICK, "long_press": ActionType.LONG_PRESS}[kind], {"point": at})


class Pool(EnvPool):
    """Its pool, which notes when its browsers are ready."""

    ready_s = 0.0

    async def __aenter__(self) -> "Pool":
        await super().__aenter__()
        self.ready_s = time.monotonic()
        return self


def prepare() -> None:
    """Sets the browser, the time and the random numbers, and for screens how they are drawn."""
    launch, epoch = MobileGymEnv.get_launch_args, round(datetime.fromisoformat(ORDER["time"]).timestamp() * 1000)

    def launched(*parts: Any, **named: Any) -> dict[str, Any]:
        given = launch(*parts, **named)
        flags = [*given["args"], "--no-sandbox", *(DRAWING if ORDER["delay_s"] else ())]
        return {**given, "executable_path": os.environ["FLYWHEEL_BROWSER"], "args": flags}

    async def fixed(context: Any) -> None:
        await context.add_init_script(FIXED.replace("NOW", str(epoch)))

    async def observed(env: Any, *, include_state: bool = True) -> Observation:
        png = await env.page.screenshot(type="png")
        SCREENS.setdefault(env._current_task_id, []).append(base64.b64encode(png).decode())
        state = await env._get_state() if include_state else {}
        return Observation(
            screenshot_bytes=png, route=await env._get_route() or {}, state=state, step_idx=env._step_count
        )

    MobileGymEnv.get_launch_args, MobileGymEnv.setup_context_routes = staticmethod(launched), staticmethod(fixed)
    if ORDER["delay_s"]:
        MobileGymEnv._get_observation = observed


async def play() -> dict[str, Any]:
    """Plays all tasks, and returns the seconds since the browsers were ready, the scores and the screens."""
    prepare()
    more = (
        {"delay_after_action": ORDER["delay_s"], "physical_size": (360, 800), "device_scale_factor": 1}
        if ORDER["delay_s"]
        else {}
    )
    config = RunnerConfig(
        agent="script", model_name="", env_url=ORDER["url"], headless=True, quiet=True, no_save_trajectory=True,
        runs_dir=Path(tempfile.mkdtemp()), parallel=ORDER["pages"], **more,
    )  # fmt: skip
    pool = Pool(
        url=config.env_url, n=config.parallel, isolation="pages", headless=True, verbose=False,
        delay_after_action=config.delay_after_action, physical_size=config.physical_size,
        device_scale_factor=config.device_scale_factor,
    )  # fmt: skip
    recorder = factory.create_recorder(config)
    recorder.start_run(agent="script", model_name="", extra_meta={}, repeat_n=1)
    tasks = [task_of(name, ORDER["seed"]) for name in ORDER["tasks"]]
    runner = ParallelRunner(pool, Script, tasks, config, recorder, factory.create_evaluator(config, None))
    results = await runner.run()
    seconds = time.monotonic() - pool.ready_s
    return {"seconds": seconds, "scores": {one.task_id: float(one.success) for one in results}, "screens": SCREENS}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(asyncio.run(play())))
