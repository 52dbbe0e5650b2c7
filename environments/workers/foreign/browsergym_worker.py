"""Serve BrowserGym and all environments registered with it, in a Python that has it (browsergym-core 0.14).

The fields of `reset` are `task` (`browsergym/miniwob.click-test`), `seed`, and further arguments of `gymnasium.make`.
Actions go through BrowserGym's own action set, at pixels of the screenshot that it shows: MiniWoB's is drawn at one and
a half times its page, and BrowserGym divides by that itself. Playwright, which it pins, takes the Chromium at
`FLYWHEEL_BROWSER`, through a folder of links where it expects its own.
"""

# pyright: reportMissingImports=false, reportArgumentType=false
import importlib
import os
from typing import Any

import browsergym.core  # registers itself
import gymnasium
from browsergym.core.action.highlevel import HighLevelActionSet
from flywheel_browser import Calls, calls_of, use_browser
from flywheel_worker import serve, shown

SUBSETS = ["coord", "nav", "chat", "infeas"]


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
        return self._answer(seen)

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Performs one action, as one of BrowserGym's steps."""
        zoom = getattr(self._env.unwrapped.page, "_bgym_scale_factor", 1.0)
        seen, reward, terminated, truncated, _ = self._env.step(written(calls_of(action, *self._size, zoom)))
        error = seen["last_action_error"]
        return self._answer(
            seen, float(reward), terminated or truncated, truncated=truncated and not terminated, action_error=error
        )

    def close(self) -> None:
        """Ends the environment with its browsers."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _answer(self, seen: dict[str, Any], *what: Any, **metadata: Any) -> dict[str, Any]:
        height, width = seen["screenshot"].shape[:2]
        self._size = width, height
        return shown(seen["screenshot"], seen["goal"], *what, **metadata)


def written(calls: Calls) -> str:
    """The text of calls for BrowserGym. Texts are Python literals, so no code of a model is run."""
    return "\n".join(f"{name}({', '.join(f'{key}={one!r}' for key, one in given.items())})" for name, given in calls)


def _import_package_of(task: str) -> None:
    """Registers a task's family, such as `browsergym.miniwob`, unless it is BrowserGym's core that has it."""
    if task not in gymnasium.registry:
        family = task.partition("/")[2].partition(".")[0]
        importlib.import_module(f"{browsergym.__name__}.{family}")


if __name__ == "__main__":
    serve(BrowserGym)
