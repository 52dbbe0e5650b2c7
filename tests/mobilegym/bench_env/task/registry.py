"""Three tasks about lamps, and their list."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

LAMPS = Path(__file__).parents[2] / "apps" / "Lights" / "data" / "lamps.json"


def result(success: bool, clean: bool = True, judge_error: str | None = None) -> Any:
    """What a judge found."""
    return SimpleNamespace(success=success, clean=clean, passed=success and clean, judge_error=judge_error)


class SwitchOn:
    """One lamp, drawn by the seed, is to be on, and the others as before."""

    templates: ClassVar[list[str]] = ["Switch on the lamp in the {room}."]
    apps: ClassVar[list[str]] = ["lights"]
    difficulty = "L1"
    answer_fields: ClassVar[list[dict[str, str]]] = []

    def __init__(self, _seed: int | None = None) -> None:
        self._seed = _seed
        self.room = random.Random(_seed).choice(json.loads(LAMPS.read_text()))
        self.note = ""

    @property
    def id(self) -> str:
        """Its id."""
        return f"lights.{type(self).__name__}"

    @property
    def description(self) -> str:
        """The instruction."""
        return self.templates[0].format(room=self.room) + self.note

    async def setup(self, env: Any) -> Any:
        """Starts the phone; the lamp is off."""
        with env.stopwatch.phase("setup"):
            await env.reset(app_ids=self.apps)
            await env.open_app("lights", wait_stable=True)
            state = await env.get_state(required_apps=self.apps)
            lamps = {**state["apps"]["lights"]["on"], self.room: False}
            await env.set_state({"apps": {"lights": {"on": lamps}}}, deep=True)
            assert await env.page.evaluate("(room) => __SIM__.getState().apps.lights.on[room]", self.room) is False
            return await env.get_observation()

    def evaluate(self, first: Any, last: Any, answer: str | None) -> Any:
        """Whether it is on, and nothing else changed."""
        before, after = (one.state["apps"]["lights"]["on"] for one in (first, last))
        others = {room: on for room, on in after.items() if room != self.room}
        return result(after[self.room], all(before[room] == on for room, on in others.items()))


class CountLamps(SwitchOn):
    """How many lamps there are, on the answer sheet or as a text."""

    templates: ClassVar[list[str]] = ["How many lamps are there?"]
    difficulty = "L2"
    answer_fields: ClassVar[list[dict[str, str]]] = [{"type": "number", "label": "Lamps"}]

    def evaluate(self, first: Any, last: Any, answer: str | None) -> Any:
        """Whether it is the right number."""
        return result(answer == str(len(last.state["apps"]["lights"]["on"])))


class Unjudged(SwitchOn):
    """A task whose judge fails."""

    def evaluate(self, first: Any, last: Any, answer: str | None) -> Any:
        """Fails as a judge's own error, or by an exception."""
        if answer:
            raise KeyError(answer)
        return result(False, judge_error="the state has no lamp")


class TaskRegistry:
    """The tasks of the only suite."""

    def __init__(self) -> None:
        self._tasks = {one.__name__: one for one in (SwitchOn, CountLamps, Unjudged)}

    def list_suites(self, *, include_generated: bool = True) -> list[str]:
        """Names of suites."""
        return ["lights"]

    def list_tasks(self, suite: str) -> list[str]:
        """Names of a suite's tasks."""
        return sorted(self._tasks)

    def get(self, suite: str, name: str) -> type[SwitchOn]:
        """A task's class; raises ValueError."""
        if name not in self._tasks:
            raise ValueError(f"Task '{name}' not found in suite '{suite}'.")
        return self._tasks[name]

    def get_by_id(self, task_id: str) -> type[SwitchOn]:
        """A task's class; raises ValueError."""
        return self.get(*task_id.split(".", 1))
