"""UI-TARS 1.0, 1.5 and 2, and Doubao.

UI-TARS 1.0 and 1.5, and Doubao, have the template and the instruction in the first user turn; replies are text. Their
checkpoints write box tokens around coordinates, which a decoder drops as special tokens. Past replies and training
targets get the box tokens back, as in the public clients (`add_box_token`, README_deploy.md).

UI-TARS-2 has the prompt as three system turns, and replies with a thought between tags and calls as XML. Its weights
are not published. The prompt comes from its public client (UI-TARS-desktop, the mode for GUIs), without the time of
day, since a sample could not reproduce it. This project describes the additional functions of the template `hybrid` in
its own words. Points are thousandths of the screen.
"""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from models.families.dialects import format_action, format_reply
from models.families.family import QWEN25, ModelFamily
from models.families.outside import unmarked
from models.families.prompt import Message, screen_turn, text_turn
from models.families.reading import WIDE, ParsedReply, read_text
from models.families.screen import Size
from models.families.template import filled, template
from models.families.thinking import readable
from models.policy import Context
from schemas.action import (
    Action,
    Click,
    LeftDouble,
    MouseDown,
    MouseUp,
    Note,
    TripleClick,
    UseTool,
    type_and_place,
)
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from schemas.observation import Observation

_BOX = re.compile(r"(start_box|end_box)='(\(\s*\d+\s*,\s*\d+\s*\))'")


class UiTarsFamily(ModelFamily):
    """Common base of UI-TARS's families.

    Raises:
        UsageError: the family has no template of the requested dialect.
    """

    forms: ClassVar[Mapping[str, Mapping[str, str]]]
    """Template files by `policy.template` and dialect, the family's own dialect first."""
    boxes = False
    """Whether coordinates are between box tokens in `box_v1`."""
    templates = ("computer", "mobile", "grounding")
    several = ("computer", "mobile")
    folds = True
    max_new_tokens = 1000
    asks_without = False

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        forms = self.forms[self.template]
        if config.dialect in forms:
            self.dialect = config.dialect
        elif config.dialect == "box_v1":  # the default; it selects the family's own dialect
            self.dialect = next(iter(forms))
        else:
            raise UsageError(
                f"`policy.dialect` is {config.dialect}, and the template {self.template} of {config.family} is written "
                f"in {' and '.join(forms)}.",
                f"Set it to {next(iter(forms))}.",
            )
        self._file = forms[self.dialect]

    @property
    def points(self) -> bool:
        """Checks whether a reply is a point alone."""
        return self.template == "grounding" and self.boxes

    def messages(self, context: Context) -> list[Message]:
        """Builds a chat of template and instruction, then, step by step, a screen and the reply to it."""
        chat = [text_turn("user", filled(self._file, instruction=context.instruction))]
        return [*chat, *self.steps(context, lambda turn: self._reply(turn.thought, self._boxed(turn.action_text)))]

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`; a question for an action uses the template."""
        asked = filled(self._file, instruction=question) if acts else question
        return [text_turn("user", asked), *(screen_turn(screen, self.limits) for screen in screens)]

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action, with box tokens if the family has them.

        Raises:
            UsageError: the family has no such action.
        """
        if isinstance(action, Note | UseTool) or _is_at_pointer(action):
            name = self.name or self._registered
            raise UsageError(f"{name} has no action for {type_and_place(action)}.", "Take another `policy.family`.")
        if self.points and isinstance(action, Click):
            columns, rows = self.sides(screen)
            return f"({round(action.x * columns)},{round(action.y * rows)})"
        return self._boxed(format_action(action, self.dialect, sides=self.sides(screen)))

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads as `ModelFamily.read_answer`; a bare point is a click if the template asks for a point."""
        return read_text(answer, self.sides(screen), self.template == "grounding")

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes as `ModelFamily.reply`; for grounding, without a thought."""
        return self._reply(thought, self.write_actions(actions, screen))

    def _reply(self, thought: str, written: str) -> str:
        return written if self.points else format_reply("" if self.template == "grounding" else thought, written)

    def _boxed(self, written: str) -> str:
        if not self.boxes or self.dialect != "box_v1" or self.points:
            return written
        return _BOX.sub(r"\1='<|box_start|>\2<|box_end|>'", written)


class UiTars10Family(UiTarsFamily):
    """UI-TARS 1.0 on Qwen2-VL: thousandths of the screen."""

    boxes = True
    forms: ClassVar[Mapping[str, Mapping[str, str]]] = {
        name: {"box_v1": f"ui-tars-1.0-{name}.txt"} for name in ("computer", "mobile", "grounding")
    }


class UiTars15Family(UiTarsFamily):
    """UI-TARS 1.5 on Qwen2.5-VL: pixels of the picture that it sees."""

    boxes = True
    counts = "pixels"
    published = QWEN25
    forms: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "computer": {"box_v1": "ui-tars-1.5-computer-box.txt", "point": "ui-tars-1.5-computer-point.txt"},
        "mobile": {"point": "ui-tars-1.5-mobile-point.txt"},
        "grounding": {"point": "ui-tars-1.5-grounding-point.txt"},
    }

    @property
    def points(self) -> bool:
        """Returns false: the grounding template asks for a click."""
        return False


class DoubaoFamily(UiTarsFamily):
    """Doubao and Seed: thousandths of the screen, as points or as boxes."""

    forms: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "computer": {"point": "ui-tars-1.5-computer-point.txt", "bbox4": "doubao-computer-bbox4.txt"},
        "mobile": {"point": "ui-tars-1.5-mobile-point.txt"},
        "grounding": {"point": "ui-tars-1.5-grounding-point.txt"},
    }


PROMPTS = ("ui-tars-2-think.txt", "ui-tars-2-task.txt", "ui-tars-2-functions.txt")
TOOLS = "tools.txt"
_POINTS = (("", "point"), ("to_", "end_point"))
_LACKS = ("long_press", "open_app", "middle_single", "triple_click", "note", "tool")
"""Actions that UI-TARS-2 lacks, as it lacks the buttons of phones."""


class UiTars2Family(ModelFamily):
    """UI-TARS-2: thousandths of the screen. Prompts show each of the last screens before the reply to it."""

    dialects = ("box_v1",)
    templates = ("computer", "hybrid")
    several = ("computer", "hybrid")
    joint = "\n"
    folds = True
    max_new_tokens = 4096
    asks_without = False
    own_dialect = "xml"

    def messages(self, context: Context) -> list[Message]:
        """Builds a chat of the prompt and the instruction, then, step by step, a screen and the reply to it."""
        chat = [*self._prompt(), text_turn("user", context.instruction)]
        return [*chat, *self.steps(context, lambda turn: self._reply(turn.thought, turn.action_text))]

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`."""
        head = self._prompt() if acts else []
        return [*head, text_turn("user", question), *(screen_turn(screen, self.limits) for screen in screens)]

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as a call.

        Raises:
            UsageError: the family has no such action.
        """
        middle = isinstance(action, MouseDown | MouseUp) and action.button == "middle"
        lacks = middle or action.type.startswith("press_") or action.type in _LACKS
        if lacks or _is_at_pointer(action):
            raise UsageError(f"ui-tars-2 has no action for {type_and_place(action)}.", "Take another `policy.family`.")
        columns, rows = self.sides(screen)
        fields = action.model_dump(exclude={"type"})
        given: dict[str, str] = {}
        for prefix, name in _POINTS:
            if f"{prefix}x" in fields:
                x, y = round(fields.pop(f"{prefix}x") * columns), round(fields.pop(f"{prefix}y") * rows)
                given["start_point" if action.type == "drag" and not prefix else name] = f"<point>{x} {y}</point>"
        if (seconds := fields.pop("seconds", None)) is not None:
            given["time"] = str(round(seconds))
        given = {**{key: value for key, value in fields.items() if value or action.type != "finished"}, **given}
        lines = [f"<parameter={key}>{_ended(value)}</parameter>" for key, value in given.items()]
        name = "move_to" if action.type == "move" else action.type
        body = "\n".join([f"<function={name}>", *lines, "</function>"])
        written = f"<seed:tool_call>\n{body}\n</seed:tool_call>"
        read = read_text(unmarked(written), WIDE).actions
        if [_texts(one) for one in read] != [{key: unmarked(value) for key, value in _texts(action).items()}]:
            raise UsageError(
                f"ui-tars-2 has no way to write the texts of this {action.type}, which end its own tags.",
                "Leave the step out, or take another `policy.family`.",
            )
        return written

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes the thought, then the call."""
        return self._reply(thought, self.write_actions(actions, screen))

    @staticmethod
    def _reply(thought: str, written: str) -> str:
        forms = (lambda thought: f"<thinkt>{thought}</thinkt>{written}",)
        return readable(thought, written, forms, lambda answer: read_text(answer, WIDE))

    def _prompt(self) -> list[Message]:
        files = (*PROMPTS, TOOLS) if self.template == "hybrid" else PROMPTS
        return [text_turn("system", template(file)) for file in files]


def _is_at_pointer(action: Action) -> bool:
    """Checks whether an action is several clicks without a place, which no prompt of UI-TARS has."""
    return isinstance(action, LeftDouble | TripleClick) and action.x is None


def _texts(action: Action) -> dict[str, str]:
    return {key: value for key, value in action.model_dump().items() if isinstance(value, str)}


def _ended(value: str) -> str:
    """Writes an argument; a new line at its end, which submits, is escaped as the prompt requires."""
    return value[:-1] + "\\n" if value.endswith("\n") else value
