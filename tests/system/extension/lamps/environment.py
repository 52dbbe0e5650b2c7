"""Lamps on a dark screen: a click switches a lamp. The environment lists no elements."""

import io
import random
from collections.abc import Mapping

from PIL import Image, ImageDraw

from environments.environment import Environment
from environments.host import Host, NoHost
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas.action import Action, Click
from schemas.config.section import Count
from schemas.config.sections import EnvironmentConfig
from schemas.failure import ActionFailure
from schemas.observation import Observation, Outcome
from schemas.tables.task import JUDGED, GuiTask, TaskEntry


class LampsConfig(EnvironmentConfig):
    """`[environments.lamps]`."""

    sandboxes: Count = 4
    """Number of trajectories that run at the same time."""
    size: Count = 96
    """Width and height of the screen in pixels."""


class LampsSandbox(Sandbox):
    """One or two lamps; the seed decides the screen."""

    def __init__(self, config: LampsConfig) -> None:
        super().__init__(config)
        self._size = config.size
        self.lit: list[bool] = []

    async def _start(self, task: GuiTask, seed: int) -> None:
        count = 2 if task.template == "switch-both" else 1
        self.lit, self._instruction = [False] * count, task.instruction
        self._tops = random.Random(seed).sample((0.05, 0.55), count)

    async def _observe(self, elements: bool) -> Observation:
        image = Image.new("RGB", (self._size, self._size), "black")
        for top, lit in zip(self._tops, self.lit, strict=True):
            box = [self._size * edge for edge in (0.2, top, 0.8, top + 0.4)]
            ImageDraw.Draw(image).ellipse(box, fill="yellow" if lit else "gray")
        png = io.BytesIO()
        image.save(png, "png")
        return Observation(png.getvalue(), self._size, self._size, self._instruction)

    async def _perform(self, action: Action) -> None:
        if not isinstance(action, Click):
            raise ActionFailure(f"a lamp cannot {action.type}")
        for number, top in enumerate(self._tops):
            if 0.2 <= action.x <= 0.8 and top <= action.y <= top + 0.4:
                self.lit[number] = True

    async def _stop(self) -> None:
        return


class AllLit(Verifier):
    """Give 1 as soon as every lamp is lit, and end the task."""

    each_step = True

    async def outcome(self, sandbox: LampsSandbox) -> Outcome:
        """Compute the reward from the state of the lamps."""
        return Outcome(done=all(sandbox.lit), reward=float(all(sandbox.lit)))


class LampsEnvironment(Environment[LampsConfig]):
    """Three tasks; only a judge can score the last one."""

    section = LampsConfig
    verifier = "lamps.environment:AllLit"
    lists_elements = False

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Return the tasks by template."""
        return {
            "switch-on": TaskEntry(instruction="Switch the lamp on.", max_steps=3),
            "switch-both": TaskEntry(instruction="Switch both lamps on.", max_steps=6),
            "click-twice": TaskEntry(instruction="Click twice.", max_steps=3, verifier=JUDGED),
        }

    @property
    def sandboxes(self) -> int:
        """Return the number of sandboxes in the config."""
        return self.config.sandboxes

    def host(self) -> Host:
        """Return a host without a process."""
        return NoHost(lambda: LampsSandbox(self.config))
