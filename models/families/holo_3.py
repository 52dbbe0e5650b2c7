"""Holo 3 and 3.1: one JSON object a step, with a note, a thought and a flat tool call; thousandths of the screen.

The host defines the tools. The prompt lists those that are actions of this project, as a JSON schema in
`<output_format>`, which a server can also enforce. Past steps are shown as their JSON, without the thinking before it.
A call that Holo 3.1 writes as a function call is read, too, if it is JSON.

Source: hub.hcompany.ai/agent-loop (the object, the layout of turns, the grid, three screens) and NVIDIA's scaffold of
Holo 3 for OSWorld, github.com/JeffPengCoder/Gym @9ee0b0c, responses_api_agents/osworld_agent/holo3_agent.py (prompt,
tools, outputs of tools).
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from pydantic import ValidationError

from models.families.code.arguments import CLEARS, ENTERS, Arguments, meant, presses, written_seconds
from models.families.family import ModelFamily
from models.families.prompt import Message, screen_part, text_part, text_turn
from models.families.reading import WIDE, ParsedReply, Sides, is_true, place_in, typing, without_opening
from models.families.screen import Size
from models.families.template import filled, template
from models.families.thinking import between, readable
from models.policy import Context
from schemas.action import (
    Action,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    Press,
    Release,
    RightSingle,
    Scroll,
    Type,
    Wait,
    action_of,
    point_of,
    type_and_place,
)
from schemas.failure import UsageError
from schemas.keyboard import pyautogui_name, pyautogui_names, single, together_in
from schemas.observation import Observation, PastStep
from schemas.problem import named_problem

SCHEMA = "holo-3-schema.json"
NOTCHES = 5
"""Notches of each written scroll."""
WAIT_S = 5
"""Seconds of a written wait that has none; its readers' default."""
LEAST_S = 1
"""Minimum seconds of a wait in the prompt."""
MAX_CALLS = 16
"""Maximum function calls of a reply that are read."""
_DECODER = json.JSONDecoder(strict=False)
_BEGIN = re.compile(r'\{\s{0,40}"(?:note|thought|tool_call|tool_name|name|arguments)"\s{0,40}:')
_NEXT = re.compile(r"(?:\s*</tool_call>)?\s*<tool_call>\s*(?=\{)")
_OPENED = re.compile(r"<tool_call>\s*\Z")
_NOTED = re.compile(r"\ANote: (.*?)\nThought: (.*)\Z", re.DOTALL)
"""A thought with a note."""
_CLICKS = {"click": "click", "double_click": "left_double", "right_click": "right_single"}
_FIELDS = ("note", "thought")


class Holo3Family(ModelFamily):
    """Holo 3 on Qwen3.5: thousandths of the screen."""

    templates = ("computer",)
    several = ()
    folds = True
    dialects = ("box_v1",)
    max_new_tokens = 4096
    asks_without = False
    own_dialect = "holo-3"

    def messages(self, context: Context) -> list[Message]:
        """Builds a chat of the prompt and the task, then, step by step, a screen, the JSON and the tool's output."""
        screen = context.observation
        chat = [self._system((screen.width, screen.height)), text_turn("user", f"Task: {context.instruction}")]
        shown = self.rule.folded(len(context.turns) + 1)
        for position, turn in enumerate(context.turns):
            chat.append(self._observed(turn.observation if position >= shown else None))
            chat.append(text_turn("assistant", _past(turn)))
            if tool := _tool_of(turn.action_text):
                chat.append(text_turn("user", _output(tool, turn.error)))
        return [*chat, self._observed(screen)]

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`, the screens as observations if it asks for an action."""
        if acts:
            size = (screens[-1].width, screens[-1].height)
            head = [self._system(size), text_turn("user", f"Task: {question}")]
            return [*head, *(self._observed(one) for one in screens)]
        shown = [*(screen_part(one, self.limits) for one in screens), text_part(question)]
        return [{"role": "user", "content": shown}]

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as a step without a thought.

        Raises:
            UsageError: the prompt has no such tool.
        """
        return _written(None, "", _called(action, self.sides(screen)))

    def write_actions(self, actions: Sequence[Action], screen: Size) -> str:
        """Writes the only action as a step without a thought."""
        return self.write(self.only(actions), screen)

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads note, thought and actions of a step."""
        return read_step(answer, self.sides(screen))

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole step; a thought of the form `Note: ...`, `Thought: ...` has a note."""
        call = _called(self.only(actions), self.sides(screen))
        forms = (lambda inner: _thinking(inner, call), lambda inner: f"{between(inner)}{_written(None, '', call)}")
        return readable(thought, _written(None, "", call), forms, lambda answer: read_step(answer, WIDE))

    def _system(self, screen: Size, thinks: bool = True) -> Any:
        schema = json.dumps(json.loads(template(SCHEMA)), ensure_ascii=False)
        width, height = map(str, screen)
        return text_turn("system", filled("holo-3-computer.txt", width=width, height=height, schema=schema))

    def _observed(self, screen: Observation | None) -> Message:
        """Builds the turn of a screen, or of a screen that is left out."""
        if screen is None:
            return text_turn("user", "<observation>\n[screenshot evicted]\n</observation>")
        parts = [text_part("<observation>\n"), screen_part(screen, self.limits), text_part("\n</observation>")]
        return {"role": "user", "content": parts}


def read_step(text: str, sides: Sides) -> ParsedReply:
    """Reads the note, the thought and the actions of a reply; never raises for any text of a model.

    Args:
        text: a JSON object with `tool_call`, or function calls in `<tool_call>`, perhaps with words before them.
        sides: width and height of the screen, in units of the coordinates.
    """
    found = _BEGIN.search(text)
    begin = found.start() if found else text.find("{")
    if begin < 0:
        return ParsedReply(text.strip(), "", error=f"no tool call in {text[:80]!r}")
    opened = _OPENED.search(text[max(0, begin - 99) : begin])
    before = text[: begin - len(opened[0]) if opened else begin]
    said, shown, end = [without_opening(before).strip()], text[begin:].strip(), len(text)
    actions, parts, unused, problem = list[Action](), 1, tuple[str, ...](), "no tool call"
    try:
        for call, own, unread, behind in _steps(text, begin):
            said += own
            shown = shown if actions else text[begin:behind].strip()
            given = Arguments(call)
            made = _actions(given, sides)
            end = behind
            if not actions:
                parts, unused = len(made), (*unread, *given.unused)
            actions += made
    except ValidationError as error:
        problem = named_problem(error)
    except (ValueError, RecursionError) as error:
        problem = str(error)[:120]
    thought = "\n".join(one for one in said if one)
    if not actions:
        return ParsedReply(thought, shown, error=f"{problem} in {shown[:80]!r}")
    return ParsedReply(thought, shown, (*actions,), None, parts, unused, after=text[end:])


def _steps(text: str, begin: int) -> Iterator[tuple[dict[str, Any], list[str], tuple[str, ...], int]]:
    """Yields the arguments of each call with its name as `tool_name`, its thought, what is not read, and its end.

    Raises ValueError for text that is no call.
    """
    for _ in range(MAX_CALLS):
        found, end = _DECODER.raw_decode(text, begin)
        step = Arguments(cast(dict[str, Any], found) if isinstance(found, dict) else {})
        own = _thought_of(step)
        call = step.take("tool_call") if "tool_call" in step.names else {one: step.take(one) for one in step.names}
        if not isinstance(call, dict):
            raise ValueError("`tool_call` is no object")
        yield _flat(cast(dict[str, Any], call)), own, step.unused, end
        following = _NEXT.match(text, end)
        if following is None:
            return
        begin = following.end()


def _flat(call: dict[str, Any]) -> dict[str, Any]:
    """Returns a call with its name as `tool_name` among its arguments, also of a function call."""
    if "tool_name" in call or not isinstance(call.get("name"), str):
        return call
    given = call.get("arguments") or {}
    given = _DECODER.decode(given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        raise ValueError(f"{call['name'][:40]} has arguments that are no object")
    return {"tool_name": call["name"], **cast(dict[str, Any], given)}


def _thought_of(step: Arguments) -> list[str]:
    note, thought = (step.text(one).strip() if step.holds_text(one) else "" for one in _FIELDS)
    if note and thought:
        return [f"Note: {note}\nThought: {thought}"]
    return [f"Note: {note}"] if note else [thought]


def _actions(given: Arguments, sides: Sides) -> list[Action]:
    """Converts a call into actions; raises ValueError if there is none."""
    if not given.holds_text("tool_name"):
        raise ValueError("`tool_name` is missing")
    given.look("element", "")  # a description that was left empty
    name = given.text("tool_name")[:40].removesuffix("_desktop")
    if name in _CLICKS:
        x, y = _at(given, sides)
        return meant(action_of({"type": _CLICKS[name], "x": x, "y": y}), given)
    if name == "scroll":
        x, y = _at(given, sides)
        return meant(action_of({"type": "scroll", "x": x, "y": y, "direction": given.take("direction")}), given)
    if name == "drag":
        (x, y), (to_x, to_y) = _at(given, sides), _at(given, sides, "x2", "y2")
        return meant(action_of({"type": "drag", "x": x, "y": y, "to_x": to_x, "to_y": to_y}), given)
    if name == "write":
        enter, clear = (is_true(given.take(*names)) for names in (ENTERS, ("overwrite", *CLEARS)))
        before, content = typing(given.text("content"), None, enter, clear)
        return [*before, *meant(action_of({"type": "type", "content": content}), given)]
    if name == "hotkey":
        count = presses(Arguments({"presses": given.take("repeat_count")}))
        return meant(Hotkey(key=together_in(_keys(given, "keys"))), given) * count
    if name == "hold_and_tap_key":
        held, tapped = ([single(one) for one in _keys(given, key)] for key in ("hold_keys", "tap_keys"))
        taps = [Hotkey(key=together_in([one])) for one in tapped]
        return [*(Press(key=one) for one in held), *taps, *(Release(key=one) for one in reversed(held))]
    if name in ("key_down", "key_up"):
        key = single(given.text("key"))
        return [Press(key=key) if name == "key_down" else Release(key=key)]
    if name == "wait":
        return meant(Wait(), given)
    if name == "answer":
        return [action_of({"type": "finished", "content": given.text("content")})]
    raise ValueError(f"not supported: {name}")


def _at(given: Arguments, sides: Sides, *axes: str) -> tuple[float, float]:
    x, y = axes or ("x", "y")
    if missing := next((axis for axis in (x, y) if axis not in given.names), ""):
        raise ValueError(f"`{missing}` is missing")
    return place_in([given.take(x), given.take(y)], sides)


def _keys(given: Arguments, name: str) -> list[str]:
    value = given.take(name)
    keys = cast(list[object], value) if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in keys):
        raise ValueError(f"`{name}` is missing" if value is None else f"`{name}` is no list of keys")
    return [str(one) for one in keys]


def _called(action: Action, sides: Sides) -> dict[str, Any]:
    """Returns the call of an action. A recorded action has no description of its element, so it is empty."""

    def at(x: float, y: float, *axes: str) -> dict[str, Any]:
        across, down = axes or ("x", "y")
        return {across: round(x * sides[0]), down: round(y * sides[1])}

    if isinstance(action, Click | LeftDouble | RightSingle) and (point := point_of(action)):
        name = "double_click" if isinstance(action, LeftDouble) else "click"
        button = {"button": "right"} if isinstance(action, RightSingle) else {}
        return {"tool_name": name, "element": "", **at(*point), **button}
    if isinstance(action, Scroll) and (point := point_of(action)):
        way = {"direction": action.direction, "scroll_size": NOTCHES}
        return {"tool_name": "scroll", "element": "", **at(*point), **way}
    if isinstance(action, Drag):
        end = at(action.to_x, action.to_y, "x2", "y2")
        return {"tool_name": "drag", "element": "", **at(action.x, action.y), **end}
    if isinstance(action, Type):
        enter = action.content.endswith("\n") and not action.content.endswith("\n\n")
        return {"tool_name": "write", "content": action.content[: -1 if enter else None], "press_enter": enter}
    if isinstance(action, Hotkey):
        return {"tool_name": "hotkey", "keys": pyautogui_names(action.key)}
    if isinstance(action, Press | Release):
        name = "key_down" if isinstance(action, Press) else "key_up"
        return {"tool_name": name, "key": pyautogui_name(action.key)}
    if isinstance(action, Wait):
        return {"tool_name": "wait", "duration": max(LEAST_S, written_seconds(action.seconds, WAIT_S))}
    if isinstance(action, Finished):
        return {"tool_name": "answer", "content": action.content}
    raise UsageError(f"holo-3 has no tool for {type_and_place(action)}.", "Take another `policy.family`.")


def _written(note: str | None, thought: str, call: dict[str, Any]) -> str:
    fields = {"note": note, "thought": thought, "tool_call": call}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _thinking(thought: str, call: dict[str, Any]) -> str:
    noted = _NOTED.match(thought)
    return _written(noted[1], noted[2], call) if noted else _written(None, thought, call)


def _past(turn: PastStep) -> str:
    """Returns the JSON of a past step: as it was written, or with the thought of a step that was written without."""
    fields, call = _recorded(turn.action_text)
    if call is None:
        return "\n".join(one for one in (turn.thought, turn.action_text) if one)
    if "tool_call" in fields and (fields.get("note") or fields.get("thought")):
        return turn.action_text
    return _thinking(turn.thought, call)


def _tool_of(written: str) -> str:
    """Returns the name of the tool that a past step called; empty if there is none."""
    call = _recorded(written)[1] or {}
    name = call.get("tool_name")
    return name if isinstance(name, str) and re.fullmatch(r"\w{1,40}", name) else ""


def _output(tool: str, error: str) -> str:
    """Writes the result of a call: the reason why it was not performed, if any."""
    if error:
        return f'<error tool="{tool}">\n{error}\n</error>'
    return f'<tool_output tool="{tool}">\n{tool} executed successfully.\n</tool_output>'


def _recorded(written: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns the fields of a past step, and its call; no call if the step has none."""
    try:
        found = _DECODER.decode(written)
        fields = cast(dict[str, Any], found) if isinstance(found, dict) else {}
        call = _flat(fields.get("tool_call", fields))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}, None
    return fields, call if "tool_name" in call else None
