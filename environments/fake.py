"""Define the fake environment: fast tasks for tests, with coloured buttons drawn in Python instead of a browser.

The same seed gives the same pixels. The tasks:

- `click-target`: click one of two buttons.
- `click-one`: click the only button. `click-red` and so on: click the only button, which has this colour.
- `click-of-three`: click one of three buttons.
- `two-steps`, `three-steps`: click two or three buttons in order.
- `moving`: click the only button four times. After each click it moves to one of three places.
- `enter-text`: type a word and click a button.
- `dies`: as `click-target`, but the sandbox dies at the first action if the seed is a multiple of three.
- `note`: type two words. The task has no verifier and never ends by itself; a judge scores it.
"""

import io
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from environments.environment import Environment
from environments.host import Host, NoHost
from environments.sandbox import Sandbox
from environments.verifier import OwnOutcome
from schemas import action as act
from schemas.config.section import Count
from schemas.config.sections import EnvironmentConfig
from schemas.failure import ActionFailure, SandboxFailure
from schemas.observation import Element, Observation, Outcome
from schemas.tables.task import JUDGED, GuiTask, TaskEntry

WIDTH, HEIGHT = 160, 210
DEADLY = 3
"""The sandbox of the task `dies` dies if the seed is a multiple of this number."""
COLOURS = {"red": (220, 40, 40), "green": (40, 160, 60), "blue": (50, 80, 220), "orange": (240, 150, 30)}
_WORDS = ("ada", "grace", "joan", "mary", "edith")
_BUTTON = (48, 24)
_FIELD = (20, 60, 140, 78)
_CLICKS = {
    "click-one": (1, 1), "click-of-three": (3, 1), "two-steps": (2, 2), "three-steps": (3, 3), "moving": (1, 1)
}  # fmt: skip
"""Number of buttons on the screen and number of clicks, by template. Other templates have two buttons and one click."""
MOVES = 4
"""Clicks of the task `moving`."""

Box = tuple[int, int, int, int]


@dataclass(slots=True)
class _Scene:
    instruction: str
    order: list[str]
    """Buttons to click, in order."""
    buttons: dict[str, Box]
    moves: list[Box] = field(default_factory=list)
    """Next places of the button of the task `moving`."""
    word: str | None = None
    """Text to type into the text field; None if the task has no text field."""
    typed: str = ""
    focused: bool = False
    clicked: list[str] = field(default_factory=list)
    outcome: Outcome = field(default_factory=lambda: Outcome(done=False, reward=0.0))


class FakeSandbox(Sandbox):
    """One fake task. Its screens depend only on the seed and the actions."""

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._task = task
        self._seed = seed
        self._scene = _scene(task.template, seed)

    async def outcome(self) -> Outcome:
        """Returns the outcome of the clicks so far."""
        return self._scene.outcome

    async def _observe(self, elements: bool) -> Observation:
        scene = self._scene
        found = _elements(scene) if elements else ()
        return Observation(_draw(scene), WIDTH, HEIGHT, scene.instruction, found)

    async def _perform(self, action: act.Action) -> None:
        if self._task.template == "dies" and self._seed % DEADLY == 0:
            raise SandboxFailure("the fake box died, as it was made to")
        if isinstance(action, act.Click):
            _click(self._scene, action.x * WIDTH, action.y * HEIGHT)
        elif isinstance(action, act.Type):
            self._scene.typed += action.content if self._scene.focused else ""
        elif not isinstance(action, act.Wait | act.Scroll | act.Drag | act.Move):
            raise ActionFailure(f"the fake environment cannot perform {action.type}")

    async def _stop(self) -> None:
        return


class FakeVerifier(OwnOutcome):
    """Scores the clicks. The first wrong click ends the task."""

    reads = FakeSandbox


def _scene(template: str, seed: int) -> _Scene:
    chance = random.Random(f"{template} {seed}")
    colour = template.removeprefix("click-")
    count, clicks = (1, 1) if colour in COLOURS else _CLICKS.get(template, (2, 1))
    names = [colour] if colour in COLOURS else chance.sample(sorted(COLOURS), count)
    buttons = dict(zip(names, _places(chance, count), strict=True))
    if template == "moving":
        first, *moves = [_cell(chance) for _ in range(MOVES)]
        return _Scene(f'Click the "{names[0]}" button four times.', names * MOVES, {names[0]: first}, moves)
    if clicks > 1:
        text = ", then the ".join(f'"{name}" button' for name in names)
        return _Scene(f"Click the {text}.", names, buttons)
    if template == "enter-text":
        word = chance.choice(_WORDS)
        return _Scene(f'Type "{word}" and click the "{names[0]}" button.', names[:1], buttons, word=word)
    if template == "note":
        words = " ".join(chance.sample(_WORDS, 2))
        return _Scene(f'Write a note that says "{words}".', [], {}, word=words)
    return _Scene(f'Click the "{names[0]}" button.', names[:1], buttons)


def _places(chance: random.Random, count: int) -> list[Box]:
    wide, high = _BUTTON
    rows = chance.sample(range(90, HEIGHT - high, high + 8), count)
    lefts = [chance.randrange(4, WIDTH - wide - 4) for _ in rows]
    return [(left, top, left + wide, top + high) for left, top in zip(lefts, rows, strict=True)]


def _cell(chance: random.Random) -> Box:
    """Chooses one of three places, below each other."""
    left, top = 56, chance.choice((90, 122, 154))
    return (left, top, left + _BUTTON[0], top + _BUTTON[1])


def _inside(box: Box, x: float, y: float) -> bool:
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _click(scene: _Scene, x: float, y: float) -> None:
    scene.focused = scene.word is not None and _inside(_FIELD, x, y)
    for name, box in list(scene.buttons.items()):
        if not scene.outcome.done and _inside(box, x, y):
            scene.clicked.append(name)
            right = scene.clicked == scene.order[: len(scene.clicked)] and scene.typed.strip() == (scene.word or "")
            if not right or len(scene.clicked) == len(scene.order):
                scene.outcome = Outcome(done=True, reward=1.0 if right else -1.0)
            elif scene.moves:
                scene.buttons[name] = scene.moves.pop(0)


def _draw(scene: _Scene) -> bytes:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 0, WIDTH, 50), fill=(255, 255, 0))
    pen.multiline_text((3, 3), scene.instruction.replace('" ', '"\n'), fill="black")
    if scene.word is not None:
        pen.rectangle(_FIELD, outline="black", width=2 if scene.focused else 1)
        pen.text((_FIELD[0] + 4, _FIELD[1] + 4), scene.typed, fill="black")
    for name, box in scene.buttons.items():
        pen.rectangle(box, fill=COLOURS[name], outline="black", width=3 if name in scene.clicked else 1)
        pen.text((box[0] + 6, box[1] + 6), name, fill="white")
    stream = io.BytesIO()
    image.save(stream, "png", compress_level=1)
    return stream.getvalue()


def _elements(scene: _Scene) -> tuple[Element, ...]:
    found = [Element(name, "button", _fractions(box), True) for name, box in scene.buttons.items()]
    if scene.word is not None:
        found.append(Element("", "text field", _fractions(_FIELD), True, scene.typed))
    return tuple(found)


def _fractions(box: Box) -> tuple[float, float, float, float]:
    return (box[0] / WIDTH, box[1] / HEIGHT, box[2] / WIDTH, box[3] / HEIGHT)


class FakeConfig(EnvironmentConfig):
    """Coloured buttons drawn in this process, for tests."""

    sandboxes: Count = 8
    """Maximum concurrent trajectories."""


def _clicks(count: int, button: str, max_steps: int) -> TaskEntry:
    instruction = "Click " + ", then ".join([f"the {button}"] * count) + "."
    return TaskEntry(
        instruction=instruction, tags=("fake", "multi-step" if count > 1 else "single-step"), max_steps=max_steps
    )


ENTRIES: Mapping[str, TaskEntry] = {
    **{name: _clicks(1, '"{}" button', 3) for name in ("click-target", "click-one", "click-of-three")},
    **{f"click-{colour}": _clicks(1, f'"{colour}" button', 3) for colour in COLOURS},
    "dies": TaskEntry(instruction='Click the "{}" button.', tags=("fake",), max_steps=3),
    "two-steps": _clicks(2, '"{}" button', 4),
    "three-steps": _clicks(3, '"{}" button', 5),
    "moving": TaskEntry(
        instruction='Click the "{}" button four times.', tags=("fake", "multi-step"), max_steps=MOVES + 2
    ),
    "enter-text": TaskEntry(instruction='Type "{}" and click the "{}" button.', tags=("fake", "typing"), max_steps=5),
    "note": TaskEntry(
        instruction='Write a note that says "{}".', tags=("fake", "typing"), max_steps=3, verifier=JUDGED
    ),
}
"""Tasks by template."""


class FakeEnvironment(Environment[FakeConfig]):
    """Tasks with buttons and text fields, a task whose sandbox dies, and a task without a verifier."""

    section = FakeConfig
    verifier = "fake"
    sandbox_class = FakeSandbox
    origin = "flywheel"

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """Tasks by template."""
        return ENTRIES

    @property
    def sandboxes(self) -> int:
        """Number of sandboxes, from the config."""
        return self.config.sandboxes

    def host(self) -> Host:
        """Returns a host that does nothing, because the sandboxes run in this process."""
        return NoHost(lambda: FakeSandbox(self.config))
