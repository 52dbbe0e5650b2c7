"""OpenWebRL on Qwen3-VL, for browsers: a thought between `<think>` tags, then calls in JSON, a function per action.

Places are thousandths of the viewport. `write` replaces the content of the focused field. Prompts hold all replies with
their thoughts, and the last screens. The prompt has the published names of functions and arguments, and this project's
own descriptions, because the published texts have no license. Unlike the published prompt, it lists no tabs, no address
and no changes of the page after a call, because observations do not have them.

Source: github.com/OpenWebRL/OpenWebRL @5ae7e95, openwebrl/env/web_env.py (`execute_single_action`, `_execute_*`),
openwebrl/base/utils.py (`ToolParser`), openwebrl/generate_browser.py (`_generate_turn_sample_impl`).
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Any

from models.completion import MAX_ACTIONS
from models.families.code.arguments import Arguments, presses, written_seconds
from models.families.code.calls import MAX_CALLS
from models.families.outside import unmarked
from models.families.prompt import Message, screen_part, text_part, text_turn
from models.families.qwen import QwenFamily
from models.families.reading import WIDE, ParsedReply, Sides, is_true, place_in, typing
from models.families.screen import Size
from models.families.template import filled, template
from models.families.thinking import CLOSE, OPEN, readable
from models.families.tools import Performed, Place, Tool, asking, in_json, read_calls, units, written_calls
from models.policy import Context
from schemas.action import (
    Action,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    MiddleSingle,
    Move,
    Navigate,
    NavigateBack,
    RightSingle,
    Scroll,
    TripleClick,
    Type,
    UseTool,
    Wait,
    action_of,
    point_of,
    type_and_place,
)
from schemas.failure import UsageError
from schemas.keyboard import dom_names, together_in, usual
from schemas.observation import Observation, PastStep
from schemas.refusal import Refusal

SECONDS = 3
"""Seconds of a written `wait` whose action has none; the client's default."""
AMOUNT = 0.5
"""Distance of each written `scroll`, as a share of the viewport."""


def _place(given: Arguments, sides: Sides, name: str) -> Place:
    if (place := given.take(name)) is None:
        raise ValueError(f"`{name}` is missing")
    return place_in(place, sides)


def _click(given: Arguments, sides: Sides) -> list[Action]:
    x, y = _place(given, sides, "point_2d")
    return [action_of({"type": "click", "x": x, "y": y})]


def _hover(given: Arguments, sides: Sides) -> list[Action]:
    x, y = _place(given, sides, "point_2d")
    return [action_of({"type": "move", "x": x, "y": y})]


def _drag(given: Arguments, sides: Sides) -> list[Action]:
    (x, y), (to_x, to_y) = (_place(given, sides, name) for name in ("start_point_2d", "end_point_2d"))
    return [action_of({"type": "drag", "x": x, "y": y, "to_x": to_x, "to_y": to_y})]


def _write(given: Arguments, _: Sides) -> list[Action]:
    if not (message := given.text("message")):
        raise ValueError("write without a text")
    before, content = typing(message, None, enter=False, clear=True)
    return [*before, action_of({"type": "type", "content": content})]


def _scroll(given: Arguments, sides: Sides) -> list[Action]:
    place, way = given.take("point_2d"), given.take("direction") or "down"
    x, y = (0.5, 0.5) if place is None else place_in(place, sides)
    return [action_of({"type": "scroll", "x": x, "y": y, "direction": way})]


def _press(given: Arguments, _: Sides) -> list[Action]:
    """Converts keys to one chord, or to presses one after the other, each repeated `presses` times."""
    keys = given.take("keys")
    names = [keys] if isinstance(keys, str) else keys
    if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
        raise ValueError("`keys` is missing" if not names else f"{str(names)[:40]} are no keys")
    count = presses(Arguments({"presses": given.take("presses")}))
    chords = [names] if is_true(given.take("is_hotkey")) else [[one] for one in names]
    if len(chords) * count > MAX_CALLS:
        raise ValueError(f"more than {MAX_CALLS} presses of keys")
    return [Hotkey(key=usual(together_in(chord))) for chord in chords for _ in range(count)]


def _done(given: Arguments, _: Sides) -> list[Action]:
    return [action_of({"type": "finished", "content": given.text("response") if "response" in given.names else ""})]


_CALLS: dict[str, Performed] = {
    "click": _click,
    "hover": _hover,
    "drag": _drag,
    "write": _write,
    "scroll": _scroll,
    "press_keys": _press,
    "wait": lambda given, sides: [Wait()],
    "goto_url": lambda given, sides: [action_of({"type": "navigate", "content": given.text("url")})],
    "go_back": lambda given, sides: [NavigateBack()],
    "call_user": lambda given, sides: [asking(given, "question")],
    "done": _done,
}
TOOL = Tool(names=(*_CALLS, "new_tab", "switch_tab", "close_tab"), others=_CALLS, named=True)
"""Its functions. Those for tabs are refused, because no action opens, changes or closes a tab."""
_CLICKS: dict[type[Action], dict[str, Any]] = {
    Click: {}, LeftDouble: {"clicks": 2}, TripleClick: {"clicks": 3}, RightSingle: {"button": "right"},
    MiddleSingle: {"button": "middle"},
}  # fmt: skip
"""Arguments of each click in addition to its place."""


class OpenWebRlFamily(QwenFamily):
    """OpenWebRL-4B and 8B: thousandths of the viewport.

    The published client shows the current screen only (`policy.history_images=1`).
    """

    counts = "thousandths"
    templates = ("computer",)
    folds = True
    max_new_tokens = 4096
    spec = TOOL

    def messages(self, context: Context) -> list[Message]:
        """Builds a chat: the tools, the request with the first screen, then replies with their results and screens."""
        turns = context.turns
        folded = self.rule.folded(len(turns) + 1)
        chat = [text_turn("system", self._tools((context.observation.width, context.observation.height)))]
        for position, screen in enumerate([*(turn.observation for turn in turns), context.observation]):
            before = self._results(turns[position - 1]) if position else ""
            asked = f"<user_request>\n{context.instruction}\n</user_request>\n\n" if not position else ""
            head = f"{asked}{before}<observation>\nscreen size: {screen.width} x {screen.height}\n"
            tail = "\n</observation>" + ("\n</tool_response>" if position else "")
            chat.append({"role": "user", "content": self._observed(head, screen, tail, position, position >= folded)})
            if position < len(turns):
                chat.append(text_turn("assistant", self._written(turns[position])))
        return chat

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as a call.

        Raises:
            UsageError: there is no such function.
        """
        made = self._call(action, self.sides(screen))
        if made is None:
            raise UsageError(
                f"openwebrl has no function for {type_and_place(action)}.",
                "Leave the step out, or take another `policy.family`.",
            )
        return in_json(*made)

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the thought, and the actions that the calls perform."""
        return self._read(answer, self.sides(screen))

    def _observed(self, head: str, screen: Observation, tail: str, position: int, shown: bool) -> list[Any]:
        """Builds the parts of a user turn; a text replaces a folded screen, except the first one."""
        if shown:
            return [text_part(f"{head}screenshot:\n"), screen_part(screen, self.limits), text_part(tail)]
        return [text_part(f"{head}{self.collapsed if self.rule.folds and position else ''}{tail}")]

    def _results(self, turn: PastStep) -> str:
        """Writes a line for each call of a reply, to begin the next user turn: the call was performed, or the reason
        why it was not. A step records no other result of a call."""
        calls, lines, tried = list(self._calls(turn)), list[str](), 0
        read = takewhile(bool, (actions for _, actions in calls))
        refusal = Refusal.of(turn.error, min(sum(read), MAX_ACTIONS))
        limit = refusal.number - 1 if turn.error else MAX_ACTIONS
        for name, actions in calls:
            before, tried = tried, tried + (actions or MAX_ACTIONS + 1)  # nothing is performed after an unread call
            if tried <= limit:
                lines.append(f"Succeed: `{name}` executed.")
            elif turn.error and actions and before <= limit:
                lines.append(f"Failed: `{name}` execution failed: {refusal.reason}")
            else:
                lines.append(f"Failed: `{name}` was not executed.")
        return "<tool_response>\n" + "\n".join(lines or ["No tool call was read."]) + "\n\n"

    def _calls(self, turn: PastStep) -> Iterator[tuple[str, int]]:
        """Yields the function of each call of a reply, and the number of its actions, until one cannot be read."""
        try:
            for call, begin, end in written_calls(turn.action_text, 0, self.spec):
                name = call.name if isinstance(call, UseTool) else str(call["action"])
                yield name, len(self._read(turn.action_text[begin:end], WIDE).actions)
        except (ValueError, RecursionError):
            return

    def _read(self, answer: str, sides: Sides) -> ParsedReply:
        return replace(read_calls(answer, sides, self.spec), tagged=True)

    def _written(self, turn: PastStep) -> str:
        """Returns the reply of a past step with its thinking: as it was sampled, or in the usual form."""
        if (sampled := self.sampled(turn)) is None:
            return self._reply(turn.thought, turn.action_text)
        begun = not sampled[0] or unmarked(turn.reply).lstrip().startswith("<")
        return turn.reply if begun else f"{OPEN}\n{turn.reply}"

    def _reply(self, thought: str, written: str) -> str:
        forms = (lambda inner: f"{OPEN}\n{inner}\n{CLOSE}\n\n{written}",)
        return readable(thought, written, forms, lambda answer: self._read(answer, WIDE))

    def _tools(self, screen: Size) -> str:
        tools = [{"type": "function", "function": one} for one in json.loads(template("openwebrl-tools.json"))]
        return filled("openwebrl-system.txt", tools="\n".join(json.dumps(one, ensure_ascii=False) for one in tools))

    def _call(self, action: Action, sides: Sides) -> tuple[str, dict[str, Any]] | None:
        """Returns the function and the arguments for an action; None if there is no such function."""
        if type(action) in _CLICKS and (point := point_of(action)):
            return "click", {"point_2d": units(*point, sides), **_CLICKS[type(action)]}
        if isinstance(action, Move):
            return "hover", {"point_2d": units(action.x, action.y, sides)}
        if isinstance(action, Drag):
            ends = units(action.x, action.y, sides), units(action.to_x, action.to_y, sides)
            return "drag", {"start_point_2d": ends[0], "end_point_2d": ends[1]}
        if isinstance(action, Scroll) and (point := point_of(action)):
            place = units(*point, sides)
            return "scroll", {"direction": action.direction, "amount": AMOUNT, "point_2d": place}
        if isinstance(action, Type):
            return ("write", {"message": action.content}) if action.content else None
        if isinstance(action, Hotkey):
            keys = dom_names(action.key)
            return "press_keys", {"keys": keys, **({"is_hotkey": True} if len(keys) > 1 else {})}
        if isinstance(action, Wait):
            return "wait", {"seconds": written_seconds(action.seconds, SECONDS)}
        if isinstance(action, Navigate):
            return "goto_url", {"url": action.content}
        if isinstance(action, NavigateBack):
            return "go_back", {}
        return ("done", {"response": action.content}) if isinstance(action, Finished) else None
