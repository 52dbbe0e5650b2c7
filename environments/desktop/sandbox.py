"""Run one trajectory on its own desktop: an X server, a window manager and the task's programs.

Translate an action to input events of an X display: pointer moves, buttons and keys down and up.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files as files_of
from typing import TYPE_CHECKING, Any

from common.process import memory_mb
from environments.desktop.boxed import AskFailed, RunningDesktop
from environments.desktop.goal import DesktopGoal, File, State, Window, unmet
from environments.desktop.tasks.task import Command, DesktopInstance, DesktopTask, in_home
from environments.keys import key_of, keys_of
from environments.placeholder import filled_in_order
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas import action as act
from schemas.failure import ActionFailure, SandboxFailure
from schemas.keyboard import Key
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask

if TYPE_CHECKING:
    from environments.desktop.environment import DesktopConfig

Event = list[Any]
"""`move X Y`, `button NUMBER DOWN`, `key KEYSYM DOWN`, `text CHARACTERS` or `pause SECONDS`."""
LEFT, MIDDLE, RIGHT = 1, 2, 3
BUTTONS: Mapping[act.Button, int] = {"left": LEFT, "middle": MIDDLE, "right": RIGHT}
WHEEL = {"up": 4, "down": 5, "left": 6, "right": 7}
NOTCHES = 5
"""Wheel notches of one scroll, as in UI-TARS's parser."""
DRAG_MOVES = 8
DRAG_PAUSE_S = 0.012
"""Seconds between two moves of a drag, since programs start a drag only after several moves."""
HELD_S = 0.03
"""Seconds for which keys are held together, so that a window manager that grabs the keyboard for `alt tab` sees the
release of alt."""
LONG_S = 1.0
"""Seconds of a long press."""
WAIT_S = 1.0


def keysym_of(key: Key) -> int:
    """Returns the keysym of a key; raises ActionFailure for a key that displays lack."""
    if not key.keysym:
        raise ActionFailure(f"a desktop has no key {key.name!r}")
    return key.keysym


def pixel(x: float, y: float, width: int, height: int) -> tuple[int, int]:
    """Returns the pixel at fractions of the screen."""
    return min(int(x * width), width - 1), min(int(y * height), height - 1)


def events_of(action: act.Action, width: int, height: int) -> list[Event]:
    """Translates an action on a screen of this size to events; raises ActionFailure for an action that desktops
    lack."""
    if (made := _MADE.get(action.type)) is None:
        raise ActionFailure(f"a desktop cannot perform {action.type}")
    return made(action, width, height)


def _pressed(action: Any, width: int, height: int, button: int, times: int = 1, held_s: float = 0.0) -> list[Event]:
    held: list[Event] = [["pause", held_s]] if held_s else []
    once = [["button", button, True], *held, ["button", button, False]]
    point = act.point_of(action)
    moved: list[Event] = [["move", *pixel(*point, width, height)]] if point else []
    return [*moved, *once * times]


def _long_press(action: act.LongPress, width: int, height: int) -> list[Event]:
    return _pressed(action, width, height, LEFT, held_s=LONG_S if action.seconds is None else action.seconds)


def _moved(action: Any, width: int, height: int) -> list[Event]:
    """Moves the pointer to the action's place, in two steps, since programs take a drag from the second move on."""
    if (point := act.point_of(action)) is None:
        return []
    x, y = pixel(*point, width, height)
    beside = x - 1 if x else x + 1
    return [["move", beside, y], ["pause", DRAG_PAUSE_S], ["move", x, y], ["pause", DRAG_PAUSE_S]]


def _button(action: act.MouseDown | act.MouseUp, width: int, height: int) -> list[Event]:
    return [*_moved(action, width, height), ["button", BUTTONS[action.button], action.type == "mouse_down"]]


def _scroll(action: act.Scroll, width: int, height: int) -> list[Event]:
    point, wheel = act.point_of(action), WHEEL[action.direction]
    moved: list[Event] = [["move", *pixel(*point, width, height)]] if point else []
    return [*moved, *[["button", wheel, True], ["button", wheel, False]] * NOTCHES]


def _drag(action: act.Drag, width: int, height: int) -> list[Event]:
    (x, y), (to_x, to_y) = pixel(action.x, action.y, width, height), pixel(action.to_x, action.to_y, width, height)
    made: list[Event] = [["move", x, y], ["button", LEFT, True], ["pause", DRAG_PAUSE_S]]
    for number in range(1, DRAG_MOVES + 1):
        part = number / DRAG_MOVES
        made += [["move", round(x + (to_x - x) * part), round(y + (to_y - y) * part)], ["pause", DRAG_PAUSE_S]]
    return [*made, ["button", LEFT, False]]


def _hotkey(action: act.Hotkey, width: int, height: int) -> list[Event]:
    keysyms = [keysym_of(key) for key in keys_of(action.key)]
    held: list[Event] = [["pause", HELD_S]] if len(keysyms) > 1 else []
    return [*(["key", one, True] for one in keysyms), *held, *(["key", one, False] for one in reversed(keysyms))]


_MADE: Mapping[str, Callable[[Any, int, int], list[Event]]] = {
    "click": partial(_pressed, button=LEFT),
    "left_double": partial(_pressed, button=LEFT, times=2),
    "triple_click": partial(_pressed, button=LEFT, times=3),
    "right_single": partial(_pressed, button=RIGHT),
    "middle_single": partial(_pressed, button=MIDDLE),
    "long_press": _long_press,
    "move": _moved,
    "mouse_down": _button,
    "mouse_up": _button,
    "scroll": _scroll,
    "drag": _drag,
    "type": lambda action, *size: [["text", action.content]],
    "hotkey": _hotkey,
    "press": lambda action, *size: [["key", keysym_of(key_of(action.key)), True]],
    "release": lambda action, *size: [["key", keysym_of(key_of(action.key)), False]],
    "wait": lambda action, *size: [["pause", WAIT_S if action.seconds is None else action.seconds]],
}


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
        """Returns the desktop; raises SandboxFailure before the start, and after a start that failed."""
        if self._opened is None:
            raise SandboxFailure("the sandbox is not started")
        return self._opened

    @property
    def memory_mb(self) -> float | None:
        """Returns the memory of all of the desktop's processes."""
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
        width, height = self._config.width, self._config.height
        await self.box.ask("input", events=events_of(action, width, height), rest_s=REST_S)

    async def state(self) -> State:
        """Returns the state that verifiers read; raises SandboxFailure."""
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
            await self._opened.end()

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


async def begin(config: "DesktopConfig", folders: Mapping[str, int] | None = None) -> RunningDesktop:
    """Starts a desktop with its settings and no program.

    Args:
        config: the section.
        folders: further writable folders of a desktop in namespaces, each with its size in MB.

    Raises:
        SandboxFailure: the desktop does not start.
        FlywheelError: bubblewrap is missing.
    """
    return await RunningDesktop.start(config.width, config.height, config.isolation, _settings(), folders or {})


async def open_programs(box: RunningDesktop, programs: tuple[Command, ...]) -> None:
    """Opens programs in turn, and waits until the desktop has settled; raises SandboxFailure."""
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
