"""Run one trajectory on its own desktop: an X server, a window manager and the task's programs."""

from base64 import b64decode
from collections.abc import Mapping
from importlib.resources import files as files_of
from typing import TYPE_CHECKING

from environments.desktop.boxed import AskFailed, RunningDesktop
from environments.desktop.events import events_of
from environments.desktop.goal import DesktopGoal, File, State, Window, unmet
from environments.desktop.tasks.task import Command, DesktopInstance, DesktopTask, in_home
from environments.placeholder import filled_in_order
from environments.processes import memory_mb
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas import action as act
from schemas.failure import SandboxFailure
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask

if TYPE_CHECKING:
    from environments.desktop.environment import DesktopConfig

WINDOW_S = 10.0
"""Seconds that a program of a task may take to open its window."""
FIRST_REST_S, REST_S = 2.0, 1.0
"""Maximum seconds to wait for the desktop to settle, at the start and after an action."""
_PLACES = {
    "bashrc": ".bashrc",
    "Xdefaults": ".Xdefaults",
    "gtk.ini": ".config/gtk-3.0/settings.ini",
    "gtkrc-2.0": ".gtkrc-2.0",
    "pcmanfm.conf": ".config/pcmanfm/default/pcmanfm.conf",
}
"""Settings files of this package and their paths in the home; they turn off blinking and clocks."""


class DesktopSandbox(Sandbox):
    """One task on one desktop.

    Args:
        config: the section.
        templates: the available tasks, by name.
    """

    def __init__(self, config: "DesktopConfig", templates: Mapping[str, DesktopTask]) -> None:
        super().__init__(config)
        self._config, self._templates = config, templates
        self._opened: RunningDesktop | None = None
        self._instruction = ""
        self.instance = DesktopInstance((), DesktopGoal())

    @property
    def box(self) -> RunningDesktop:
        """The desktop; raises SandboxFailure before the start."""
        if self._opened is None:
            raise SandboxFailure("the sandbox is not started")
        return self._opened

    @property
    def memory_mb(self) -> float | None:
        """Memory of all of the desktop's processes."""
        return None if self._opened is None else memory_mb(self._opened.pid)

    async def _start(self, task: GuiTask, seed: int) -> None:
        self.instance = self._templates[task.template].instance(task.template, seed)
        self._instruction = filled_in_order(task.instruction, self.instance.words)
        self._opened = await begin(self._config)
        await self._opened.set_out(dict(self.instance.files))
        await open_programs(self._opened, self.instance.programs)

    async def _observe(self, elements: bool) -> Observation:
        shown, png = await self.box.content("look")
        return Observation(png, shown["width"], shown["height"], self._instruction)

    async def _perform(self, action: act.Action) -> None:
        events = events_of(action, self._config.width, self._config.height)
        await self.box.ask("input", events=events, rest_s=REST_S)

    async def state(self) -> State:
        """The state that verifiers read; raises SandboxFailure."""
        goal = self.instance.goal
        listed = (await self.box.ask("windows"))["windows"] if goal.windows else []
        clipboard = (await self.box.ask("clipboard"))["text"] if goal.clipboard is not None else ""
        return State(
            {one["path"]: _file(one) for one in (await self.box.ask("tree"))["tree"]},
            tuple(Window(**{**one, "classes": tuple(one["classes"])}) for one in listed),
            clipboard,
            self._config.width,
            self._config.height,
        )

    async def _stop(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _abandon(self) -> None:
        if self._opened is not None:
            self._opened.kill()


class DesktopReward(Verifier):
    """Rewards 1 as soon as the state meets the task's goal and everything else is unchanged."""

    each_step = True
    reads = DesktopSandbox

    async def outcome(self, sandbox: DesktopSandbox) -> Outcome:
        """Scores files, windows and the clipboard."""
        reached = not unmet(sandbox.instance.goal, sandbox.instance.files, await sandbox.state())
        return Outcome(done=reached, reward=float(reached))


async def begin(config: "DesktopConfig") -> RunningDesktop:
    """A desktop with its settings and no program; raises SandboxFailure, or FlywheelError without bubblewrap."""
    return await RunningDesktop.start(config.width, config.height, config.isolation, _settings())


async def open_programs(box: RunningDesktop, programs: tuple[Command, ...]) -> None:
    """Opens programs, one after another, and waits until all is quiet; raises SandboxFailure."""
    for command in programs:
        try:
            answer = await box.ask("open", command=[in_home(one, box.home) for one in command], window_s=WINDOW_S)
        except AskFailed as error:
            raise SandboxFailure(f"{command[0]} does not start: {error}") from error
        if not answer["shown"]:
            raise SandboxFailure(f"{command[0]} shows no window within {WINDOW_S:g} s")
        await box.ask("rest", rest_s=FIRST_REST_S)


def _settings() -> dict[str, bytes]:
    folder = files_of("environments.desktop") / "settings"
    return {place: (folder / name).read_bytes() for name, place in _PLACES.items()}


def _file(one: dict[str, str]) -> File:
    content = one.get("content")
    return File(None if content is None else b64decode(content), bool(one.get("executable")))
