"""Qwen2.5-VL and Qwen3-VL, EvoCUA and GUI-Owl 1.5: tools in the system turn, replies with a tool call.

Qwen's prompts are those of Qwen's cookbook and OSWorld's agent.

EvoCUA is built on Qwen3-VL: Qwen's calls on a grid of 0 to 999, with keys that are held and released. Source:
github.com/meituan/EvoCUA @4a0ad5f, mm_agents/evocua/{prompts,evocua_agent}.py, prompt style S2. The style S1 asks for
OpenCUA's grammar.

GUI-Owl 1.5 replies with a sentence and a tool call, as Qwen3-VL, and has prompts of its own. Source:
github.com/X-PLUG/MobileAgent @11cea57, `Mobile-Agent-v3.5/computer_use` and `mobile_use`. The user's text is before the
first screen. The client for phones writes today's date before the instruction; this project leaves the date out, since
a sample could not reproduce it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from models.families.family import QWEN25, ModelFamily
from models.families.outside import unmarked
from models.families.prompt import Message, screen_part, screen_turn, text_part, text_turn
from models.families.reading import WIDE, ParsedReply
from models.families.screen import Size
from models.families.template import filled, template
from models.families.thinking import between, readable
from models.families.tools import Tool, in_json, read_calls, write_calls, written_calls
from models.policy import Context
from schemas.action import Action, CallUser, Press, Release, UseTool
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from schemas.keyboard import pyautogui_name
from schemas.observation import Observation, PastStep

_ACTION = re.compile(r"^[ \t]*Action[:：][ \t]*", re.MULTILINE)
_LINE = re.compile(r"^[ \t]*Action:[ \t]*(\S.*)$", re.MULTILINE)
_FUNCTIONS = {
    "left_click": "click", "click": "click", "right_click": "rightClick", "middle_click": "middleClick",
    "double_click": "doubleClick", "triple_click": "tripleClick", "type": "press", "key": "press",
    "key_down": "keyDown", "key_up": "keyUp", "scroll": "scroll", "wait": "wait",
    "mouse_move": "moveTo", "left_click_drag": "dragTo",
}  # fmt: skip
"""Function of pyautogui that EvoCUA's agent calls for an action."""
TOOLS: Mapping[str, str] = {"computer": "computer_use", "mobile": "mobile_use", "grounding": "computer_use"}


class QwenFamily(ModelFamily):
    """Common base of Qwen's families; its replies have no dialect.

    Prompts show the screens of the last steps with their replies. The first turn lists the earlier steps. With
    `policy.context=fold`, prompts show all replies, and the list is empty.
    """

    templates = ("computer", "mobile", "grounding")
    several = ("computer", "mobile")
    joint = "\n"
    folds = True
    dialects = ("box_v1",)
    max_new_tokens = 512
    asks_without = False
    label: ClassVar[str] = ""
    """Text that a thought begins with."""
    spec: Tool = Tool()
    """The tools whose calls are read."""

    own_dialect = "tool_call"

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self.tool = TOOLS[self.template]
        self.spec = replace(self.spec, phone=True) if self.template == "mobile" else self.spec

    def messages(self, context: Context) -> list[Message]:
        """Builds a chat of tools, then the instruction with the first shown screen, then replies and screens."""
        folded = self.rule.folded(len(context.turns) + 1)
        before, kept = context.turns[:folded], context.turns[folded:]
        if self.rule.folds:
            before, kept = (), context.turns
        named = "\n".join(f"Step {number}: {self._listed(turn)}" for number, turn in enumerate(before, 1)) or "None"
        asked = context.instruction
        if self.template != "grounding":
            asked = (
                "\nPlease generate the next move according to the UI screenshot, instruction and previous actions.\n\n"
                f"Instruction: {context.instruction}\n\nPrevious actions:\n{named}"
            )
        chat = [text_turn("system", self._tools((context.observation.width, context.observation.height)))]
        for position, screen in enumerate([*(turn.observation for turn in kept), context.observation]):
            shown = position >= folded or not self.rule.folds
            if position == 0:
                chat.append(self._asked(asked, [screen] if shown else []))
            else:
                chat.append(screen_turn(screen, self.limits) if shown else text_turn("user", self.collapsed))
            if position < len(kept):
                chat.append(text_turn("assistant", self._written(kept[position])))
        return chat

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`, in one turn with the screens."""
        size = (screens[-1].width, screens[-1].height)
        head = [text_turn("system", self._tools(size))] if acts else []
        return [*head, self._asked(question, screens)]

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as calls of the template's tool.

        Raises:
            UsageError: the tool has no such action.
        """
        try:
            return write_calls(action, self.tool, self.sides(screen), self.spec)
        except ValueError as error:
            raise UsageError(
                f"`policy.template` is {self.template}: {error}.",
                "Take the other of computer and mobile, or another family.",
            ) from error

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the thought and the actions of the calls."""
        return read_calls(answer, self.sides(screen), self.spec)

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole reply: the thought, then the call."""
        return self._reply(thought, self.write_actions(actions, screen))

    def _listed(self, turn: PastStep) -> str:
        """Returns the text that lists a step without its screen: the thought from its first line with `Action:` on, or
        all of it, as OSWorld's agent does."""
        label = _ACTION.search(turn.thought)
        return turn.thought[label.end() :].strip() if label else turn.thought

    def _written(self, turn: PastStep) -> str:
        """Returns the reply of a past step: as it was sampled, without its thinking, or in the usual form."""
        usual = self._reply(turn.thought, turn.action_text)
        sampled = None if self.template == "grounding" else self.sampled(turn)
        if sampled is None:
            return usual
        thinking, answer = sampled
        if not thinking.strip():
            return answer
        kept = unmarked(turn.thought).strip() == unmarked(thinking).strip()  # the answer has no words of its own
        return usual if kept else answer.lstrip()

    def _before_call(self, turn: PastStep) -> str:
        """Returns the text before the call in a past reply without its thinking."""
        return self._written(turn).partition("<tool_call>")[0]

    def _reply(self, thought: str, written: str) -> str:
        if not thought or self.template == "grounding":
            return written
        forms = (lambda inner: f"{self.label}{inner}\n{written}", lambda inner: f"{between(inner)}{written}")
        return readable(thought, written, forms, lambda answer: read_calls(answer, WIDE, self.spec))

    def _asked(self, text: str, screens: Sequence[Observation]) -> Message:
        """Builds a user turn of screens and a text."""
        shown = [screen_part(screen, self.limits) for screen in screens]
        return {"role": "user", "content": [*shown, text_part(text)]}

    def _tools(self, screen: Size) -> str:
        """Returns the system turn for screens of this size."""
        columns, rows = self.sides(screen)
        tool = json.loads(template(f"qwen-{self.tool}.json"))
        sized = {"{width}": f"{columns:g}", "{height}": f"{rows:g}"}
        for place, number in sized.items():
            tool["description"] = tool["description"].replace(place, number)
        written = json.dumps({"type": "function", "function": tool}, ensure_ascii=False)
        return filled("qwen-tools.txt", tools=written) + self._format()

    def _format(self) -> str:
        """Returns the instructions on the reply's form, which follow the tools."""
        return ""


class Qwen25Family(QwenFamily):
    """Qwen2.5-VL: pixels of the picture that the model sees; the prompt states its size."""

    counts = "pixels"
    published = QWEN25


class Qwen3Family(QwenFamily):
    """Qwen3-VL, dense or with experts: thousandths of the screen."""

    label = "Action: "

    def _format(self) -> str:
        return "" if self.template == "grounding" else template("qwen-steps.txt")


class EvoCuaFamily(Qwen3Family):
    """EvoCUA-8B and 32B: 999ths of the screen, which its prompt calls a resolution of 1000x1000."""

    counts = "999ths"
    templates = ("computer",)
    max_new_tokens = 32_768
    spec = Tool(triples=True, at_pointer=True)

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as calls of its tool, which also holds and releases keys.

        Raises:
            UsageError: the tool has no such action.
        """
        if isinstance(action, Press | Release):
            name = "key_down" if isinstance(action, Press) else "key_up"
            return in_json(self.tool, {"action": name, "keys": [pyautogui_name(action.key)]})
        return super().write(action, screen)

    def _listed(self, turn: PastStep) -> str:
        """Returns the rest of the reply's first line with `Action:`, else `Performing ... action` with the first call's
        function of pyautogui, as its agent does."""
        before = self._before_call(turn)
        if label := _LINE.search(before):
            return label[1].split("Action:")[-1].strip()
        try:
            call, *_ = next(written_calls(turn.action_text, 0, self.spec))
        except (ValueError, RecursionError, StopIteration):
            return turn.thought
        if isinstance(call, UseTool):
            return turn.thought
        name = str(call.get("action"))
        keys = call.get("keys") if name == "key" else None
        function = "hotkey" if isinstance(keys, list) and len(keys) > 1 else _FUNCTIONS.get(name)
        return f"Performing {function} action" if function else turn.thought

    def _tools(self, screen: Size) -> str:
        return filled("evocua-tools.txt", tools=json.dumps(json.loads(template("evocua-computer_use.json"))))


TOOL = Tool(
    aliases={
        "right click": "right_click",
        "computer_double_click": "double_click",
        "hotkey": "key",
        "open app": "open",
        "call_user": "interact",
        "calluser": "interact",
        "stop": "terminate",
        "done": "terminate",
    },
    triples=True,
)
"""Actions, with the other names that its clients perform (`run_gui_owl_1_5_for_pc.py`, `_for_mobile.py`)."""


class GuiOwlFamily(QwenFamily):
    """GUI-Owl 1.5, Instruct and Thinking: thousandths of the screen.

    The published clients show the current screen and the screens of the last four steps (`policy.history_images=5`).
    """

    templates = ("computer", "mobile")
    several = ("computer",)
    max_new_tokens = 4096
    label = "Action: "
    spec = TOOL

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as calls of its tool; words for a person are a call of `interact`.

        Raises:
            UsageError: the tool has no such action.
        """
        if isinstance(action, CallUser) and action.content:
            return in_json(self.tool, {"action": "interact", "text": action.content})
        return super().write(action, screen)

    def _listed(self, turn: PastStep) -> str:
        """Returns the reply between its first `Action:` and its call, or a reply without the label whole, as its
        clients do. A listed call is text without tokens."""
        before = self._before_call(turn)
        return before.split("Action:")[1].strip() if "Action:" in before else self._mark(self._written(turn))

    def _asked(self, text: str, screens: Sequence[Observation]) -> Message:
        shown = [screen_part(screen, self.limits) for screen in screens]
        return {"role": "user", "content": [text_part(text.removeprefix("\n")), *shown]}

    def _tools(self, screen: Size) -> str:
        return template(f"gui-owl-1.5-{self.template}.txt")
