"""UI-Venus-2: a prompt in the system turn for each of desktop, browser and phone, replies with a call in `<action>`.

The prompts are those of its published harnesses, without the browser's line on the date, since a sample could not
reproduce it. A desktop counts to 999, and a browser, a phone and grounding count to 1,000. The template `grounding`
asks for `[x,y]`, or for `[-1,-1]` if there is no such element, which is a call for a person here.

Source: github.com/inclusionAI/UI-Venus @81945ac, models/computer/computer_example.py (`build_messages`),
models/browser/venus_browser.py (`run`), models/mobile/mobile_example.py (`build_messages`),
models/grounding/ui_venus2_gd.py (`extract_coordinates_qwen35`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from models.families.code.arguments import written_seconds
from models.families.dialects import THOUSANDTHS
from models.families.family import ModelFamily
from models.families.prompt import Message, screen_part, text_part, text_turn
from models.families.reading import ParsedReply
from models.families.screen import Size
from models.families.template import filled
from models.families.thinking import OPEN, readable
from models.families.venus_calls import GRID, read_venus
from models.policy import Context
from schemas.action import (
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    LongPress,
    MiddleSingle,
    MouseDown,
    MouseUp,
    Move,
    Navigate,
    NavigateBack,
    Note,
    OpenApp,
    Press,
    PressBack,
    PressEnter,
    PressHome,
    PressRecent,
    Release,
    RightSingle,
    Scroll,
    TripleClick,
    Type,
    Wait,
    point_of,
    type_and_place,
)
from schemas.failure import UsageError
from schemas.keyboard import pyautogui_name, pyautogui_names
from schemas.observation import Observation, PastStep

AMOUNT = 5
"""Amount of each written scroll of a desktop."""
SECONDS = 1
"""Seconds of a browser's written long press that has none; without a duration its harness holds for 20 s."""
PASSWORD = "password"
"""The desktop's password in the prompt: the default of the published harness."""
BROWSER_TURNS = 2
"""Past turns of a browser's prompt; older turns are not part of it."""
NOWHERE = "[-1,-1]"
"""Reply that there is no such element."""
_FAILED = (
    "Previous action execution failed.\nAction: {reply}\nError: {error}\n"
    "The screenshot and failed action were preserved. Inspect the current page and retry or choose another action."
)
"""Text of a browser's prompt after an action that was not performed."""
_NOTES = "Notes from earlier steps:\n- "
_LABELS = {
    "computer": ("History Screenshot:\n", "Current Screenshot:\n"),
    "browser": ("", ""),
    "mobile": ("History Screenshot:", "Current Screenshot:\n"),
    "grounding": ("", ""),
}
"""Text before a past screen and before the current screen, by template."""
_CLICKS = {
    "click": "Click", "left_double": "DoubleClick", "triple_click": "TripleClick", "right_single": "RightClick",
    "middle_single": "MiddleClick", "long_press": "LongPress", "move": "Hover",
}  # fmt: skip
_NUMBER = r"-?\d{1,9}(?:\.\d{1,9})?"
_PAIR = rf"[\[(]\s{{0,9}}({_NUMBER})\s{{0,9}},\s{{0,9}}({_NUMBER})"
_PLACE = re.compile(
    rf"{_PAIR}(?:\s{{0,9}},\s{{0,9}}({_NUMBER})\s{{0,9}},\s{{0,9}}({_NUMBER}))?\s{{0,9}}[\])]"
    rf"(?:\s{{0,9}},\s{{0,9}}{_PAIR}\s{{0,9}}[\])])?"
)
"""A point, a box in one pair of brackets, or a box in two."""

Units = Callable[[float, float], tuple[int, int]]
"""Converts fractions of the screen to the family's units."""


class UiVenus2Family(ModelFamily):
    """UI-Venus-2 on Qwen3.5: 999ths of the screen on a desktop, thousandths elsewhere."""

    templates = ("computer", "browser", "mobile", "grounding")
    several = ()
    dialects = ("box_v1",)
    max_new_tokens = 4096
    template_tokens: ClassVar[Mapping[str, int]] = {"mobile": 16_384, "grounding": 1024}
    asks_without = False
    folds = False  # the text before the current screen is another one before a past screen
    own_dialect = "ui-venus"

    def sides(self, screen: Size) -> tuple[float, float]:
        """Returns a screen's width and height in units of its coordinates: 999 on a desktop, else 1,000."""
        return GRID.get(self.template, THOUSANDTHS)

    def messages(self, context: Context) -> list[Message]:
        """Builds a chat of the prompt with the task, then screens and replies; a past screen may be left out."""
        turns, images = context.turns, self.rule.shown(len(context.turns) + 1) - 1
        if self.template == "grounding":
            return self._pointing(context, turns[max(0, len(turns) - images) :])
        if self.template == "browser":
            return self._browsing(context, images)
        chat = [text_turn("system", self._prompt(context.instruction))]
        for position, turn in enumerate(turns):
            shown = position >= len(turns) - images
            chat.append(self._screen(turn.observation, False) if shown else text_turn("user", ""))
            chat.append(text_turn("assistant", self._past(turn)))
        return [*chat, self._screen(context.observation, True)]

    def _browsing(self, context: Context, images: int) -> list[Message]:
        """Builds a browser's chat: the last turns, each with what was reported on the turn before it."""
        chat = [text_turn("system", self._prompt(context.instruction))]
        turns = context.turns
        first, shown = max(0, len(turns) - max(images, BROWSER_TURNS)), len(turns) - images
        for position, screen in enumerate([*(turn.observation for turn in turns), context.observation]):
            if position < first:
                continue
            reported = [text_part(text) for text in self._reported(turns[:position])]
            picture = [screen_part(screen, self.limits)] if position >= shown else []
            chat.append({"role": "user", "content": [*reported, *picture] or [text_part("")]})
            if position < len(turns):
                chat.append(text_turn("assistant", self._past(turns[position])))
        return chat

    def _reported(self, turns: Sequence[PastStep]) -> list[str]:
        """Lists the texts before a screen: why the last action was not performed, then all notes."""
        failed = (
            [_FAILED.format(reply=self._past(turns[-1]), error=turns[-1].error)] if turns and turns[-1].error else []
        )
        texts = (turn.action_text for turn in turns if "note" in turn.action_text.lower())
        read = (one for text in texts for one in read_venus(text, self.template).actions)
        notes = [one.content.strip() for one in read if isinstance(one, Note)]
        return [*failed, *([_NOTES + "\n- ".join(filter(None, notes))] if any(notes) else [])]

    def _past(self, turn: PastStep) -> str:
        return self._thinking("<think>{}</think>\n", turn.thought, turn.action_text)

    def _pointing(self, context: Context, turns: Sequence[PastStep]) -> list[Message]:
        """Builds a chat of the first shown screen with the element to find, then replies and screens."""
        asked = filled("ui-venus-2-grounding.txt", instruction=context.instruction.removesuffix("."))
        first, *others = [*(turn.observation for turn in turns), context.observation]
        chat = self.question(asked, [first])
        for turn, screen in zip(turns, others, strict=True):
            chat += [text_turn("assistant", turn.action_text), self._screen(screen, True)]
        return chat

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`; an action's question is the task of the system turn."""
        if acts and self.template != "grounding":
            return [text_turn("system", self._prompt(question)), *(self._screen(one, True) for one in screens)]
        shown = [*(screen_part(one, self.limits) for one in screens), text_part(question)]
        return [{"role": "user", "content": shown}]

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as a call in `<action>`; for grounding, as a point.

        Raises:
            UsageError: the template has no such action.
        """
        writers = {"computer": _computer, "browser": _browser, "mobile": _mobile, "grounding": _point}
        written = writers[self.template](action, self._units)
        if written is None:
            raise UsageError(
                f"`policy.template` is {self.template}: ui-venus-2 has no action there for {type_and_place(action)}.",
                "Take another template, or another `policy.family`.",
            )
        return written if self.template == "grounding" else f"<action>{written}</action>"

    def write_actions(self, actions: Sequence[Action], screen: Size) -> str:
        """Writes the actions of one reply: of a desktop as a `Sequence`. Raises the errors of `write` and `only`."""
        if len(actions) == 1 or self.template != "computer":
            return self.write(self.only(actions), screen)
        calls = [self.write(action, screen).removeprefix("<action>").removesuffix("</action>") for action in actions]
        inner = [
            call[len(_SEQUENCE[0]) : -len(_SEQUENCE[1])] if call.startswith(_SEQUENCE[0]) else call for call in calls
        ]
        return f"<action>{_SEQUENCE[0]}{', '.join(inner)}{_SEQUENCE[1]}</action>"

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the thought and the actions of a reply of the template."""
        return read_point(answer) if self.template == "grounding" else read_venus(answer, self.template)

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole reply: the thought, its end tag, then the call.

        The chat template writes the begin tag, as the end of the prompt.
        """
        written = self.write_actions(actions, screen)
        return written if self.template == "grounding" else self._thinking("{}\n</think>\n\n", thought, written)

    def _thinking(self, form: str, thought: str, written: str) -> str:
        before, after = form.split("{}")
        forms = (
            lambda inner: f"{before}{inner}{after}{written}",
            lambda inner: f"{before or OPEN}{inner}{after}{written}",  # a thought that begins with an opening tag
        )
        return readable(thought, written, forms, lambda answer: read_venus(answer, self.template))

    def _prompt(self, instruction: str) -> str:
        return filled(f"ui-venus-2-{self.template}.txt", instruction=instruction, password=PASSWORD)

    def _screen(self, screen: Observation, current: bool) -> Message:
        label = _LABELS[self.template][current]
        parts = [*([text_part(label)] if label else []), screen_part(screen, self.limits)]
        return {"role": "user", "content": parts}

    def _units(self, x: float, y: float) -> tuple[int, int]:
        """Rounds a place to whole units, at most 999."""
        columns, rows = self.sides((1, 1))
        return min(999, round(x * columns)), min(999, round(y * rows))


_SEQUENCE = ("Sequence(actions=[", "])")
"""Text around the calls of a `Sequence`."""


def read_point(text: str) -> ParsedReply:
    """Reads the click of a reply with a point, or with a box whose centre it is, in thousandths of the screen.

    `[-1,-1]` means that the screen has no such element, and is a call for a person.
    """
    found = _PLACE.search(text)
    if found is None:
        return ParsedReply("", text.strip(), error=f"no place in {text[:80]!r}")
    numbers = [float(number) for number in found.groups() if number is not None]
    x, y = (sum(numbers[axis::2]) / len(numbers[axis::2]) / THOUSANDTHS[axis] for axis in (0, 1))
    words, after = text[: found.start()].strip(), text[found.end() :]
    if numbers[:2] == [-1, -1]:
        return ParsedReply(words, found[0], (CallUser(),), after=after)
    if len(numbers) > 4 or not (0 <= x <= 1 and 0 <= y <= 1):
        return ParsedReply(words, found[0], error=f"no place of the screen: {found[0][:80]!r}")
    return ParsedReply(words, found[0], (Click(x=x, y=y),), after=after)


def _point(action: Action, at: Units) -> str | None:
    if isinstance(action, Click):
        return f"[{round(action.x * 1000)},{round(action.y * 1000)}]"
    return NOWHERE if action == CallUser() else None


def _computer(action: Action, at: Units) -> str | None:
    if isinstance(action, Click | LeftDouble | TripleClick | RightSingle | MiddleSingle | Move):
        point = point_of(action)
        return f"{_CLICKS[action.type]}({f'box={at(*point)}' if point else ''})"
    if isinstance(action, MouseDown | MouseUp) and action.button == "left":
        name, point = "MouseDown" if isinstance(action, MouseDown) else "MouseUp", point_of(action)
        return f"{name}(box={at(*point)})" if point else f"{name}()"
    if isinstance(action, Drag):
        return f"Drag(end={at(action.to_x, action.to_y)}, start={at(action.x, action.y)})"
    if isinstance(action, Scroll):
        amount = AMOUNT if action.direction in ("up", "right") else -AMOUNT
        axis = "vertical" if action.direction in ("up", "down") else "horizontal"
        swipe, point = f"Swipe(amount={amount}, axis={axis!r})", point_of(action)
        return f"Sequence(actions=[Hover(box={at(*point)}), {swipe}])" if point else swipe
    if isinstance(action, Hotkey):
        return f"Hotkey(keys={pyautogui_names(action.key)!r})"
    if isinstance(action, Press | Release):
        return f"{'KeyDown' if isinstance(action, Press) else 'KeyUp'}(keys={[pyautogui_name(action.key)]!r})"
    return _any(action)


def _browser(action: Action, at: Units) -> str | None:
    if isinstance(action, LongPress):
        return f"LongPress(point={at(action.x, action.y)}, duration={written_seconds(action.seconds, SECONDS)})"
    if isinstance(action, Click | LeftDouble | Move) and (place := point_of(action)):
        return f"{_CLICKS[action.type]}(point={at(*place)})"
    if isinstance(action, Drag):
        return f"Drag(start={at(action.x, action.y)}, end={at(action.to_x, action.to_y)})"
    if isinstance(action, Scroll):
        point = point_of(action)
        return f"Scroll({f'point={at(*point)}, ' if point else ''}direction={action.direction!r})"
    if isinstance(action, Hotkey):
        keys = pyautogui_names(action.key)
        return {"enter": "PressEnter()", "home": "PressHome()"}.get(action.key) or f"Hotkey(keys={tuple(keys)!r})"
    if isinstance(action, Navigate):
        return f"Launch(url={action.content!r})"
    if isinstance(action, Note):
        return f"TakeNote(content={action.content!r})"
    return "PressBack()" if isinstance(action, NavigateBack) else _any(action)


def _mobile(action: Action, at: Units) -> str | None:
    if isinstance(action, Click | LeftDouble | LongPress) and (place := point_of(action)):
        return f"{_CLICKS[action.type]}(point={at(*place)})"
    if isinstance(action, Drag):
        return f"Swipe(start={at(action.x, action.y)}, end={at(action.to_x, action.to_y)})"
    if isinstance(action, OpenApp):
        return f"LaunchApp(app={action.app_name!r})"
    if isinstance(action, PressBack | PressHome | PressEnter | PressRecent):
        return f"Press{action.type.removeprefix('press_').capitalize()}()"
    return _any(action)


def _any(action: Action) -> str | None:
    """Writes the actions that all harnesses have."""
    names = {"type": "Type", "finished": "Finished", "call_user": "CallUser"}
    if isinstance(action, Type | Finished | CallUser):
        return f"{names[action.type]}(content={action.content!r})"
    return "Wait()" if isinstance(action, Wait) else None
