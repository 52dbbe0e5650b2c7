"""Qwen3.5, 3.6 and 3.8: tools in the system turn, replies with calls as XML (OSWorld's agent, the chat templates).

Coordinates are 999ths of the screen. Every past turn is shown, the earlier ones without their screens. A screen after
the first is the response of a tool, so that the chat templates of 3.5 and 3.6 keep the thinking of past turns. The
prompts lack the date, since a sample could not reproduce it.

A thought of one line is the sentence behind `Action:`. Thinking comes first in a thought, and the sentence is its last
paragraph.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from models.families.acting import names_call
from models.families.outside import REASONED, unmarked
from models.families.prompt import Message, screen_part, text_part, text_turn
from models.families.qwen import QwenFamily
from models.families.reading import ParsedReply, Sides
from models.families.screen import Size
from models.families.template import filled, template
from models.families.thinking import CLOSE as THOUGHT_END
from models.families.thinking import OPEN as THINKS
from models.families.thinking import readable, untagged
from models.families.tools import (
    CLOSE,
    OPEN,
    Tool,
    Written,
    arguments_of,
    held_button,
    no_tool,
    perform,
    read_calls,
    valued,
    written_calls,
)
from models.families.xml import QWEN, XmlGrammar
from models.policy import Context
from schemas.action import Action, CallUser, Finished, MouseDown, MouseUp, Press, Release, Scroll, UseTool, Wait
from schemas.config.policy import PolicyConfig, ToolConfig
from schemas.failure import UsageError
from schemas.keyboard import pyautogui_name
from schemas.observation import PastStep

GRID: Sides = (999.0, 999.0)
"""Width and height of a screen: its last pixel is 999."""
LABEL = "Action: "
_JOINT = f"\n\n{LABEL}"
"""Text between thinking and sentence in a thought."""
_CALL = re.compile(r"<tool_call>\s*+(?=<function\b)|^[^\S\n]*+(?=<function=)", re.MULTILINE)
_JSON = re.compile(r"<tool_call>\s*+(?:```\w*+\s*+)?\{")
_LABEL = re.compile(r"^[ \t]*Action[:：][ \t]*", re.MULTILINE | re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:\w{1,20}:)?(?:tool_call|tool_response|function|parameter|action|operation|answer|think)|<\||</s>\s*\Z"
    r"|<\w{0,20}click\b|</?arg_(?:key|value)>|<call>\s*\w+\(|<b?box>\s*[\[(\d]|<point>\s*\d|</(?:point|box)>",
    re.IGNORECASE,
)
"""A tag of calls, places, thinking or turns, whole or cut; no final reply has one."""
_NUMBERS = ("pixels", "time", "duration")
_NOT = r"(?:is|are|was) not|isn['’]t|aren['’]t|wasn['’]t|not"
_CANNOT = r"cannot|can not|can['’]t|could not|couldn['’]t|(?:am|['’]m|is|are) (?:unable|not able) to|unable to"
_LACKS = r"does not|doesn['’]t|do not|don['’]t"
_NEEDED = r"extension|plugin|account|credentials|hardware|language pack|purchase|sign-?up|email verification"
_NOT_DONE = re.compile(
    rf"\b(?:infeasible|unfeasible|impossible|(?:{_NOT}) (?:possible|feasible|achievable|supported)"
    rf"|(?:{_CANNOT}) (?:be )?(?:do|done|completed?|perform(?:ed)?|accomplish(?:ed)?|achieved?)\b"
    rf"|(?:{_LACKS}) (?:natively )?support|there is no such"
    r"|there is no (?:option|setting|feature|way|button|menu) (?:for|in|that|to)\b"
    rf"|(?:requires?|needs?) (?:an? )?(?:valid )?(?:{_NEEDED})|(?:{_LACKS}) have the (?:account )?credentials"
    r"|could you clarify)|(?:无法|不能)(?:完成|执行|实现|进行)|不可行|不可能",
    re.IGNORECASE,
)
"""Words of a final reply on a task that cannot be done, as OSWorld's agents for these models list them."""
_UNABLE = re.compile(
    rf"\b(?:I(?: |['’])(?:{_CANNOT}|am unable|m unable|m not able)"
    rf"|unavailable|(?:{_NOT}) available"
    rf"|(?:feature|option|function|setting|tool|command)\b[^.\n]{{0,40}}\b(?:{_LACKS}) exist)",
    re.IGNORECASE,
)
"""Words that also occur in the report of a task that was done another way."""
_YET = re.compile(
    r"(?:\b(?:but|so|instead|therefore)\b,?|;) "
    r"(?:I (?:have |then )?(?!stopped|failed)(?:\w{2,20}ed|chose|made|set|took|wrote)\b"
    r"|the (?:answer|count|number|result|total|value)\b)",
    re.IGNORECASE,
)
"""Words of another way or of an answer."""


def _value(key: str, text: str) -> Any:
    """Converts an argument: a list or an object by JSON or Python, a number by its name; any other is a text."""
    if key in QWEN.texts:
        return text
    if text[:1] in ("[", "{"):
        for read in (json.loads, _literal):
            try:
                return read(text)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    if key in _NUMBERS:
        try:
            number = float(text)
        except ValueError:
            return text
        return int(number) if number.is_integer() else number
    return text


def _literal(text: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return json.loads(json.dumps(ast.literal_eval(text)))


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions of the environment, for reading their calls."""

    texts: Mapping[str, Mapping[str, bool]] = field(default_factory=dict[str, Mapping[str, bool]])
    """Arguments of each function that are texts by its schema, and whether each may be null."""

    @classmethod
    def of(cls, tools: Sequence[ToolConfig]) -> "Functions":
        """Collects the arguments that are texts."""
        return cls({tool.name: dict(_texts_in(tool.parameters.get("properties"))) for tool in tools})

    @property
    def grammar(self) -> XmlGrammar:
        """Returns the grammar in which these arguments of these functions hold any text."""
        return replace(QWEN, by_call={name: QWEN.texts | texts.keys() for name, texts in self.texts.items()})

    def call(self, name: str, arguments: Mapping[str, object]) -> UseTool:
        """Makes a call; an argument that is no text by its schema is JSON, if it can be read as that."""
        texts = self.texts.get(name, {})

        def value(key: str, one: object) -> object:
            if key not in texts:
                return _json(one)
            return None if texts[key] and one == "null" else one

        return UseTool(name=name, arguments={key: value(key, one) for key, one in arguments.items()})


def _texts_in(properties: object) -> Iterator[tuple[str, bool]]:
    """Yields the properties of a JSON schema that are texts, and whether each may be null."""
    named = cast(Mapping[str, object], properties) if isinstance(properties, Mapping) else {}
    for name, schema in named.items():
        kinds = _types_of(schema)
        if kinds - {"null"} == {"string"}:
            yield name, "null" in kinds


def _types_of(schema: object) -> set[str]:
    """Collects the types of a JSON schema's values, `any` if it does not limit them."""
    if not isinstance(schema, Mapping):
        return {"any"}
    known = cast(Mapping[str, Any], schema)
    if "type" in known:
        kinds = known["type"]
        return {str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds])}
    values = known.get("enum", [known["const"]] if "const" in known else None)
    if isinstance(values, list):
        names = {str: "string", type(None): "null"}
        return {names.get(type(value), "any") for value in values}
    others = known.get("anyOf", known.get("oneOf"))
    return {kind for one in others for kind in _types_of(one)} if isinstance(others, list) and others else {"any"}


def _json(value: object) -> object:
    """Returns the value of a JSON text, or the text itself."""
    try:
        return json.loads(str(value), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return value


def _refuse(name: str) -> object:
    raise ValueError(name)


NO_FUNCTIONS = Functions()
BASE = Tool(names=("computer_use", "mobile_use"), value=_value, holds=True)
"""Actions of Qwen3.5."""
INTERNAL = replace(
    BASE,
    triples=True,
    at_pointer=True,
    holds=False,
    others={"screenshot": lambda given, sides: [Wait()]},
)
"""Actions of Qwen3.6 and its successors."""


class Qwen35Family(QwenFamily):
    """Qwen3.5: 14 actions, an answer as an action."""

    counts = "999ths"
    templates = ("computer", "mobile")
    tooled = ("computer", "mobile")
    functions_of_its_own = BASE.names
    folds = True
    max_new_tokens = 32_768
    version: ClassVar[str] = "3.5"
    """Version of the prompt."""
    spec = BASE
    internal: ClassVar[bool] = False
    """Whether the tool has the actions of Qwen3.6."""
    prose: ClassVar[bool] = False
    """Whether a reply without a call is the last one."""
    reasons: ClassVar[bool] = False
    """Whether the chat template takes a past turn's thinking only from `reasoning_content`."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self.own = replace(self.spec, open=bool(config.tools))
        """The tool whose calls are read."""
        self.functions = Functions.of(config.tools)

    def messages(self, context: Context) -> list[Message]:
        """Builds a chat of tools, then the instruction with the first screen, then replies and screens."""
        turns = context.turns
        shown = self.rule.folded(len(turns) + 1)
        asked = (
            "\nPlease generate the next move according to the UI screenshot, instruction and previous actions.\n\n"
            f"Instruction: {context.instruction}\n\nPrevious actions:\nNone"
        )
        chat = [text_turn("system", self._tools((context.observation.width, context.observation.height)))]
        for position, screen in enumerate([*(turn.observation for turn in turns), context.observation]):
            image = [screen_part(screen, self.limits)] if position >= shown else []
            parts = [*image, text_part(asked)]
            if position:
                inner = image or [text_part(self.collapsed)]
                refused = self.refused_tool(turns[position - 1])
                reason = [text_part(f"{refused}\n")] if refused else []
                parts = [text_part("<tool_response>\n"), *reason, *inner, text_part("\n</tool_response>")]
            chat.append({"role": "user", "content": parts})
            if position < len(turns):
                chat.append(self._past(turns[position]))
        return chat

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as calls of the template's tool, or an answer as this version gives it.

        Raises:
            UsageError: the tool has no such action, or a text ends the tags of its call.
        """
        if self.prose and isinstance(action, Finished) and action.content:
            plain = unmarked(action.content)
            if self.read_answer(plain, screen).actions == (Finished(content=plain),):
                return action.content
        try:
            written = self._called(action)
        except ValueError as error:
            raise UsageError(
                f"`policy.template` is {self.template}: {error}.",
                "Take the other of computer and mobile, or another family.",
            ) from error
        read = self._read(unmarked(written)).actions
        if [_texts(one) for one in read] != [{key: unmarked(value) for key, value in _texts(action).items()}]:
            raise UsageError(
                f"Qwen{self.version} has no way to write the texts of this {action.type}, which end its own tags.",
                "Leave the step out, or take another `policy.family`.",
            )
        return written

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the thought and the actions of the calls, or a final reply without a call."""
        if self.prose and not _acts(answer) and (words := answer.strip()):
            done = CallUser() if _gives_up(words) else Finished(content=words)
            return ParsedReply("", words, (done,), tagged=True)
        return self._read(answer)

    def _read(self, text: str) -> ParsedReply:
        return read_xml(text, GRID, self.own, self.functions)

    def _called(self, action: Action) -> str:
        """Writes the calls of an action; raises ValueError if there is none."""
        if isinstance(action, UseTool) and self.tools and action.name not in self.own.names:
            return in_xml(action.name, action.arguments)
        return "\n".join(in_xml(self.tool, one) for one in self._arguments(action))

    def _arguments(self, action: Action) -> list[dict[str, Any]]:
        if self.tool == "mobile_use":
            return arguments_of(action, self.tool, GRID, self.spec)
        if isinstance(action, Scroll) and action.x is not None:  # a scroll is where the pointer is
            scroll = arguments_of(action, self.tool, GRID, self.spec)[0]
            return [{"action": "mouse_move", "coordinate": scroll.pop("coordinate")}, scroll]
        if isinstance(action, Press | Release) and self.internal:
            name = "key_down" if isinstance(action, Press) else "key_up"
            return [{"action": name, "keys": [pyautogui_name(action.key)]}]
        if isinstance(action, MouseDown | MouseUp) and self.internal:
            return [held_button(action, GRID)]
        if isinstance(action, CallUser) and action.content and self.internal:
            return [{"action": "call_user", "text": action.content}]
        return arguments_of(action, self.tool, GRID, self.spec)

    def _reply(self, thought: str, written: str) -> str:
        if not thought:
            return written

        def usual(inner: str) -> str:
            thinking, joint, sentence = inner.rpartition(_JOINT)
            if joint and thinking.strip() and "\n" not in sentence:
                return f"{_between(thinking)}{LABEL}{sentence}\n\n{written}"
            if "\n" not in inner:
                return f"{LABEL}{inner}\n\n{written}"
            last = inner.rpartition("\n")[2]
            return f"{inner}\n\n{written}" if last.startswith(LABEL) else f"{_between(inner)}{written}"

        forms = (usual, lambda inner: f"{_between(inner)}{written}")
        return readable(thought, written, forms, lambda answer: self.read_answer(answer, (1000, 1000)))

    def _past(self, turn: PastStep) -> Message:
        """Builds a past turn as it was sampled, with its thinking where this version's chat template takes it from."""
        written = self._in_xml(turn.action_text)
        sampled = self.sampled(turn) if written == turn.action_text else None
        if sampled is None:
            reply = self._reply(turn.thought, written)
            thinking, end, answer = reply.partition(f"\n{THOUGHT_END}\n\n")
            if not (end and thinking.startswith(f"{THINKS}\n")):
                return text_turn("assistant", reply)
            thinking = thinking.removeprefix(f"{THINKS}\n")
        else:
            thinking, answer = sampled[0].strip(), sampled[1]
            if not thinking:
                return text_turn("assistant", answer)
            answer = answer.lstrip("\n")
        if self.reasons:
            return {**text_turn("assistant", answer), REASONED: thinking}
        return text_turn("assistant", f"{_between(thinking)}{answer}")

    def _in_xml(self, written: str) -> str:
        """Converts calls that a server parsed to JSON back to XML."""
        if not written.startswith(OPEN) or not written.removeprefix(OPEN).lstrip().startswith("{"):
            return written
        try:
            calls = [call for call, _, _ in written_calls(written, 0, self.own)]
            return "\n".join(
                in_xml(call.name, call.arguments) if isinstance(call, UseTool) else in_xml(self.tool, call)
                for call in calls
            )
        except (ValueError, RecursionError):
            return written

    def _tools(self, screen: Size) -> str:
        kind = "3.5" if self.version == "3.5" else "3.6"
        file = "qwen-mobile_use.json" if self.tool == "mobile_use" else f"qwen{kind}-{self.tool}.json"
        tool = json.loads(template(file))
        tool["description"] = tool["description"].replace("{width}", "999").replace("{height}", "999")
        listed = [tool, *(one.model_dump() for one in self.tools)]
        written = [json.dumps({"type": "function", "function": one}, ensure_ascii=False) for one in listed]
        return filled(f"qwen{kind}-system.txt", tools="\n".join(written))


class Qwen36Family(Qwen35Family):
    """Qwen3.6, Qwen3.7 and Qwen-CUA: 19 actions, and a final reply without a call."""

    version = "3.6"
    spec = INTERNAL
    internal = True
    prose = True


class Qwen38Family(Qwen36Family):
    """Qwen3.8: as Qwen3.6, with the thinking of past turns in `reasoning_content`."""

    version = "3.8"
    reasons = True


def read_xml(text: str, sides: Sides, tool: Tool, functions: Functions = NO_FUNCTIONS) -> ParsedReply:
    """Reads the thought and the actions of a reply with calls as XML; never raises for any text of a model.

    Calls in JSON are read, too, as a server's parser leaves them.

    Args:
        text: the sentence, then one or several `<tool_call>`s.
        sides: width and height of the screen, in units of the coordinates.
        tool: the family's tool.
        functions: functions of the environment, if `tool` is open for their calls.
    """
    begun, in_json = _CALL.search(text), _JSON.search(text)
    if begun and not (in_json and in_json.start() < begun.start()):
        found = perform(text, begun.start(), _calls(text, begun, tool, functions), sides, tool)
        thought = text[: begun.start()].strip()
    else:
        found = read_calls(text, sides, tool)
        thought = text[: text.rfind(found.text)].strip() if found.text else text.strip()
    label = _LABEL.match(thought)
    rest = thought[label.end() :].strip() if label else thought
    one = label is not None and "\n" not in rest
    return ParsedReply(
        rest if one else thought,
        found.text,
        found.actions,
        found.error,
        found.parts,
        found.unused,
        tagged=True,
        after=found.after.replace("</function>", ""),
        closed=found.closed,
        joint=_JOINT if one else "\n\n",
    )


def _calls(text: str, begun: re.Match[str] | None, tool: Tool, functions: Functions) -> Iterator[Written]:
    """Yields the arguments, begin and end of each call; raises ValueError for a call of another tool."""
    grammar = functions.grammar
    while begun:
        call = next(grammar.calls(text, begun.end()), None)
        if call is None:
            raise ValueError("a tool call without a function")
        if call.twice:
            raise ValueError(f"argument {call.twice!r} twice")
        if call.name not in tool.names and not tool.open:
            raise ValueError(no_tool(call.name, tool))
        own = call.name in tool.names
        given = valued(call.arguments, tool) if own else functions.call(call.name, call.arguments)
        yield given, begun.start(), call.end
        begun = _CALL.search(text, call.end)


def _gives_up(words: str) -> bool:
    """Checks whether a final reply reports that the task was not done."""
    unable = _UNABLE.search(words)
    return bool(_NOT_DONE.search(words) or (unable and not _YET.search(words, unable.end())))


def _acts(text: str) -> bool:
    """Checks whether a reply has a call, the label of one, or a tag, and so is no final reply."""
    return bool(_TAG.search(text) or _LABEL.search(text)) or untagged(text) != text.strip() or names_call(text)


def in_xml(tool: str, arguments: Mapping[str, Any]) -> str:
    """Writes a call as XML, as the chat templates do."""
    given = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}\n"
        "</parameter>\n"
        for key, value in arguments.items()
    )
    return f"{OPEN}\n<function={tool}>\n{given}</function>\n{CLOSE}"


def _between(thought: str) -> str:
    return f"{THINKS}\n{thought}\n{THOUGHT_END}\n\n"


def _texts(action: Action) -> dict[str, str]:
    """Returns the texts of an action except the names of its keys, which the tool writes in another way."""
    texts = {key: value for key, value in action.model_dump(exclude={"key"}).items() if isinstance(value, str)}
    if isinstance(action, UseTool):
        texts["arguments"] = json.dumps(action.arguments, ensure_ascii=False, sort_keys=True)
    return texts
