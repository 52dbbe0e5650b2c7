"""ScaleCUA: `<think>`, `<operation>` (the step in words), `<action>` (calls); the prompt shows past steps as
operations.

Its prompts are those of its training (planning with thoughts, navigation without, grounding); the user turn is the one
of its data sets (`curation.converters.scalecua`), with the picture on a separate line. Coordinates are pixels of the
model's picture on Qwen2.5-VL, and fractions with four decimals on InternVL. A recorded step has no operation, so
training targets use a template's sentence.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from models.families.code.arguments import written_seconds
from models.families.family import ModelFamily
from models.families.opencua import CLICKS, read_program
from models.families.outside import SELECTOR
from models.families.prompt import Message, screen_part, text_part, text_turn
from models.families.reading import MOST_LABELS, WIDE, ParsedReply, Sides, code_until
from models.families.screen import ImageLimits, Size
from models.families.template import filled, template
from models.families.thinking import between, readable
from models.policy import Context
from models.thoughts import templated_thought
from schemas.action import (
    OPPOSITE,
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    LongPress,
    OpenApp,
    Press,
    PressBack,
    PressHome,
    Release,
    RightSingle,
    Scroll,
    Type,
    Wait,
    point_of,
)
from schemas.failure import UsageError
from schemas.keyboard import pyautogui_name, pyautogui_names
from schemas.observation import Observation

SECONDS = 3
"""Seconds of a written wait that has none; its prompt's default."""
PLATFORMS = {"computer": "desktop (Windows/Linux/macOS)", "mobile": "Mobile Phone & Tablet"}
_OPENED = {name: re.compile(f"<{name}>") for name in ("operation", "action")}
_TAG = re.compile(rf"<{SELECTOR}?([^\s<>]{{1,80}})>")
_AIMED = Click | LeftDouble | RightSingle | Drag
_CLICKS = {
    "click": ("click", ""), "left_double": ("doubleClick", ""), "right_single": ("rightClick", ""),
    "middle_single": ("click", ", button='middle'"), "triple_click": ("click", ", clicks=3"), "move": ("moveTo", ""),
}  # fmt: skip
"""Function of a call and its further arguments, by type of action."""

At = Callable[[float, float], tuple[float, float]]
"""Converts fractions of the screen to the family's units, as they are written."""


class ScaleCuaFamily(ModelFamily):
    """ScaleCUA-3B, 7B and 32B on Qwen2.5-VL: pixels of the picture that it sees."""

    counts = "pixels"
    published = ImageLimits(28, 3136, 2109744)
    templates = ("computer", "mobile", "grounding")
    several = ("computer", "mobile")
    dialects = ("box_v1",)
    max_new_tokens = 1024
    shows_past = False
    own_dialect = "scalecua"

    def messages(self, context: Context) -> list[Message]:
        """Builds the prompt from the current screen, the task and the operations so far."""
        asked = f"\n{context.instruction}"
        if self.template != "grounding":
            operations = [self.sentence(turn.action_text) or _calls(turn.action_text) for turn in context.turns]
            done = "\n".join(f"Step {n}: {json.dumps(one, ensure_ascii=False)}" for n, one in enumerate(operations, 1))
            asked = (
                "\nPlease generate the next move according to the UI screenshot, task and previous operations.\n\n"
                f"Task: {context.instruction}\n\nPrevious operations:\n{done or 'None'}"
            )
        return [
            text_turn("system", self._prompt(context.thinks)),
            _screens_message([context.observation], asked, self.limits),
        ]

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`, with the screens first."""
        head = [text_turn("system", self._prompt(False))] if acts else []
        return [*head, _screens_message(screens, f"\n{question}", self.limits)]

    def write(self, action: Action, screen: Size) -> str:
        """Writes the step in words and the action as calls; for grounding, only the calls.

        Raises:
            UsageError: the template has no such action.
        """
        return self.write_actions([action], screen)

    def write_actions(self, actions: Sequence[Action], screen: Size) -> str:
        """Writes the step in words and all of its actions as calls. Raises the errors of `write` and `only`."""
        code = "\n".join(self._code(action, screen) for action in actions)
        called = f"<action>\n{code}\n</action>"
        if self.template == "grounding":
            self.only(actions)
            return called
        words = " ".join(filter(None, map(templated_thought, actions)))
        return f"<operation>\n{words or _worded(code)}\n</operation>\n{called}"

    def sentence(self, written: str) -> str:
        """Returns the operation of a written action."""
        found = _block(written, "operation", 0)
        return found.text.strip() if found else ""

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the thought and the actions of the calls."""
        return read_tagged(answer, self.sides(screen))

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole reply in the form of the template."""
        bare = self.write_actions(actions, screen)
        thinks = thought and self.thinks and self.template != "grounding"
        forms = (lambda thought: f"{between(thought)}{bare}",)
        return readable(thought, bare, forms, lambda answer: read_tagged(answer, WIDE)) if thinks else bare

    def _prompt(self, thinks: bool) -> str:
        if self.template == "grounding":
            return filled("scalecua-grounding.txt", action_space=template("scalecua-grounding-actions.txt"))
        kind = "planning" if thinks else "navigation"
        actions = template(f"scalecua-{self.template}-actions.txt")
        return filled(f"scalecua-{kind}.txt", platform=PLATFORMS[self.template], action_space=actions)

    def _code(self, action: Action, screen: Size) -> str:
        columns, rows = self.sides(screen)

        def at(x: float, y: float) -> tuple[float, float]:
            if self.counts == "fraction":
                return round(x, 4), round(y, 4)
            return round(x * columns), round(y * rows)

        made = _mobile(action, at) if self.template == "mobile" else _desktop(action, at)
        made = made or _either(action)
        if made is None or (self.template == "grounding" and not isinstance(action, _AIMED)):
            raise UsageError(
                f"`policy.template` is {self.template}: scalecua has no action there for {action.type}.",
                "Take the other of computer and mobile, or another family.",
            )
        return made


class ScaleCuaInternFamily(ScaleCuaFamily):
    """ScaleCUA on InternVL: fractions of the screen."""

    counts = "fraction"
    published = None


def read_tagged(text: str, sides: Sides) -> ParsedReply:
    """Reads the thought and the actions of a reply with tags; never raises for any text of a model.

    Args:
        text: the reply.
        sides: width and height of the screen, in units of the coordinates.
    """
    operation = _block(text, "operation", 0)
    blocks = _blocks(text, operation.end if operation else 0)
    if operation and not blocks:
        operation, blocks = None, _blocks(text, 0)
    if not blocks:
        return ParsedReply(text.strip(), "", error=f"no <action> in {text[-80:]!r}")
    begin = operation.start if operation else blocks[0].start
    found = read_program("\n".join(block.text for block in blocks), sides)
    shown = text[begin : blocks[-1].end].strip()
    ends = [*(following.start for following in blocks[1:]), len(text)]
    after = "\n".join(text[block.end : end] for block, end in zip(blocks, ends, strict=True))
    return replace(found, thought=text[:begin], text=shown, tagged=True, after=after)


def _worded(code: str) -> str:
    """Writes code as text in which nothing is a tag."""
    return _TAG.sub(r"(\1)", code)


@dataclass(frozen=True, slots=True)
class _Block:
    """Text between two tags, and the tags' begin and end."""

    text: str
    start: int
    end: int


def _block(text: str, name: str, start: int) -> _Block | None:
    """Finds the first block of this name; a tag within a string of the code is text."""
    opened = _OPENED[name].search(text, start)
    if opened is None:
        return None
    end, closed = code_until(text, opened.end(), f"</{name}>")
    return _Block(text[opened.end() : end], opened.start(), closed)


def _blocks(text: str, start: int) -> list[_Block]:
    found = list[_Block]()
    while len(found) < MOST_LABELS and (block := _block(text, "action", found[-1].end if found else start)):
        found.append(block)
    return found


def _calls(written: str) -> str:
    """Returns the calls within a written action."""
    found = _block(written, "action", 0)
    return found.text.strip() if found else written


def _screens_message(screens: Sequence[Observation], text: str, limits: ImageLimits | None) -> Message:
    return {"role": "user", "content": [*(screen_part(one, limits) for one in screens), text_part(text)]}


def _desktop(action: Action, at: At) -> str | None:
    if action.type in _CLICKS:
        name, more = _CLICKS[action.type]
        point = point_of(action)
        return f"{name}(x={{}}, y={{}}{more})".format(*at(*point)) if point else f"{name}({more.removeprefix(', ')})"
    if isinstance(action, Drag):
        (x, y), (to_x, to_y) = at(action.x, action.y), at(action.to_x, action.to_y)
        return f"moveTo(x={x}, y={y})\ndragTo(x={to_x}, y={to_y}, button='left')"
    if isinstance(action, Scroll) and action.direction in ("up", "down"):
        place = "" if (point := point_of(action)) is None else ", x={}, y={}".format(*at(*point))
        return f"scroll(clicks={CLICKS if action.direction == 'up' else -CLICKS}{place})"
    if isinstance(action, Hotkey):
        keys = pyautogui_names(action.key)
        return f"hotkey({', '.join(map(repr, keys))})" if len(keys) > 1 else f"press(keys={keys[0]!r})"
    if isinstance(action, Press | Release):
        return f"key{'Down' if isinstance(action, Press) else 'Up'}(key={pyautogui_name(action.key)!r})"
    return None


def _mobile(action: Action, at: At) -> str | None:
    if isinstance(action, Click | LongPress):
        x, y = at(action.x, action.y)
        seconds = action.seconds if isinstance(action, LongPress) else None
        held = "" if seconds is None else f", duration={written_seconds(seconds, 0)}"
        return f"{action.type}(x={x}, y={y}{held})"
    if isinstance(action, Drag):
        start, end = at(action.x, action.y), at(action.to_x, action.to_y)
        return f"swipe(from_coord={list(start)}, to_coord={list(end)})"
    if isinstance(action, Scroll):  # the finger goes the other way
        start = "" if (point := point_of(action)) is None else f"from_coord={list(at(*point))}, "
        return f"swipe({start}direction={OPPOSITE[action.direction]!r})"
    if isinstance(action, OpenApp):
        return f"open_app(app_name={action.app_name!r})"
    if isinstance(action, PressHome | PressBack):
        return f"navigate_{action.type.removeprefix('press_')}()"
    return None


def _either(action: Action) -> str | None:
    """Writes the actions that both platforms have."""
    if isinstance(action, Type):
        return f"write(message={action.content!r})"
    if isinstance(action, Wait):
        return f"wait(seconds={written_seconds(action.seconds, SECONDS)})"
    if isinstance(action, CallUser):
        return f"terminate(status='failure', info={action.content!r})" if action.content else "call_user()"
    if isinstance(action, Finished):
        return f"terminate(status='success'{f', info={action.content!r}' if action.content else ''})"
    return None
