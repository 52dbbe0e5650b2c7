"""OpenCUA: `## Thought`, `## Action` and `## Code` with PyAutoGUI calls.

Coordinates are pixels on Qwen2.5-VL and fractions on Qwen2-VL.

The prompts are OpenCUA's levels L2 (with thoughts) and L1 (without). The sentence under `## Action` describes the code
and is part of the action's text. As in OpenCUA's agent, the history shows only the sentences of past steps. A typed
action has no sentence, so demonstrations use the sentence of a template.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from models.families.code.arguments import written_seconds
from models.families.code.program import play
from models.families.family import QWEN25, ModelFamily
from models.families.prompt import Message, screen_part, screen_turn, text_part, text_turn
from models.families.reading import MOST_LABELS, WIDE, ParsedReply, Sides, code_until, is_python, without_opening
from models.families.screen import Size
from models.families.template import template
from models.families.thinking import between, readable
from models.policy import Context
from models.thoughts import templated_thought
from schemas.action import Action, CallUser, Drag, Finished, MouseDown, MouseUp, Press, Release, Wait, point_of
from schemas.failure import UsageError
from schemas.keyboard import pyautogui_name, pyautogui_names
from schemas.observation import Observation

CLICKS = 5
"""Notches of each written scroll."""
_SECTION = re.compile(r"^[ \t]*+#{0,3}[ \t]*+(Observation|Thought|Action|Code)[ \t]*+(?:[:：]|$)", re.MULTILINE)
FENCE = "```"
_FENCE = re.compile(r"```[ \t]*(?:python|py|code)?\b", re.IGNORECASE)
_FIRST = re.compile(r"^[ \t]*(?:(?:pyautogui|computer)\.\w+\(|(?:WAIT|DONE|FAIL)[ \t]*$)", re.MULTILINE)
_STEP = re.compile(r"^[ \t]*+(?:#{1,3}|\*\*)[ \t]*+Step[ \t]++\d++[:：*\s]*?$", re.MULTILINE | re.IGNORECASE)
"""Heading of a step, as in the prompt's history; models also write it."""
_NAMES = {
    "click": "pyautogui.click", "left_double": "pyautogui.doubleClick", "right_single": "pyautogui.rightClick",
    "middle_single": "pyautogui.middleClick", "triple_click": "computer.triple_click", "move": "pyautogui.moveTo",
}  # fmt: skip


class OpenCuaFamily(ModelFamily):
    """OpenCUA-7B, 32B and 72B: pixels of the picture that it sees."""

    counts = "pixels"
    published = QWEN25
    dialects = ("box_v1",)
    templates = ("computer",)
    several = ("computer",)
    folds = False  # the task is in the last turn
    max_new_tokens = 2048
    own_dialect = "pyautogui"

    def messages(self, context: Context) -> list[Message]:
        """Builds its prompt: sentences of past steps, the last of them with screens, then the current screen and the
        task."""
        chat = [text_turn("system", template("opencua-l2.txt" if context.thinks else "opencua-l1.txt"))]
        shown = self.rule.folded(len(context.turns) + 1)
        for position, turn in enumerate(context.turns):
            if position >= shown:
                chat.append(screen_turn(turn.observation, self.limits))
            text = self.sentence(turn.action_text) or turn.action_text
            chat.append(text_turn("assistant", f"# Step {position + 1}:\n## Action:\n{text}\n"))
        asked = (
            f"\n# Task Instruction:\n{context.instruction}\n\n"
            "Please generate the next move according to the screenshot, task instruction and previous steps "
            "(if provided).\n"
        )
        return [*chat, {"role": "user", "content": [screen_part(context.observation, self.limits), text_part(asked)]}]

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`, with the screens first."""
        head = [text_turn("system", template("opencua-l1.txt"))] if acts else []
        shown = [*(screen_part(screen, self.limits) for screen in screens), text_part(question)]
        return [*head, {"role": "user", "content": shown}]

    def write(self, action: Action, screen: Size) -> str:
        """Writes the step in words and the action as code.

        Raises:
            UsageError: PyAutoGUI has no such action.
        """
        return self.write_actions([action], screen)

    def write_actions(self, actions: Sequence[Action], screen: Size) -> str:
        """Writes the step in words and all of its actions as code. Raises the errors of `write`."""
        lines = [line for action in actions for line in _code(action, self.sides(screen), self.counts == "fraction")]
        words, code = " ".join(filter(None, map(templated_thought, actions))), "\n".join(lines)
        return f"## Action:\n{words}\n\n## Code:\n```python\n{code}\n```"

    def sentence(self, written: str) -> str:
        """Returns the text under `## Action` before the code."""
        parts = _SECTION.split(written, maxsplit=2)
        if parts[1:2] != ["Action"]:
            return ""
        code = _FENCE.search(parts[2]) or _FIRST.search(parts[2])
        return parts[2][: code.start() if code else None].strip()

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the thought and the actions of the code."""
        return read_code(answer, self.sides(screen))

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole reply of the configured level."""
        bare = self.write_actions(actions, screen)
        forms = (lambda thought: f"## Thought:\n{thought}\n\n{bare}", lambda thought: f"{between(thought)}{bare}")
        return readable(thought if self.thinks else "", bare, forms, lambda answer: read_code(answer, WIDE))


class OpenCuaQwen2Family(OpenCuaFamily):
    """OpenCUA-Qwen2-7B: fractions of the screen."""

    counts = "fraction"


def read_code(text: str, sides: Sides) -> ParsedReply:
    """Reads the thought and the actions of a reply with PyAutoGUI calls; never raises for any text of a model.

    The action's text begins with its sentence, if any.
    """
    headings = _headings(text)
    begin, code, end = _code_in(text, headings)
    sentences = [one for one in headings if one[1] == "Action" and one.start() < begin]
    start = sentences[-1].start() if sentences else begin
    found = read_program(code, sides)
    return replace(found, thought=_thought(text[:start]), text=text[start:end].strip(), after=text[end:])


def read_program(code: str, sides: Sides) -> ParsedReply:
    """Reads the actions of a program until a call matches no action; if the first call matches none, gives the reason.

    Args:
        code: calls.
        sides: width and height of the screen, in units of the coordinates.
    """
    played = play(code, lambda x, y: (x / sides[0], y / sides[1]))
    error = None if played.actions else played.problem
    closed = is_python(code)
    return ParsedReply("", code.strip(), played.actions, error, played.parts, played.unused, closed=closed)


def _code_in(text: str, headings: Sequence[re.Match[str]]) -> tuple[int, str, int]:
    """Finds where a reply's code begins (with its heading or fence), the code, and where it ends.

    The code is in the last fence after the last heading, or begins after that heading with the first line that starts
    with a call.
    """
    heading = headings[-1] if headings else None
    begin = heading.end() if heading else 0
    own = heading.start() if heading and heading[1] == "Code" else None
    if fences := _fences(text, begin):
        start, code, end = fences[-1]
        return start if own is None else own, code, end
    if first := _FIRST.search(text, begin):
        return (first.start(), text[first.start() :], len(text)) if own is None else (own, text[begin:], len(text))
    return (len(text), "", len(text)) if own is None else (own, text[begin:], len(text))


def _headings(text: str) -> list[re.Match[str]]:
    """Lists the headings of a reply; a heading within a string or a comment of the code is not one."""
    found = _SECTION.finditer(text)
    headings = [*islice(found, MOST_LABELS // 2), *deque(found, maxlen=MOST_LABELS // 2)]
    kept, inside = list[re.Match[str]](), -1
    for heading in headings:
        if heading.start() < inside:
            continue
        kept.append(heading)
        if heading[1] == "Code" and (fence := _FENCE.search(text, heading.end())):
            end, closed = code_until(text, fence.end(), FENCE)
            if not text[heading.end() : fence.start()].strip() and is_python(text[fence.end() : end]):
                inside = closed
    return kept


def _fences(text: str, begin: int) -> list[tuple[int, str, int]]:
    """Lists the non-empty blocks of code among the first 16, each with its start and end."""
    found, at = list[tuple[int, str, int]](), begin
    while len(found) < MOST_LABELS and (fence := _FENCE.search(text, at)):
        end, at = code_until(text, fence.end(), FENCE)
        if text[fence.end() : end].strip():
            found.append((fence.start(), text[fence.end() : end], at))
    return found


def _thought(text: str) -> str:
    """Returns the text before the sentence, without labels: the words before the first label, the observation and the
    thought."""
    parts = _SECTION.split(without_opening(text))
    named = dict(zip(parts[1::2], parts[2::2], strict=False))
    thought = (_STEP.sub("", parts[0]), named.get("Observation"), named.get("Thought"))
    return "\n\n".join(one.strip() for one in thought if one and one.strip())


def _code(action: Action, sides: Sides, fraction: bool) -> list[str]:
    def at(x: float, y: float) -> str:
        across, down = (x * sides[0], y * sides[1]) if fraction else (round(x * sides[0]), round(y * sides[1]))
        return f"x={across:.4g}, y={down:.4g}" if fraction else f"x={across}, y={down}"

    point = point_of(action)
    if action.type in _NAMES:
        return [f"{_NAMES[action.type]}({at(*point) if point else ''})"]
    if isinstance(action, MouseDown | MouseUp):
        place = f"{at(*point)}, " if point else ""
        return [f"pyautogui.mouse{'Down' if action.type == 'mouse_down' else 'Up'}({place}button={action.button!r})"]
    if isinstance(action, Drag):
        end = at(action.to_x, action.to_y)
        return [f"pyautogui.moveTo({at(action.x, action.y)})", f"pyautogui.dragTo({end}, button='left')"]
    if action.type == "scroll":
        amount = CLICKS if action.direction in ("up", "right") else -CLICKS
        name = "scroll" if action.direction in ("up", "down") else "hscroll"
        return [*([f"pyautogui.moveTo({at(*point)})"] if point else []), f"pyautogui.{name}({amount})"]
    if action.type == "type":
        return [f"pyautogui.write(message={action.content!r})"]
    if action.type == "hotkey":
        keys = pyautogui_names(action.key)
        return [f"pyautogui.hotkey({keys!r})" if len(keys) > 1 else f"pyautogui.press({keys[0]!r})"]
    if isinstance(action, Press | Release):
        return [f"pyautogui.key{'Down' if action.type == 'press' else 'Up'}({pyautogui_name(action.key)!r})"]
    if isinstance(action, Wait):
        return [
            "computer.wait()" if action.seconds is None else f"pyautogui.sleep({written_seconds(action.seconds, 0)})"
        ]
    if isinstance(action, Finished | CallUser):  # AgentNet's records have `answer`; the prompt does not
        status = "success" if isinstance(action, Finished) else "failure"
        return [f"computer.terminate(status={status!r}{f', answer={action.content!r}' if action.content else ''})"]
    raise UsageError(f"PyAutoGUI has no {action.type}, so opencua cannot write it.", "Take another `policy.family`.")
