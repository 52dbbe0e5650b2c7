"""Fara-7B and Fara1.5: one tool for a browser, a thought and then a call in JSON.

The last screens are shown with the text that its client asks with; older screens are left out with it, and all replies
stay. Its client also writes the page's address, which no observation has. A search is the address of the search that
its client visits.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote_plus

from models.completion import Completion
from models.families.code.arguments import Arguments, is_success, keys_of, written_seconds
from models.families.family import QWEN25
from models.families.outside import unmarked
from models.families.prompt import Message, screen_part, text_part, text_turn
from models.families.qwen import QwenFamily
from models.families.reading import Sides
from models.families.screen import Size
from models.families.template import filled, template
from models.families.tools import Tool, asking, flat, in_json, units, where, written_calls
from models.policy import Context
from schemas.action import (
    Action,
    CallUser,
    Click,
    Finished,
    Hotkey,
    LeftDouble,
    Move,
    Navigate,
    NavigateBack,
    Note,
    RightSingle,
    Scroll,
    TripleClick,
    Type,
    UseTool,
    Wait,
    type_and_place,
)
from schemas.failure import UsageError
from schemas.keyboard import dom_names, together_in, usual
from schemas.observation import PastStep

NEXT = "Here is the next screenshot. Think about what to do next."
QUESTION = "How should I go on?"
"""Question of a step that calls a person without words."""
SECONDS = 3
"""Seconds of a written wait that has none; its clients' default."""
SCROLL = 500
"""Distance of each written scroll: thousandths of the screen for Fara1.5; Fara-7B always scrolls a page."""
_SEARCH = "https://www.bing.com/search?q={}&FORM=QBLH"
_SCHEMES = ("https://", "http://", "file://", "about:")


def _visit(given: Arguments, _: Sides) -> list[Action]:
    """Converts an address, or words for a search, as both clients do."""
    url = given.text("url")
    if not url.startswith(_SCHEMES):
        url = _SEARCH.format(quote_plus(url)) if " " in url else f"https://{url}"
    return [Navigate(content=url)]


def _press(given: Arguments, _: Sides) -> list[Action]:
    return [Hotkey(key=usual(together_in(map(str, flat(keys_of(given))))))]


def _ask(given: Arguments, _: Sides) -> list[Action]:
    """Converts a question for a person; the question of a call without words has none."""
    asked = asking(given, "question")
    return [CallUser() if asked == CallUser(content=QUESTION) else asked]


def _search(given: Arguments, _: Sides) -> list[Action]:
    return [Navigate(content=_SEARCH.format(quote_plus(given.text("query"))))]


def _memorize(given: Arguments, _: Sides) -> list[Action]:
    return [Note(content=given.text("fact"))]


def _terminate(given: Arguments, _: Sides) -> list[Action]:
    """Converts an end: a call for a person if its status is a failure, else a finish with the answer."""
    answered, stated = "answer" in given.names, "status" in given.names
    try:
        succeeded = is_success(given)
    except ValueError:
        if not answered:
            raise
        succeeded = True  # the client reads no status
    if not succeeded:
        return [asking(given, "answer")]
    if not answered:
        if not stated:
            raise ValueError("`answer` is missing")
        return [Finished()]
    answer = given.take("answer")
    return [Finished(content=answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))]


_ALIASES = {
    "click": "left_click",
    "hover": "mouse_move",
    "input_text": "type",
    "keypress": "key",
    "sleep": "wait",
    "stop": "terminate",
}
"""Names of actions by other names, of `fara_agent.py`."""
TOOL_7B = Tool(
    names=("computer_use",),
    aliases=_ALIASES,
    others={"key": _press, "visit_url": _visit, "web_search": _search, "pause_and_memorize_fact": _memorize},
    enters=True,
)
"""Actions of Fara-7B; its client presses enter behind a text if the call does not say so."""
TOOL_15 = Tool(
    names=("computer_use",),
    aliases=_ALIASES,
    triples=True,
    others={
        "key": _press,
        "visit_url": _visit,
        "web_search": _search,
        "pause_and_memorize_fact": _memorize,
        "ask_user_question": _ask,
        "terminate": _terminate,
    },
)
"""Actions of Fara1.5."""


class Fara7Family(QwenFamily):
    """Fara-7B: pixels of the picture that the model sees; its answer is the thought of its last reply."""

    counts = "pixels"
    published = QWEN25
    templates = ("computer",)
    several = ()
    folds = True
    max_new_tokens = 1024
    spec = TOOL_7B
    kind: ClassVar[str] = "fara-7b"
    """Beginning of the names of its prompts."""

    def messages(self, context: Context) -> list[Message]:
        """Builds a chat of the tool, then the task with the first screen, then replies and the last screens."""
        turns = context.turns
        shown = self.rule.folded(len(turns) + 1)
        chat = [text_turn("system", self._tools((context.observation.width, context.observation.height)))]
        for position, screen in enumerate([*(turn.observation for turn in turns), context.observation]):
            image = [screen_part(screen, self.limits)] if position >= shown else []
            asked = f"{self._failed(turns[position - 1])}{NEXT}" if position else context.instruction
            if self.rule.folds and position and not image:
                image = [text_part(f"{self.collapsed}\n")]
            if image or not position:
                chat.append({"role": "user", "content": [*image, text_part(asked)]})
            if position < len(turns):
                chat.append(text_turn("assistant", self._written(turns[position])))
        return chat

    def _failed(self, turn: PastStep) -> str:
        """Returns the line on a call of a past step that failed; empty if the client has none."""
        return ""

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as a call.

        Raises:
            UsageError: the tool has no such action.
        """
        made = self._call(action, self.sides(screen))
        worded = {Finished: "answer", CallUser: "question"}.get(type(action), "")
        if made is None or (isinstance(action, Finished | CallUser) and action.content and worded not in made):
            words = f" with {'an answer' if isinstance(action, Finished) else 'a question'}" if made else ""
            raise UsageError(
                f"{self.kind} has no action for {type_and_place(action)}{words}.",
                "Leave the step out, or take another `policy.family`.",
            )
        return in_json(self.tool, made)

    def write_actions(self, actions: Sequence[Action], screen: Size) -> str:
        """Writes the actions of one reply, which has one call: a click before a text is the text's place.

        Raises:
            UsageError: as `write`, or there are several actions that no call has together.
        """
        *before, last = actions
        keys = [one for one in before if one == Hotkey(key="ctrl a")]
        clicks = [one for one in before if isinstance(one, Click)]
        if isinstance(last, Type) and clicks and [*clicks, *keys] == before and len(clicks) == 1:
            place = {"coordinate": units(clicks[0].x, clicks[0].y, self.sides(screen))}
            emptied = {"delete_existing_text": True} if keys else {}
            return in_json(self.tool, {**self._typed(last.content), **place, **emptied})
        return self.write(self.only(actions), screen)

    def read(self, completion: Completion, screen: Size) -> Completion:
        """Reads thought and actions; the thought of a last reply is also its answer."""
        found = super().read(completion, screen)
        if self.spec is not TOOL_7B:
            return found
        answer = Finished(content=found.thought)
        return replace(found, actions=tuple(answer if one == Finished() else one for one in found.actions))

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole reply: the thought, then the call. Of Fara-7B, an answer is the thought.

        Raises:
            UsageError: as `write`, or an answer has another thought.
        """
        last = actions[-1]
        if self.spec is TOOL_7B and isinstance(last, Finished) and unmarked(last.content).strip():
            if thought and unmarked(thought).strip() != unmarked(last.content).strip():
                raise UsageError(
                    f"{self.kind} answers with its thought, and `policy.family` {self.kind} cannot write another "
                    "thought and answer.",
                    "Leave the step out, or take another `policy.family`.",
                )
            thought, actions = last.content, [*actions[:-1], Finished()]
        return self._reply(thought, self.write_actions(actions, screen))

    def _call(self, action: Action, sides: Sides) -> dict[str, Any] | None:
        """Lists the arguments of the call for an action; None if there is none."""
        if isinstance(action, Click | Move):
            name = "left_click" if isinstance(action, Click) else "mouse_move"
            return {"action": name, "coordinate": units(action.x, action.y, sides)}
        if isinstance(action, Scroll) and action.direction in ("up", "down"):
            pixels = SCROLL if action.direction == "up" else -SCROLL
            return {"action": "scroll", **where(action, sides), "pixels": pixels}
        if isinstance(action, Type):
            return self._typed(action.content)
        if isinstance(action, CallUser):
            return self._called_user(action.content)
        made: dict[type, Callable[[Any], dict[str, Any]]] = {
            Hotkey: lambda one: {"action": "key", "keys": dom_names(one.key)},
            Wait: lambda one: {"action": "wait", "time": written_seconds(one.seconds, SECONDS)},
            Navigate: lambda one: {"action": "visit_url", "url": one.content},
            NavigateBack: lambda one: {"action": "history_back"},
            Note: lambda one: {"action": "pause_and_memorize_fact", "fact": one.content},
            Finished: lambda one: self._done(one.content),
        }
        return made[type(action)](action) if type(action) in made else None

    def _typed(self, content: str) -> dict[str, Any]:
        entered = content.endswith("\n") and not content.endswith("\n\n")
        return {"action": "type", "text": content.removesuffix("\n") if entered else content, "press_enter": entered}

    def _called_user(self, content: str) -> dict[str, Any]:
        return {"action": "terminate", "status": "failure"}

    def _done(self, content: str) -> dict[str, Any]:
        return {"action": "terminate", "status": "success"}

    def _tools(self, screen: Size) -> str:
        columns, rows = self.sides(screen)
        tool = json.loads(template(f"{self.kind}-computer_use.json"))
        for place, number in (("{width}", columns), ("{height}", rows)):
            tool["description"] = tool["description"].replace(place, f"{number:g}")
        written = json.dumps({"type": "function", "function": tool}, ensure_ascii=False)
        return filled(f"{self.kind}-system.txt", tools=written)


class Fara15Family(Fara7Family):
    """Fara1.5 on Qwen3.5: thousandths of the screen, more actions, an answer of its own."""

    counts = "thousandths"
    published = None
    spec = TOOL_15
    kind = "fara-1.5"

    def _failed(self, turn: PastStep) -> str:
        """Returns the line on a visit that failed, the only call whose failure the client writes."""
        if not turn.error:
            return ""
        try:
            call, *_ = next(written_calls(turn.action_text, 0, self.spec))
        except (ValueError, RecursionError, StopIteration):
            return ""
        if isinstance(call, UseTool) or call.get("action") != "visit_url":
            return ""
        return f"visit_url to {call.get('url')} failed: {turn.error}\n"

    def _call(self, action: Action, sides: Sides) -> dict[str, Any] | None:
        if isinstance(action, LeftDouble | TripleClick | RightSingle):
            name = {"left_double": "double_click", "right_single": "right_click"}.get(action.type, action.type)
            return {"action": name, **at} if (at := where(action, sides)) else None
        if isinstance(action, Scroll) and action.direction in ("left", "right"):
            pixels = SCROLL if action.direction == "right" else -SCROLL
            return {"action": "hscroll", **where(action, sides), "pixels": pixels}
        return super()._call(action, sides)

    def _typed(self, content: str) -> dict[str, Any]:
        return {"action": "type", "text": content}

    def _called_user(self, content: str) -> dict[str, Any]:
        return {"action": "ask_user_question", "question": content or QUESTION}

    def _done(self, content: str) -> dict[str, Any]:
        return {"action": "terminate", "answer": content}
