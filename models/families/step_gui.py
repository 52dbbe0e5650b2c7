"""Step-GUI and GELab-Zero: one user turn with the history as a summary, replies with a record of fields between tabs.

A reply is `<THINK> thought </THINK>`, then `explain:...`, `action:CLICK`, `point:x,y` and `summary:...` with tabs
between. The summary is the model's own text on all steps so far. The next prompt has the summary of the last step, and
no other history. A step of a demonstration has an empty summary, since a summary of this project would be a false
target; then the prompt lists the explanations since the last summary.

Source: github.com/stepfun-ai/gelab-zero @19465cf, `copilot_tools/parser_0920_summary.py`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from models.families.code.arguments import Arguments, meant, seconds_of, written_seconds
from models.families.dialects import THOUSANDTHS
from models.families.family import ModelFamily
from models.families.outside import unmarked
from models.families.prompt import Message, screen_part, text_part
from models.families.reading import ParsedReply, is_true, place_in, typing
from models.families.screen import Size
from models.families.template import filled, template
from models.families.thinking import between, readable
from models.policy import Context
from models.thoughts import templated_thought
from schemas.action import (
    MAX_WAIT_S,
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    LongPress,
    OpenApp,
    PressBack,
    PressHome,
    Type,
    Wait,
    action_of,
)
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from schemas.problem import named_problem

SECONDS = 2
"""Seconds of a written wait that has none."""
NO_HISTORY = "暂无历史操作"
"""Published text of a prompt without past steps."""
_NAMES = "explain|action|summary|value|return|point[12]?"
_BEGIN = re.compile(rf"(?:^|\t)[ ]*+(?:{_NAMES})[ ]*+:", re.MULTILINE)
_BREAK = re.compile(rf"\t|\n(?=[ ]*+(?:{_NAMES})[ ]*+:)")
"""A tab, or a line break before a known field."""
_KEYBOARD = ("keyboard_exists", "is_keyboard")
_TEXTS = ("value", "return")
"""Fields with a text that an action performs."""
_POINTED = {"CLICK": "click", "LONGPRESS": "long_press"}
_PLACE = re.compile(r"\s*+(-?\d{1,9})(?:[ ]*+,[ ]*+|[ ]++)(-?\d{1,9})\s*+")


class StepGuiFamily(ModelFamily):
    """Step-GUI and GELab-Zero, on phones: thousandths of the screen. Prompts show only the current screen."""

    templates = ("mobile",)
    dialects = ("box_v1",)
    max_new_tokens = 4096
    asks_without = False
    shows_past = False
    own_dialect = "step-gui"

    def messages(self, context: Context) -> list[Message]:
        """Builds one turn: the actions, the instruction and the history, then the screen, then the reply's form."""
        asked = filled("step-gui-status.txt", instruction=context.instruction, history=_history(context.turns))
        before, after = template("step-gui-task.txt") + asked, template("step-gui-format.txt")
        shown = [text_part(before), screen_part(context.observation, self.limits), text_part(after)]
        return [{"role": "user", "content": shown}]

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`, in one turn."""
        head = f"{template('step-gui-task.txt')}\n" if acts else ""
        shown = [text_part(f"{head}{question}"), *(screen_part(screen, self.limits) for screen in screens)]
        return [{"role": "user", "content": shown}]

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as a record with a template's explanation and an empty summary.

        Raises:
            UsageError: the family has no such action, or a text of the action has a tab or outer white space.
        """
        fields = _written(action)
        if fields is None:
            raise UsageError(f"step-gui has no action for {action.type}.", "Take another `policy.family`.")
        written = "\t".join([f"explain:{templated_thought(action) or action.type}", f"action:{fields}", "summary:"])
        if _texts(read_record(unmarked(written)).actions) != [unmarked(text) for text in _texts((action,))]:
            raise UsageError(
                f"step-gui has no way to write the texts of this {action.type}: a tab, or white space at an end.",
                "Leave the step out, or take another `policy.family`.",
            )
        return written

    def write_actions(self, actions: Sequence[Action], screen: Size) -> str:
        """Writes the action of a reply, which has one record: a click before a text is the text's place.

        Raises:
            UsageError: as `write`, or there are several actions that no record has together.
        """
        click, text = actions[0], actions[-1]
        if len(actions) == 2 and isinstance(click, Click) and isinstance(text, Type):
            before, summary = self.write(text, screen).rsplit("\t", 1)
            return "\t".join([before, f"point:{_point(click.x, click.y)}", summary])
        return self.write(self.only(actions), screen)

    def sentence(self, written: str) -> str:
        """Returns the explanation of a written action."""
        return _field(written, "explain")

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the thought and the action of the record."""
        return read_record(answer)

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole reply: the thought between tags, then the record."""
        written = self.write_actions(actions, screen)
        forms = (
            lambda inner: f"<THINK> {inner} </THINK>\n{written}",
            lambda inner: f"{between(inner)}{written}",
        )
        return readable(thought, written, forms, read_record)


@dataclass(frozen=True, slots=True)
class _Record:
    """Fields of a record by name, and the pieces that are no field."""

    fields: dict[str, str]
    words: list[str]
    last: str
    """Name of the last field."""
    twice: str
    """First name that the record has twice."""


def read_record(text: str) -> ParsedReply:
    """Reads the thought and the action of a reply without its thinking; never raises for any text of a model.

    Args:
        text: perhaps words, then fields `name:value` with tabs between. A line break before a known name counts as a
            tab.
    """
    begin = _BEGIN.search(text)
    if begin is None:
        return ParsedReply(text.strip(), "", error=f"no record in {text[-80:]!r}", tagged=True)
    thought, shown = text[: begin.start()], text[begin.start() :].strip()
    record = _record(shown)
    given = Arguments({key: value for key, value in record.fields.items() if key not in ("explain", "summary")})
    after = list(record.words)
    try:
        if record.twice:
            raise ValueError(f"field {record.twice!r} twice")
        *before, action = _actions(given, after)
        actions = (*before, *meant(action, given))
    except ValidationError as failure:
        return ParsedReply(thought, shown, error=f"{named_problem(failure)} in {shown[:80]!r}", tagged=True)
    except ValueError as failure:
        return ParsedReply(thought, shown, error=f"{str(failure)[:120]} in {shown[:80]!r}", tagged=True)
    return ParsedReply(
        thought,
        shown,
        actions,
        parts=len(actions),
        unused=given.unused,
        tagged=True,
        after="\n".join(after),
        closed=record.last not in _TEXTS,
    )


def _record(text: str) -> _Record:
    """Splits a record into its fields."""
    fields, words, last, twice = dict[str, str](), list[str](), "", ""
    for piece in _BREAK.split(text):
        name, colon, value = piece.partition(":")
        name, value = name.strip(), value.strip(" ")
        if not colon or not name:
            words += [piece.strip()] if piece.strip() else []
            continue
        if name == "summary" and value.startswith("\n"):  # a summary begins on the line of its name
            words.append(value.strip())
            value = ""
        twice = twice or (name if name in fields else "")
        fields[name], last = value.strip(), name
    return _Record(fields, words, last, twice)


def _actions(given: Arguments, after: list[str]) -> list[Action]:
    """Converts a record into actions, usually one; lines behind a point are added to `after`."""
    name = str(given.take("action") or "").upper()
    if name in _POINTED:
        x, y = _place(given, "point", after)
        return [action_of({"type": _POINTED[name], "x": x, "y": y})]
    if name == "SLIDE":
        (x, y), (to_x, to_y) = _place(given, "point1", after), _place(given, "point2", after)
        return [Drag(x=x, y=y, to_x=to_x, to_y=to_y)]
    if name == "TYPE":
        focused = is_true(given.take(*_KEYBOARD))
        place = _place(given, "point", after) if given.holds_text("point") and not focused else None
        before, text = typing(given.text("value"), place, enter=False, clear=False)
        return [*before, Type.model_validate({"content": text})]
    if name == "AWAKE":
        return [OpenApp(app_name=given.text("value"))]
    if name == "COMPLETE":
        return [Finished(content=given.take("return", "value") or "")]
    if name in ("INFO", "ABORT"):
        return [CallUser(content=given.take("value") or "")]
    others: dict[str, Action] = {"BACK": PressBack(), "HOME": PressHome()}
    if name not in (*others, "WAIT"):
        raise ValueError(f"there is no action for {name[:40]!r}" if name else "no action")
    given.look("value", "")
    return [others.get(name) or Wait(seconds=seconds_of(given, MAX_WAIT_S, "value"))]


def _place(given: Arguments, name: str, after: list[str]) -> tuple[float, float]:
    """Computes the place, in [0, 1], of a field with two whole numbers; raises ValueError for any other value."""
    value, _, words = given.text(name).partition("\n")
    found = _PLACE.fullmatch(value)
    if found is None:
        raise ValueError(f"{value[:60]!r} is no {name}: two whole numbers")
    after += [words.strip()] if words.strip() else []
    return place_in([*found.groups()], THOUSANDTHS)


def _written(action: Action) -> str | None:
    """Writes the name and the fields of an action; None if the family has no such action."""
    if isinstance(action, Click | LongPress):
        name = "CLICK" if isinstance(action, Click) else "LONGPRESS"
        return f"{name}\tpoint:{_point(action.x, action.y)}"
    if isinstance(action, Drag):
        return f"SLIDE\tpoint1:{_point(action.x, action.y)}\tpoint2:{_point(action.to_x, action.to_y)}"
    if isinstance(action, Type):
        return f"TYPE\tvalue:{action.content}"
    if isinstance(action, OpenApp):
        return f"AWAKE\tvalue:{action.app_name}"
    if isinstance(action, Finished):
        return f"COMPLETE\treturn:{action.content}"
    if isinstance(action, CallUser):
        return f"INFO\tvalue:{action.content}" if action.content else "ABORT\tvalue:"
    return f"WAIT\tvalue:{written_seconds(action.seconds, SECONDS)}" if isinstance(action, Wait) else None


def _point(x: float, y: float) -> str:
    return f"{round(x * THOUSANDTHS[0])},{round(y * THOUSANDTHS[1])}"


def _texts(actions: Sequence[Action]) -> list[Any]:
    """Lists the types and texts of actions."""
    return [value for one in actions for value in one.model_dump().values() if isinstance(value, str)]


def _field(written: str, name: str) -> str:
    return _record(written).fields.get(name, "")


def _history(turns: Sequence[PastStep]) -> str:
    """Returns the last step's summary; after a summary that is missing, also the explanations since then."""
    lines = list[str]()
    for turn in reversed(turns):
        if summary := _field(turn.action_text, "summary"):
            lines.append(summary)
            break
        lines.append(_field(turn.action_text, "explain"))
    return "\n".join(line for line in reversed(lines) if line) or NO_HISTORY
