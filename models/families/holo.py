"""Holo 1.5 and 2: the model localises an element and replies with a point as JSON. It has no other action."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar, cast

from pydantic import ValidationError

from models.families.code.arguments import Arguments, meant
from models.families.family import QWEN25, ModelFamily
from models.families.prompt import Message, screen_part, text_part
from models.families.reading import ParsedReply, Sides, place_in, without_opening
from models.families.screen import Size
from models.families.template import filled
from models.policy import Context
from schemas.action import Action, Click, action_of
from schemas.failure import UsageError
from schemas.observation import Observation
from schemas.problem import named_problem

_DECODER = json.JSONDecoder()


class HoloFamily(ModelFamily):
    """Holo 1.5 on Qwen2.5-VL: pixels of the picture that it sees."""

    counts = "pixels"
    published = QWEN25
    templates = ("grounding",)
    dialects = ("box_v1",)
    max_new_tokens = 128
    asks_without = False
    shows_past = False
    file: ClassVar[str] = "holo-1.5-grounding.txt"
    named: ClassVar[dict[str, str]] = {"action": "click_absolute"}
    """Fields of a reply in addition to the point."""

    own_dialect = "json"

    def messages(self, context: Context) -> list[Message]:
        """Builds a prompt of the current screen and the element to find; it has no history."""
        return self.question(filled(self.file, instruction=context.instruction), [context.observation])

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`, with the screens first."""
        shown = [*(screen_part(screen, self.limits) for screen in screens), text_part(question)]
        return [{"role": "user", "content": shown}]

    def write(self, action: Action, screen: Size) -> str:
        """Writes a click as JSON.

        Raises:
            UsageError: any other action.
        """
        if not isinstance(action, Click):
            raise UsageError(
                f"holo only clicks on elements; it has no action {action.type}.", "Take another `policy.family`."
            )
        columns, rows = self.sides(screen)
        return json.dumps({**self.named, "x": round(action.x * columns), "y": round(action.y * rows)})

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the click of the first JSON object."""
        return _read(answer, self.sides(screen))

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes the point alone."""
        return self.write_actions(actions, screen)


class Holo2Family(HoloFamily):
    """Holo 2 on Qwen3-VL: thousandths of the screen; it may think first."""

    counts = "thousandths"
    max_new_tokens = 1024
    file: ClassVar[str] = "holo-2-grounding.txt"
    named: ClassVar[dict[str, str]] = {}


def _read(text: str, sides: Sides) -> ParsedReply:
    begin = text.find("{")
    thought = without_opening(text[:begin]).strip() if begin > 0 else ""
    shown = text[begin:].strip() if begin >= 0 else text.strip()
    try:
        found, end = _DECODER.raw_decode(text, begin) if begin >= 0 else (None, 0)
        given = Arguments(cast(dict[str, Any], found) if isinstance(found, dict) else {})
        own = [given.text(name) for name in ("note", "thought") if given.holds_text(name)]
        if (action := given.take("action")) not in (None, "click", "click_absolute"):
            raise ValueError(f"there is no action for {str(action)[:40]!r}")
        if missing := [axis for axis in "xy" if axis not in given.names]:
            raise ValueError("no place" if len(missing) == 2 else f"`{missing[0]}` is missing")
        x, y = place_in([given.take(axis) for axis in "xy"], sides)
        actions = meant(action_of({"type": "click", "x": x, "y": y}), given)
        inner = "\n".join(one for one in (thought, *own) if one)
        return ParsedReply(inner, shown, (*actions,), unused=given.unused, tagged=True, after=text[end:])
    except ValidationError as error:
        problem = named_problem(error)
    except (ValueError, RecursionError) as error:
        problem = str(error)[:120]
    return ParsedReply(thought, shown, error=f"{problem} in {shown[:80]!r}")
