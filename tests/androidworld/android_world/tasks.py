"""The tasks, with one phone's lamps."""

import datetime
import random
from typing import Any

from android_world.env import device_constants

ROOMS = ("kitchen", "hall", "attic")


class Task:
    template = ""
    complexity: float = 1.2
    app_names: tuple[str, ...] = ("lamps",)
    start_on_home_screen = True
    device_time = device_constants.DT

    def __init__(self, params: dict[str, Any]) -> None:
        self.params, self.initialized = params, False

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def goal(self) -> str:
        return self.template.format(**self.params)

    @classmethod
    def generate_random_params(cls) -> dict[str, Any]:
        return {"room": random.choice(ROOMS), "lot": random.randrange(10**6)}

    def initialize_task(self, env: Any) -> None:
        env.interaction_cache = ""
        env.put(lamps=[False] * 3, typed="")
        env.note(f"begin {self.name}")
        self.initialized = True

    def is_successful(self, env: Any) -> float:
        return float(env.state["lamps"] == [room == self.params["room"] for room in ROOMS])

    def tear_down(self, env: Any) -> None:
        env.note(f"end {self.name}")
        self.initialized = False


class SwitchOn(Task):
    template = "Switch on the lamp in the {room} (lot {lot})."


class SwitchOnTwo(Task):
    template = "Switch on the lamps in the kitchen and the hall."
    complexity = 2.4

    def is_successful(self, env: Any) -> float:
        return sum(env.state["lamps"][:2]) / 2


class CountLamps(Task):
    template = "How many lamps are there?"

    def is_successful(self, env: Any) -> float:
        return float(env.interaction_cache == "3")


class Named(Task):
    template = "Make the folder {folder}."

    @classmethod
    def generate_random_params(cls) -> dict[str, Any]:
        now = datetime.datetime.now()  # noqa: DTZ005  (as AndroidWorld)
        return {"folder": now.strftime("%Y%m%d_%H%M%S")}


class Write(Task):
    template = "Write the text."


class Absent(Task):
    template = "Open the app."
    app_names = ("absent",)


class NoApp(Task):
    template = "Wait."
    app_names = ("",)
    start_on_home_screen = False


class Unjudged(Task):
    template = "Do anything."

    def is_successful(self, env: Any) -> float:
        raise ValueError("no such table")


class Endless(Task):
    template = "Do anything, endlessly."

    def is_successful(self, env: Any) -> float:
        return float("nan")


class Vanishing(Task):
    template = "Switch anything off."

    def is_successful(self, env: Any) -> float:
        env.put(state="")
        return 0.0


class Untidy(Task):
    template = "Leave a mess."

    def tear_down(self, env: Any) -> None:
        raise RuntimeError("the folder is not empty")


class MiniWobPress(Task):
    template = "Follow the page: press {room}."
    complexity = 3
    app_names = ("com.pages",)
    start_on_home_screen = False

    def is_successful(self, env: Any) -> float:
        return float(env.state["lamps"][:2] == [True, True])


BENCHMARK = {
    one.__name__: one
    for one in (
        SwitchOn, SwitchOnTwo, CountLamps, Named, Write, Absent, NoApp, Unjudged, Endless, Vanishing, Untidy
    )
}  # fmt: skip
PAGES = {"press": MiniWobPress}
