"""InternVL: the model localises an element as `[[x1, y1, x2, y2]]` or `[[x, y]]`, in thousandths of the screen.

Its image processors cut a screen into tiles of a fixed size, while the trainer lays screens out as grids of patches. So
a server or `transformers` can run this family, but the trainer cannot train it.
"""

import re
from collections.abc import Sequence

from models.families.dialects import THOUSANDTHS
from models.families.family import ModelFamily
from models.families.prompt import Message, screen_part, text_part
from models.families.reading import ParsedReply
from models.families.screen import Size
from models.families.template import filled
from models.policy import Context
from schemas.action import Action, Click
from schemas.failure import UsageError
from schemas.observation import Observation

_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_COMMA = r"\s{0,9},\s{0,9}"
_PLACE = re.compile(
    rf"\[\s{{0,9}}\[\s{{0,9}}({_NUMBER}){_COMMA}({_NUMBER})(?:{_COMMA}({_NUMBER}){_COMMA}({_NUMBER}))?\s{{0,9}}\]\s{{0,9}}\]"
)

_MARKUP = re.compile(r"</?(?:ref|box|point)>")


class InternVlFamily(ModelFamily):
    """InternVL 2.5 and 3, asked for the box of an element."""

    templates = ("grounding",)
    dialects = ("box_v1",)
    max_new_tokens = 256
    asks_without = False
    shows_past = False
    own_dialect = "internvl"

    def messages(self, context: Context) -> list[Message]:
        """Builds a prompt of the current screen and the element to find; it has no history."""
        return self.question(filled("internvl-grounding.txt", instruction=context.instruction), [context.observation])

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`, with the screens first."""
        shown = [*(screen_part(screen, self.limits) for screen in screens), text_part(question)]
        return [{"role": "user", "content": shown}]

    def write(self, action: Action, screen: Size) -> str:
        """Writes a click as a box without extent.

        Raises:
            UsageError: any other action.
        """
        if not isinstance(action, Click):
            raise UsageError(f"internvl points at elements and cannot {action.type}.", "Take another `policy.family`.")
        x, y = round(action.x * 1000), round(action.y * 1000)
        return f"[[{x}, {y}, {x}, {y}]]"

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the click at the first point, else at the centre of the last box."""
        return read_boxes(answer)

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes the point alone."""
        return self.write_actions(actions, screen)


def read_boxes(text: str) -> ParsedReply:
    """Reads the click of a reply with points or boxes in thousandths."""
    found = list(_PLACE.finditer(text))
    if not found:
        return ParsedReply("", text.strip(), error=f"no place in {text[:80]!r}")
    place = next((one for one in found if one[3] is None), found[-1])
    numbers = [float(number) for number in place.groups() if number is not None]
    x, y = (sum(numbers[axis::2]) / len(numbers[axis::2]) / THOUSANDTHS[axis] for axis in (0, 1))
    if max(x, y) > 1:
        return ParsedReply("", place[0], error=f"outside of the screen: {place[0][:80]!r}")
    words = (_MARKUP.sub("", text[: place.start()]).strip(), text[place.end() :])
    return ParsedReply(words[0], place[0], (Click(x=x, y=y),), after=words[1])
