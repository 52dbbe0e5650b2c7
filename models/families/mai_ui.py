"""MAI-UI on Qwen3-VL: a thought between `<thinking>` tags, then a call of `mobile_use`; or a place between `<answer>`
tags.

Coordinates count from 0 to 999. A swipe goes in the direction of the finger.

Source: github.com/Tongyi-MAI/MAI-UI @4dd07b9, src/{prompt,mai_naivigation_agent,mai_grounding_agent}.py.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import ValidationError

from models.families.code.arguments import Arguments, meant
from models.families.family import ModelFamily
from models.families.prompt import Message, screen_part, text_part, text_turn
from models.families.reading import WIDE, ParsedReply, Sides, place_in, without_opening
from models.families.screen import Size
from models.families.template import filled, template
from models.families.thinking import readable
from models.families.tools import Tool, in_json, read_calls, units, where
from models.policy import Context
from schemas.action import (
    OPPOSITE,
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    LeftDouble,
    LongPress,
    OpenApp,
    PressBack,
    PressEnter,
    PressHome,
    PressMenu,
    Scroll,
    Type,
    UseTool,
    Wait,
    action_of,
    type_and_place,
)
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from schemas.observation import Observation
from schemas.problem import named_problem

_DECODER = json.JSONDecoder(strict=False)
TOOL = Tool(refused=frozenset(("triple_click",)))
_OPEN, _CLOSE = "<answer>", "</answer>"


class MaiUiFamily(ModelFamily):
    """MAI-UI-2B, 8B, 32B and 235B: 999ths of the screen."""

    counts = "999ths"
    templates = ("mobile", "grounding")
    tooled = ("mobile",)
    functions_of_its_own = TOOL.names
    folds = True
    dialects = ("box_v1",)
    max_new_tokens = 2048
    own_dialect = "tool_call"

    def __init__(self, config: PolicyConfig) -> None:
        self.shows_past = config.template != "grounding"
        self.asks_without = self.shows_past and not config.tools
        super().__init__(config)
        self.spec = replace(TOOL, open=bool(config.tools))

    def messages(self, context: Context) -> list[Message]:
        """Builds a chat of the task and all past replies, the last of them with their screens, then the current screen.

        The prompt for grounding has no history.
        """
        if self.template == "grounding":
            return self.question(context.instruction, [context.observation], acts=True)
        chat = [text_turn("system", self._prompt(context.thinks)), text_turn("user", context.instruction)]
        replies = self.steps(context, lambda turn: self._reply(turn.thought, turn.action_text), self.refused_tool)
        return [*chat, *replies]

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`, in one turn."""
        head = [text_turn("system", self._prompt(self.thinks))] if acts else []
        shown = [text_part(f"{question}\n"), *(screen_part(screen, self.limits) for screen in screens)]
        return [*head, {"role": "user", "content": shown}]

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as a call, or a click as a place where the template is grounding.

        Raises:
            UsageError: the template has no such action.
        """
        sides = self.sides(screen)
        if self.template == "grounding" and isinstance(action, Click):
            return f"{_OPEN}\n{_compact({'coordinate': units(action.x, action.y, sides)})}\n{_CLOSE}"
        if isinstance(action, UseTool) and self.tools and action.name not in TOOL.names:
            return in_json(action.name, action.arguments, (",", ":"))
        call = None if self.template == "grounding" else self._call(action, sides)
        if call is None:
            raise UsageError(
                f"`policy.template` is {self.template}: mai-ui has no action there for {type_and_place(action)}.",
                "Take another template or another `policy.family`.",
            )
        return in_json("mobile_use", call, (",", ":"))

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the thought and the actions of the calls, or the place."""
        return self._read(answer, self.sides(screen))

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole reply: the thought between tags, then the call or the place."""
        return self._reply(thought if self.thinks else "", self.write_actions(actions, screen))

    def _reply(self, thought: str, bare: str) -> str:
        tag = "grounding_think" if self.template == "grounding" else "thinking"
        forms = (lambda inner: f"<{tag}>\n{inner}\n</{tag}>\n{bare}",)
        return readable(thought, bare, forms, lambda answer: self._read(answer, WIDE))

    def _read(self, answer: str, sides: Sides) -> ParsedReply:
        found = read_point(answer, sides) if self.template == "grounding" else read_calls(answer, sides, self.spec)
        return replace(found, tagged=True)

    def _call(self, action: Action, sides: Sides) -> dict[str, Any] | None:
        """Builds the arguments of the call for an action; None if the prompt has no such action."""
        if self.tools and isinstance(action, LeftDouble) and (at := where(action, sides)):
            return {"action": "double_click", **at}
        if self.tools and isinstance(action, CallUser) and action.content:
            return {"action": "ask_user", "text": action.content}
        return _call(action, sides)

    def _prompt(self, thinks: bool) -> str:
        if self.tools:
            listed = [json.dumps(tool.model_dump(), ensure_ascii=False) for tool in self.tools]
            return filled("mai-ui-mobile-tools.txt", tools="\n".join(listed))
        return template(f"mai-ui-{self.template}{'' if thinks else '-plain'}.txt")


def read_point(text: str, sides: Sides) -> ParsedReply:
    """Reads the place of an answer as a click; never raises for any text of a model.

    Args:
        text: JSON with a `coordinate`, between `<answer>` tags or without them.
        sides: width and height of the screen, in units of the coordinates.
    """
    tag = text.find(_OPEN)
    begin = text.find("{", max(tag, 0))
    start = tag if tag >= 0 else begin if begin >= 0 else len(text)
    thought, shown = without_opening(text[:start]).strip(), text[start:].strip()
    try:
        found, end = _DECODER.raw_decode(text, begin) if begin >= 0 else (None, 0)
        given = Arguments(cast(dict[str, Any], found) if isinstance(found, dict) else {})
        if (name := given.take("action")) not in (None, "click"):
            raise ValueError(f"there is no action for {str(name)[:40]!r}")
        if (place := given.take("coordinate")) is None:
            raise ValueError("no place")
        x, y = place_in(place, sides)
        actions = meant(action_of({"type": "click", "x": x, "y": y}), given)
        close = text.find(_CLOSE, end)
        end = close + len(_CLOSE) if close >= 0 and not text[end:close].strip() else end
        return ParsedReply(thought, text[start:end], (*actions,), unused=given.unused, after=text[end:])
    except ValidationError as error:
        problem = named_problem(error)
    except (ValueError, RecursionError) as error:
        problem = str(error)[:120]
    return ParsedReply(thought, shown, error=f"{problem} in {(shown or text)[:80]!r}")


def _call(action: Action, sides: Sides) -> dict[str, Any] | None:
    """Builds the arguments of the call for an action; None if the prompt has no such action."""
    if isinstance(action, Click | LongPress):
        return {"action": action.type, "coordinate": units(action.x, action.y, sides)}
    if isinstance(action, Scroll):  # the finger goes the other way
        return {"action": "swipe", "direction": OPPOSITE[action.direction], **where(action, sides)}
    if isinstance(action, Drag):
        start, end = units(action.x, action.y, sides), units(action.to_x, action.to_y, sides)
        return {"action": "drag", "start_coordinate": start, "end_coordinate": end}
    if isinstance(action, Type):
        return {"action": "type", "text": action.content}
    if isinstance(action, OpenApp):
        return {"action": "open", "text": action.app_name}
    if isinstance(action, PressBack | PressHome | PressEnter | PressMenu):
        return {"action": "system_button", "button": action.type.removeprefix("press_")}
    if isinstance(action, Finished) and action.content:
        return {"action": "answer", "text": action.content}
    if isinstance(action, Finished | CallUser) and not action.content:
        return {"action": "terminate", "status": "success" if isinstance(action, Finished) else "fail"}
    return {"action": "wait"} if isinstance(action, Wait) else None


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
