"""Clean trajectories, and the same with one fault each: what `benchmarks.filter` gives the gates to find.

Half of the clean ones are real: a solver that now and then looks around acts in the fake sandbox. The others are forms
of 3 to 6 boxes to tick, drawn here; on one in four of those a clock ticks. Nothing of the gates is used: a fault is
what this module does to screens, actions and outcomes.
"""

import hashlib
import io
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from PIL import Image, ImageDraw

from benchmarks.shared.planted import pictures
from models.completion import Completion
from models.families.dialects import format_action, format_reply, parse_reply
from models.policy import Context, Explorer
from rollout.trajectory import FinishedTrajectory
from schemas import action as act
from schemas.observation import Element, Observation
from schemas.table import utc_now
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory

REAL = ("click-of-three", "two-steps", "three-steps", "enter-text")
WIDTH, HEIGHT = 240, 180
JUDGED = "fake/note"
"""A task that only a judge can score."""
_FINISHED = '{"content":"","type":"finished"}'
_LOOK = "Look around."


class Solver(Explorer):
    """Does what the fake environment's instructions ask for; one action in six is a click beside everything."""

    version, dialect, needs_elements = "solver", "box_v1", True

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        """One completion per context."""
        return [self._completion(context) for context in contexts]

    def _completion(self, context: Context) -> Completion:
        chance = random.Random(context.seed)
        done = [turn for turn in context.turns if turn.thought != _LOOK]
        looks = chance.random() < 1 / 6 and len(done) == len(context.turns)
        action = act.Click(x=chance.uniform(0.0, 0.05), y=chance.uniform(0.9, 1.0)) if looks else _next(context, done)
        return parse_reply(format_reply(_LOOK if looks else "", format_action(action, self.dialect)))


def _next(context: Context, done: Sequence[object]) -> act.Action:
    names = re.findall(r'"([^"]+)"', context.observation.instruction)
    there = {element.name: element for element in context.observation.elements}
    if "" not in there:
        return _click(there[names[min(len(done), len(names) - 1)]])
    plan = (_click(there[""]), act.Type(content=names[0]), _click(there[names[1]]))
    return plan[min(len(done), 2)]


def _click(element: Element) -> act.Click:
    return act.Click(x=round(element.centre[0], 3), y=round(element.centre[1], 3))


@dataclass(frozen=True, slots=True)
class Shot:
    """One step: what was seen, and what was done."""

    png: bytes
    action: str | None
    thought: str = ""
    error: str | None = None
    after: bytes | None = None
    """What was seen right after it, where that is not what the next step saw."""
    elements: str = "[]"


@dataclass(frozen=True, slots=True)
class Script:
    """A trajectory as it can be changed: its outcome, its steps, and the last screen."""

    trajectory: Trajectory
    shots: tuple[Shot, ...]
    end: bytes
    missing: tuple[int, ...] = field(default=())
    """Steps that are lost on their way to the lake."""
    clock: bool = False
    """Whether a clock ticks in a corner of every screen."""

    def record(self) -> FinishedTrajectory:
        """The rows."""
        trajectory = self.trajectory.model_copy(update={"n_steps": len(self.shots)})
        shots, end = self._shown()
        after = [*(shot.png for shot in shots[1:]), end]
        steps = [
            _step(trajectory, number, shot, shot.after or then)
            for number, (shot, then) in enumerate(zip(shots, after, strict=True))
            if number not in self.missing
        ]
        pngs = {png for shot in shots for png in (shot.png, shot.after) if png} | {end}
        return FinishedTrajectory(trajectory, steps, {digest_of(png): _observation(png) for png in pngs})

    def _shown(self) -> tuple[Sequence[Shot], bytes]:
        """The steps and the last screen with the time of each."""
        if not self.clock:
            return self.shots, self.end
        chance = random.Random(self.trajectory.trajectory_id)
        times = list(accumulate((chance.randint(1, 3) for _ in self.shots), initial=chance.randrange(86_000)))
        shots = [
            replace(shot, png=pictures.clock(shot.png, now), after=shot.after and pictures.clock(shot.after, now + 1))
            for shot, now in zip(self.shots, times, strict=False)
        ]
        return shots, pictures.clock(self.end, times[-1])


def digest_of(text: bytes) -> str:
    """sha256, in hex."""
    return hashlib.sha256(text).hexdigest()


def script_of(record: FinishedTrajectory) -> Script:
    """A trajectory that was rolled out."""
    shown = {name: seen.png for name, seen in record.screenshots.items()}
    shots = tuple(
        Shot(shown[step.screenshot], step.action, step.thought, elements=step.elements) for step in record.steps
    )
    return Script(record.trajectory, shots, shown[record.steps[-1].next_screenshot or record.steps[-1].screenshot])


def form(number: int, iteration: int) -> Script:
    """A form of 3 to 6 boxes to tick in order, unlike any other: drawn, and done right. Where a clock ticks, whoever
    fills it says when it is done."""
    chance = random.Random(f"form {number}")
    boxes, clock = 3 + number % 4, number % 4 == 3
    places = chance.sample([(x, y) for x in range(10, 200, 48) for y in range(50, 160, 26)], boxes + 4)
    names = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in places]
    screens = [_page(names, places, ticked, number) for ticked in range(boxes + 1)]
    clicks = [act.to_json(act.Click(x=(x + 6) / WIDTH, y=(y + 6) / HEIGHT)) for x, y in places[:boxes]]
    trajectory = Trajectory(
        trajectory_id=digest_of(f"form {number}".encode())[:24], iteration=iteration, run_id="planted",
        task_id=f"forms/{'clock' if clock else 'tick'}-{boxes}", seed=number, split="train", attempt=0,
        policy="explorer", policy_version="solver", instruction=f"Tick {', '.join(names[:boxes])} in form {number}.",
        n_steps=boxes, reward=1.0, success=True, termination="done", sampling="{}", started_at=utc_now(), wall_s=1.0,
    )  # fmt: skip
    shots = tuple(Shot(*pair) for pair in zip(screens, [*clicks, *[_FINISHED] * clock], strict=False))
    return Script(trajectory, shots, screens[-1], clock=clock)


def _page(names: Sequence[str], places: Sequence[tuple[int, int]], ticked: int, number: int) -> bytes:
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 0, WIDTH, 36), fill=(30, 60, 90 + number * 37 % 160))
    pen.text((6, 6), f"Form {number}\n{ticked} of these are ticked", fill="white")
    for at, (name, (x, y)) in enumerate(zip(names, places, strict=True)):
        pen.rectangle((x, y, x + 12, y + 12), outline="black", fill=(20, 120, 40) if at < ticked else "white")
        pen.text((x + 15, y), name, fill="black")
    return pictures.png(image)


Fault = Callable[[Script, random.Random], Script]


def unparsable(script: Script, chance: random.Random) -> Script:
    """A reply that holds no action."""
    return _changed(script, _any(script, chance), action=None, error="no action in the reply")


def out_of_screen(script: Script, chance: random.Random) -> Script:
    """A click beyond an edge."""
    x, y = chance.choice([(1.2, 0.5), (0.5, -0.3), (1.01, 1.4), (-0.02, 0.1)])
    return _changed(script, _any(script, chance), action=f'{{"type":"click","x":{x},"y":{y}}}')


def missing_step(script: Script, chance: random.Random) -> Script:
    """A step that never reached the lake."""
    return replace(script, missing=(_any(script, chance),))


def endless_thought(script: Script, chance: random.Random) -> Script:
    """A thought that goes round in circles."""
    phrase = chance.choice(["let me think again. ", "wait ", "the button is there, no, "])
    return _changed(script, _any(script, chance), thought="First I look. " + phrase * chance.randint(5, 40))


def noop_loop(script: Script, chance: random.Random) -> Script:
    """One action that changes nothing, again and again."""
    at, click = _any(script, chance), _somewhere(chance)
    return _inserted(script, at, [Shot(script.shots[at].png, click)] * chance.randint(5, 12))


def cycle(script: Script, chance: random.Random) -> Script:
    """Two to four screens, again and again."""
    at = _any(script, chance)
    screens = [
        script.shots[at].png,
        *(pictures.menu(script.shots[at].png, chance) for _ in range(chance.randint(1, 3))),
    ]
    tour = [Shot(png, _somewhere(chance)) for png in screens]
    return _inserted(script, at, tour * chance.randint(3, 5))


def stuck(script: Script, chance: random.Random) -> Script:
    """One action after the other that changes nothing."""
    at = _any(script, chance)
    shots = [Shot(script.shots[at].png, _somewhere(chance)) for _ in range(chance.randint(6, 12))]
    return _inserted(script, at, shots)


def wandering(script: Script, chance: random.Random) -> Script:
    """Menu after menu is opened and closed before the work goes on."""
    at = _any(script, chance)
    here = script.shots[at].png
    tours = [
        [Shot(here, _somewhere(chance)), Shot(pictures.menu(here, chance), _somewhere(chance))]
        for _ in range(chance.randint(16, 20))
    ]
    return _inserted(script, at, [shot for tour in tours for shot in tour])


def blank(script: Script, chance: random.Random) -> Script:
    """An action on a screen that had not loaded, with or without the little thing that turns."""
    image = Image.new("RGB", (WIDTH, HEIGHT), chance.choice(["white", "black", (240, 240, 240)]))
    if chance.random() < 0.5:
        ImageDraw.Draw(image).arc((112, 82, 128, 98), 0, 270, fill="gray", width=2)
    return _changed(script, chance.randrange(_acts(script)), png=pictures.png(image))


def mid_change(script: Script, chance: random.Random) -> Script:
    """What was taken as an action's effect is half of it: the rest of the page is not there yet."""
    at = chance.randrange(_acts(script) - 1)
    image = Image.open(io.BytesIO(script.shots[at + 1].png)).convert("RGB")
    wide, high = image.size
    ImageDraw.Draw(image).rectangle((0, chance.randint(20, high // 3), wide, high), fill="gray")
    return _changed(script, at, after=pictures.png(image))


def near_duplicate(script: Script, chance: random.Random) -> Script:
    """The same again: another encoder, a little noise or a cursor, clicks a pixel or two away, another seed."""
    how = chance.choice([pictures.noise, pictures.cursor, pictures.reencoded])
    shots = tuple(
        replace(shot, png=how(shot.png, chance), action=_nudged(shot.action or "", chance)) for shot in script.shots
    )
    changed = replace(script, shots=shots, end=how(script.end, chance))
    return _with(changed, seed=script.trajectory.seed + 500_000)


def idle_duplicate(script: Script, chance: random.Random) -> Script:
    """A near-duplicate that waits once, or clicks beside everything."""
    at = _any(script, chance)
    idle = Shot(script.shots[at].png, chance.choice(['{"type":"wait"}', _somewhere(chance)]))
    return near_duplicate(_inserted(script, at, [idle]), chance)


def hack_nothing(script: Script, chance: random.Random) -> Script:
    """A reward for saying that it is done, or for waiting."""
    words = chance.choice([[_FINISHED], ['{"type":"wait"}'] * 2, ['{"type":"wait"}', _FINISHED]])
    return replace(script, shots=tuple(Shot(script.shots[0].png, word) for word in words), end=script.shots[0].png)


def hack_no_change(script: Script, chance: random.Random) -> Script:
    """A reward for clicks that changed nothing."""
    first = script.shots[0].png
    clicks = tuple(Shot(first, _somewhere(chance)) for _ in range(chance.randint(1, 3)))
    return replace(script, shots=clicks, end=first)


def hack_shortcut(script: Script, chance: random.Random) -> Script:
    """A reward, and what it looks like in the end, after the first of three clicks or more."""
    return replace(script, shots=script.shots[:1], end=script.end)


def finished_spam(script: Script, chance: random.Random) -> Script:
    """`finished` said until it was believed."""
    last = script.shots[-1]
    return _inserted(script, len(script.shots) - 1, [replace(last, action=_FINISHED)] * chance.randint(2, 4))


def failure(script: Script, chance: random.Random) -> Script:
    """The last click was the wrong one."""
    return _with(_changed(script, len(script.shots) - 1, action=_somewhere(chance)), reward=-1.0, success=False)


def judged_failure(script: Script, chance: random.Random) -> Script:
    """The judge of a task without a verifier is not content."""
    return _with(failure(script, chance), task_id=JUDGED, reward=0.2)


def dead_sandbox(script: Script, chance: random.Random) -> Script:
    """The sandbox died on the way."""
    died = {"failure_boundary": "sandbox", "failure_reason": "gone", "termination": "failure"}
    return _with(replace(script, shots=script.shots[:1]), reward=None, success=None, **died)


FAULTS: dict[str, tuple[str, Fault]] = {
    "dead sandbox": ("environment", dead_sandbox),
    "unparsable": ("actions", unparsable),
    "out of screen": ("actions", out_of_screen),
    "missing step": ("actions", missing_step),
    "endless thought": ("thoughts", endless_thought),
    "no-op loop": ("loops", noop_loop),
    "cycle": ("loops", cycle),
    "stuck": ("redundant", stuck),
    "wandering": ("redundant", wandering),
    "blank": ("transient", blank),
    "mid-change": ("transient", mid_change),
    "hack: nothing done": ("evidence", hack_nothing),
    "hack: no change": ("evidence", hack_no_change),
    "finished spam": ("evidence", finished_spam),
    "hack: shortcut": ("shortcut", hack_shortcut),
    "near-duplicate": ("duplicates", near_duplicate),
    "near-duplicate that idles": ("duplicates", idle_duplicate),
    "failure": ("verifier", failure),
    "judged failure": ("judge", judged_failure),
}
"""Each fault with the gate that is to find it."""
LONG = ("hack: shortcut", "mid-change", "hack: no change")
"""Faults of trajectories of three steps or more."""


def planted(fault: str, number: int, script: Script, iteration: int) -> Script:
    """A clean trajectory with a fault, under a name of its own that sorts after all clean ones."""
    made = FAULTS[fault][1](script, random.Random(f"{fault} {number}"))
    name = "p" + digest_of(f"{fault} {number}".encode())[:23]
    group = f"group {number}" if fault.startswith("hack") else None
    return _with(made, trajectory_id=name, iteration=iteration, group_id=group)


def _acts(script: Script) -> int:
    """How many of its steps act on a screen; who only says that it is done acts on none."""
    return len(script.shots) - script.clock


def _any(script: Script, chance: random.Random) -> int:
    return chance.randrange(len(script.shots))


def _with(script: Script, **fields: object) -> Script:
    return replace(script, trajectory=script.trajectory.model_copy(update=fields))


def _changed(script: Script, at: int, **fields: object) -> Script:
    shots = list(script.shots)
    shots[at] = replace(shots[at], **fields)  # pyright: ignore[reportArgumentType]
    return replace(script, shots=tuple(shots))


def _inserted(script: Script, at: int, shots: Sequence[Shot]) -> Script:
    return replace(script, shots=(*script.shots[:at], *shots, *script.shots[at:]))


def _somewhere(chance: random.Random) -> str:
    return act.to_json(act.Click(x=round(chance.random(), 4), y=round(chance.random(), 4)))


def _nudged(action: str, chance: random.Random) -> str:
    found = act.from_json(action)
    if not isinstance(found, act.Click):
        return action
    x, y = (min(1.0, max(0.0, place + chance.uniform(-0.01, 0.01))) for place in (found.x, found.y))
    return act.to_json(act.Click(x=x, y=y))


def _observation(png: bytes) -> Observation:
    wide, high = Image.open(io.BytesIO(png)).size
    return Observation(png, wide, high, "")


def _step(trajectory: Trajectory, number: int, shot: Shot, after: bytes) -> Step:
    fields = {} if shot.action is None else json.loads(shot.action)
    return Step.model_construct(
        trajectory_id=trajectory.trajectory_id, step=number, iteration=trajectory.iteration,
        screenshot=digest_of(shot.png), next_screenshot=None if shot.error else digest_of(after), screen_width=160,
        screen_height=210, thought=shot.thought, action=shot.action, action_type=fields.get("type"),
        x=fields.get("x"), y=fields.get("y"), dialect="box_v1", raw_text="", action_error=shot.error, actor="explorer",
        policy_version="solver", token_ids=None, logprobs=None, elements=shot.elements, observe_ms=1.0, think_ms=1.0,
        act_ms=1.0,
    )  # fmt: skip


def noop(script: Script, number: int) -> Script:
    """A clean trajectory with one step that changed nothing; that step alone has a thought."""
    chance = random.Random(f"noop {number}")
    at = _any(script, chance)
    return _inserted(script, at, [Shot(script.shots[at].png, _somewhere(chance), "Nothing happens.")])
