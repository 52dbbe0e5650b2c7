"""Play MiniWoB++ in BrowserGym, in a Python that has it; each line of JSON is an order, and gets one as its answer.

Every trajectory begins with BrowserGym's `reset`, with browsers of its own. A step returns its observation with a
picture, unchanged.
"""

# pyright: reportMissingImports=false
import itertools
import json
import os
import sys
import time
from typing import Any

import browsergym.miniwob  # noqa: F401  (registers itself)
import gymnasium
from browsergym.core.action.highlevel import HighLevelActionSet
from clicks import clicks
from flywheel_browser import use_browser

WIDTH, HEIGHT = 160, 210


def main() -> None:
    """Reads orders to the end of its input."""
    use_browser(os.environ.get("FLYWHEEL_BROWSER"))
    answers, sys.stdout = sys.stdout, sys.stderr
    mapping = HighLevelActionSet(["coord"], multiaction=False, strict=True).to_python_code
    environment: Any = None
    held: tuple[Any, ...] = ()
    for line in sys.stdin:
        order = json.loads(line)
        wanted = (order["task"], *sorted(order["settings"].items()))
        if wanted != held:
            if environment is not None:
                environment.close()
            environment = gymnasium.make(
                f"browsergym/miniwob.{order['task']}", action_mapping=mapping, disable_env_checker=True,
                **order["settings"],
            )  # fmt: skip
            held = wanted
        steps, trajectories, turns, start = 0, 0, itertools.cycle(order["seeds"]), time.perf_counter()
        while time.perf_counter() - start < order["seconds"]:
            seed = next(turns)
            environment.reset(seed=seed)
            zoom = getattr(environment.unwrapped.page, "_bgym_scale_factor", 1.0)
            for x, y in clicks(seed):
                seen, _, terminated, truncated, _ = environment.step(
                    f"mouse_click({x * WIDTH * zoom:.2f}, {y * HEIGHT * zoom:.2f})"
                )
                assert seen["screenshot"].size
                steps += 1
                if terminated or truncated:
                    break
            trajectories += 1
        print(json.dumps([trajectories, steps, time.perf_counter() - start]), file=answers, flush=True)
    if environment is not None:
        environment.close()


if __name__ == "__main__":
    main()
