"""Dense caption: describe a whole screen element by element, in reading order."""

from curation.perception.screen import MAX_NAME, Perceived, RecognisedScreen, at
from schemas.observation import Element, elements_of
from schemas.tables.step import Step

WORDINGS = ("Describe this screen.", "What is on this screen?", "What does the screen show?")
MOST = 6
"""Maximum number of listed elements; additional elements are only counted."""
KNOWN_AT_SIGHT = ("text field", "password field", "textarea", "checkbox", "radio")
ROW = 0.03
"""Height of a row as a share of the screen's height; elements that begin within it are in one row."""


def captions(screen: RecognisedScreen, most: int) -> list[Perceived]:
    """Make one caption, if any element can be described."""
    shown = sorted((one for one in screen.elements if tellable(screen, one)), key=_reading_order)
    if not shown:
        return []
    listed = [f"{screen.called(one)}{_held(one)}{at(one)}" for one in shown[:MOST]]
    if len(shown) > MOST:
        listed.append(f"and {len(shown) - MOST} more")
    return [Perceived(screen.pick(WORDINGS, "caption"), f"{'; '.join(listed)}.")]


def tellable(screen: RecognisedScreen, element: Element) -> bool:
    """Whether words can describe an element, because its name is legible or its kind is obvious."""
    return screen.legible(element) or element.kind in KNOWN_AT_SIGHT


def listed_elements(step: Step) -> list[Element]:
    """Return the elements of a step's screen that words can describe."""
    elements = elements_of(step.elements)
    screen = RecognisedScreen(step.screenshot, step.screen_width, step.screen_height, tuple(elements), "page")
    return [one for one in elements if tellable(screen, one)]


def _reading_order(element: Element) -> tuple[int, float]:
    return int(element.box[1] / ROW), element.box[0]


def _held(element: Element) -> str:
    if element.kind in ("checkbox", "radio"):
        return " (checked)" if element.value else ""
    fits = element.kind in ("text field", "textarea", "select") and 0 < len(element.value) <= MAX_NAME // 2
    return f' holding "{element.value}"' if fits else ""
