"""An environment as somebody else would bring it: no browser, no elements, a verifier of its own, asked at the end."""

import io

from PIL import Image

from environments.environment import Environment
from environments.host import Host, NoHost
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas import action as act
from schemas.config.section import Count
from schemas.config.sections import EnvironmentConfig
from schemas.failure import FlywheelError, Probe
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask, TaskEntry


class CountingConfig(EnvironmentConfig):
    """Clicks are counted."""

    clicks: Count = 2
    """How many clicks a task asks for."""
    fits: bool = True


class CountingSandbox(Sandbox):
    asked = 0

    def __init__(self, config: CountingConfig) -> None:
        super().__init__(config)
        self.wanted, self.clicks = config.clicks, 0

    async def _start(self, task: GuiTask, seed: int) -> None:
        self.instruction = task.instruction.format(self.wanted)

    async def _observe(self, elements: bool) -> Observation:
        stream = io.BytesIO()
        Image.new("L", (32 + self.clicks, 32)).save(stream, "png")
        return Observation(stream.getvalue(), 32, 32, self.instruction)

    async def _perform(self, action: act.Action) -> None:
        self.clicks += isinstance(action, act.Click)

    async def _stop(self) -> None:
        return


class Counted(Verifier):
    async def outcome(self, sandbox: CountingSandbox) -> Outcome:
        CountingSandbox.asked += 1
        return Outcome(done=True, reward=float(sandbox.clicks == sandbox.wanted))


class CountingEnvironment(Environment[CountingConfig]):
    section = CountingConfig
    verifier = f"{__name__}:Counted"
    lists_elements = False

    @property
    def entries(self) -> dict[str, TaskEntry]:
        entry = TaskEntry(instruction="Click {} times.", max_steps=3)
        return {"count": entry, "borrowed": entry.model_copy(update={"verifier": "fake"})}

    @property
    def sandboxes(self) -> int:
        return 2

    def host(self) -> Host:
        return NoHost(lambda: CountingSandbox(self.config))

    def probes(self) -> list[Probe]:
        return [Probe("room", self._room)]

    def _room(self) -> str:
        if not self.config.fits:
            raise FlywheelError("it does not fit.", f"Set environments.{self.name}.fits.")
        return "it fits"
