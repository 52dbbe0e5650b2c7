"""Serve the tasks of an AndroidWorld checkout, one after the other, on one running emulator.

The fields of `reset` are `task` (`ContactsAddContact`), `seed` and `settle_s` (seconds after an action). Tasks,
parameters and success checks are those of the checkout's `android_world`, in the order of its own runner. An action
arrives as a line of the phone's shell, which adb runs once: `android_env` would run a failed command again. `python
androidworld_worker.py --list CHECKOUT` prints the checkout's tasks and families as JSON.

Sources: AndroidWorld d9c569f, `suite_utils.py` (seeds, step limits, score), `episode_runner.py` and `agents/m3a.py`
(order of calls, screens), `agents/m3a_utils.py` (touches on a turned screen); android_env 1.2.3, `adb_controller.py`.
"""

# pyright: reportMissingImports=false
import contextlib
import datetime
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flywheel_worker import Refused, serve, shown

WAIT_S, PAUSE_S, KEYBOARD_S, ALIVE_S = 1.0, 0.2, 0.2, 10.0
"""Seconds of a `wait`, between an action and the screen of a MiniWoB task, of a change of the keyboard, and of a check
that the emulator answers."""
STEPS_PER_COMPLEXITY = 10
WITHOUT_SNAPSHOT = ("clipper",)
"""Apps without a state, which AndroidWorld does not restore."""
SECONDS_A_DAY = 86_400


class AndroidWorld:
    """One task after the other, on the emulator of this process."""

    def __init__(self) -> None:
        sys.path.insert(0, os.environ["FLYWHEEL_ANDROIDWORLD"])
        from android_env.components.adb_controller import AdbController
        from android_world.env import adb_utils, env_launcher

        console = int(os.environ["FLYWHEEL_CONSOLE_PORT"])
        self._adb, self._serial = os.environ["FLYWHEEL_ADB"], f"emulator-{console}"
        # android_env restarts the adb server after every failed command, and the other emulators' workers use it, too.
        AdbController._restart_server = lambda self, timeout=None: None
        try:
            self._env = env_launcher.load_and_setup_env(
                console_port=console, adb_path=self._adb, grpc_port=int(os.environ["FLYWHEEL_GRPC_PORT"])
            )
            adb_utils.set_root_if_needed(self._env.controller)
        except Exception as error:
            raise RuntimeError(f"AndroidWorld does not connect to {self._serial}: {_text(error)}") from error
        self._task: Any = None
        self._settle_s = 0.0

    def reset(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Sets a task up; raises ValueError for one that the checkout lacks, and RuntimeError for a missing app."""
        self.close()
        self._settle_s = fields["settle_s"]
        task = task_of(fields["task"], fields["seed"], self._env)
        self._require_apps(task)
        np.random.seed(task.params.get("seed") or 0)
        self._task = task
        task.initialize_task(self._env)
        self._env.reset(go_home=task.start_on_home_screen)
        self._env.hide_automation_ui()
        return self._answer()

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Performs an action; `finished`, `call_user` and the end of a MiniWoB page are checked for success."""
        if action["type"] in ("finished", "call_user"):
            if action["type"] == "finished" and action["content"]:
                self._env.interaction_cache = action["content"]
            return self._judged()
        error = self._perform(action)
        if action["type"] != "wait":
            time.sleep(self._settle_s)
        if self._is_page and _is_over(self._env):
            return self._judged()
        return self._answer(reward=0.0, action_error=error)

    def close(self) -> None:
        """Tears the task down; an error is only printed, since the next task sets up its own apps."""
        task, self._task = self._task, None
        if task is not None and task.initialized:
            try:
                task.tear_down(self._env)
            except Exception:
                traceback.print_exc()

    @property
    def _is_page(self) -> bool:
        return type(self._task).__name__.lower().startswith("miniwob")

    def _answer(self, **given: Any) -> dict[str, Any]:
        if self._is_page:
            time.sleep(PAUSE_S)
        pixels = self._env.get_state(wait_to_stabilize=not self._is_page).pixels
        size = self._env.logical_screen_size
        picture = upright(pixels, self._env.physical_frame_boundary, self._env.orientation)
        return shown(np.ascontiguousarray(picture), self._task.goal, touch_size=list(map(int, size)), **given)

    def _judged(self) -> dict[str, Any]:
        """Returns the score of the current state, or the failure of the check; raises RuntimeError if the emulator is
        gone."""
        try:
            score = float(self._task.is_successful(self._env))
        except Exception as error:
            traceback.print_exc()
            return self._unjudged(_text(error))
        if not 0.0 <= score <= 1.0:
            return self._unjudged(f"a score of {score:g}, and scores are in [0, 1]")
        if score < 1.0:  # a check may take a file that it cannot read for a missing one
            self._require_alive("no answer")
        return self._answer(reward=score, done=True)

    def _unjudged(self, reason: str) -> dict[str, Any]:
        self._require_alive(reason)
        failure = {"failure": "verifier", "reason": f"{self._task.name}: {reason}"}
        return {"observation": {}, "reward": None, "done": True, "metadata": failure}

    def _perform(self, action: dict[str, Any]) -> "str | None":
        """Performs an action; returns the reason if it has no effect, and raises RuntimeError if the emulator is
        gone."""
        kind = action["type"]
        if kind == "wait":
            seconds = action.get("seconds")
            time.sleep(WAIT_S if seconds is None else seconds)
            return None
        if kind == "open_app":
            return self._open(action["app_name"].strip())
        if keyboard := action.get("keyboard"):
            return self._typed(keyboard, action["shell"])
        return self._refusal(kind, self._shell(action["shell"]))

    def _open(self, name: str) -> "str | None":
        """Opens an app by AndroidWorld's name for it, or by its package; returns the reason if there is none."""
        from android_world.env import adb_utils

        controller = self._env.controller
        packages = adb_utils.get_all_package_names(controller)
        activity = adb_utils.get_adb_activity(name.lower())
        if name in packages or activity is None or _package(activity) in packages:
            try:
                adb_utils.launch_app(name if name in packages else name.lower(), controller)
                return None
            except Exception as error:
                self._require_alive(_text(error))
        near = get_close_matches(name.lower(), [*adb_utils.get_all_apps(controller), *packages], 3, 0.4)
        return f"the phone has no app {name!r}" + (f"; the nearest: {', '.join(near)}" if near else "")

    def _typed(self, keyboard: str, line: str) -> "str | None":
        """Types text in any script with a keyboard app, which is the phone's keyboard only meanwhile."""
        if keyboard not in self._shell("ime list -a -s").stdout.split():
            hint = "install ADBKeyboard on the emulator for text in other scripts"
            raise Refused(f"`input text` types ASCII only; {hint}")
        before = self._shell("settings get secure default_input_method").stdout.strip()
        try:
            self._shell(f"ime enable {keyboard} && ime set {keyboard}")
            time.sleep(KEYBOARD_S)
            return self._refusal("type", self._shell(line))
        finally:
            self._shell(f"ime set '{before}'")

    def _refusal(self, kind: str, ended: "subprocess.CompletedProcess[str]") -> "str | None":
        if ended.returncode == 0:
            return None
        last = (ended.stdout.strip().splitlines() or ["no output"])[-1][:200]
        self._require_alive(last)
        return f"the phone did not perform {kind}: {last}"

    def _require_apps(self, task: Any) -> None:
        """Raises RuntimeError for an app of the task that is missing or was never set up, which AndroidWorld only
        logs."""
        from android_world.env import adb_utils, device_constants

        packages = adb_utils.get_all_package_names(self._env.controller)
        for app in filter(None, task.app_names):
            activity = adb_utils.get_adb_activity(app)
            package = _package(activity) if activity else app
            hint = "set the emulator up with AndroidWorld's run.py --perform_emulator_setup"
            if package not in packages:
                raise RuntimeError(f"{self._serial} has no app {app} ({package}); {hint}")
            snapshot = f"{device_constants.SNAPSHOT_DATA}/{package}"
            if activity and app not in WITHOUT_SNAPSHOT and self._shell(f"ls -d {snapshot}").returncode:
                raise RuntimeError(f"{self._serial} has no snapshot of app {app} ({snapshot}); {hint}")

    def _require_alive(self, reason: str) -> None:
        """Raises RuntimeError with the reason if the emulator does not answer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._shell(":", ALIVE_S).returncode == 0:
                return
        raise RuntimeError(f"{self._serial} is gone: {reason}")

    def _shell(self, line: str, limit_s: "float | None" = None) -> "subprocess.CompletedProcess[str]":
        """Runs a line of the phone's shell; raises TimeoutExpired."""
        return subprocess.run(
            [self._adb, "-s", self._serial, "shell", line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", timeout=limit_s, check=False,
        )  # fmt: skip


def upright(pixels: Any, frame: "tuple[int, int, int, int]", turns: int) -> Any:
    """Returns the part of a screenshot that apps draw, as the user sees it.

    Args:
        pixels: the display in its natural position, (height, width, 3).
        frame: left, top, right and bottom of the apps' part.
        turns: quarter turns of the screen: 0 upright, 1 landscape, 2 upside down, 3 landscape the other way.
    """
    left, top, right, bottom = frame
    if (right - left > bottom - top) != (pixels.shape[1] > pixels.shape[0]):
        return pixels  # the emulator itself was turned, and its screenshot with it
    return np.rot90(pixels[top:bottom, left:right], turns)


def task_of(name: str, seed: int, env: Any) -> Any:
    """Makes the first instance of a task with `--task_random_seed`, as its runner does; raises ValueError."""
    from android_world import suite_utils

    for tasks in _registries().values():
        if name in tasks:
            with _clock(tasks[name], seed):
                return suite_utils.create_suite({name: tasks[name]}, 1, seed=seed, env=env)[name][0]
    raise ValueError(f"the checkout has no task {name!r}")


def listed(checkout: str) -> "dict[str, Any]":
    """Returns the tasks of a checkout by name, with their instruction, apps, step limit and families, and the tasks of
    each family."""
    sys.path.insert(0, checkout)
    metadata = Path(checkout, "android_world", "task_metadata.json")
    notes = {one["task_name"]: one for one in json.loads(metadata.read_text("utf-8"))} if metadata.is_file() else {}
    families, tasks = _registries(), dict[str, Any]()
    for family, kinds in families.items():
        for name in kinds:
            if name not in tasks:
                task = task_of(name, 0, None)
                tasks[name] = {
                    "instruction": task.template or task.goal,
                    "apps": list(filter(None, task.app_names)),
                    "max_steps": int(STEPS_PER_COMPLEXITY * task.complexity),
                    "difficulty": notes.get(name, {}).get("difficulty", ""),
                    "families": [],
                }
            tasks[name]["families"].append(family)
    return {"tasks": tasks}


def _registries() -> "dict[str, Any]":
    from android_world import registry

    tasks = registry.TaskRegistry()
    return {family: tasks.get_registry(family) for family in registry.get_families()}


@contextlib.contextmanager
def _clock(kind: Any, seed: int) -> Iterator[None]:
    """Gives the module of a task a clock that the seed sets, because some parameters contain the time of day."""
    module = sys.modules[kind.__module__]
    if getattr(module, "datetime", None) is not datetime:
        yield
        return
    then = kind.device_time + datetime.timedelta(seconds=seed % SECONDS_A_DAY)

    class PhoneClock(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime.datetime:
            return then.astimezone(tz) if tz else then.replace(tzinfo=None)

    setattr(module, "datetime", SimpleNamespace(**{**vars(datetime), "datetime": PhoneClock}))  # noqa: B010
    try:
        yield
    finally:
        setattr(module, "datetime", datetime)  # noqa: B010


def _text(error: Exception) -> str:
    """Returns an error as one line; android_env's have several."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


def _package(activity: str) -> str:
    return activity.partition("/")[0]


def _is_over(env: Any) -> bool:
    from android_world.task_evals.miniwob import miniwob_base

    return miniwob_base.is_episode_terminated(env)


if __name__ == "__main__":
    if sys.argv[1] == "--list":
        print(json.dumps(listed(sys.argv[2])))
    else:
        serve(AndroidWorld)
