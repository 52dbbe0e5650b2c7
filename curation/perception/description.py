"""Element description: kind, appearance, place and use of the element at a place."""

from curation.perception.colours import colour
from curation.perception.screen import Perceived, RecognisedScreen, at
from schemas.observation import Element

WORDINGS = (
    "What is at the place of {place}? Describe it.",
    "Describe the element at {place}.",
    "{place}: what is this, and what is it for?",
)
USES = {
    "button": "It can be clicked.",
    "link": "A click follows it.",
    "tab": "A click opens it.",
    "option": "A click chooses it.",
    "checkbox": "A click checks or unchecks it.",
    "radio": "A click chooses it.",
    "select": "A click opens a list.",
    "text field": "Text can be typed into it.",
    "password field": "A password can be typed into it.",
    "textarea": "Text can be typed into it.",
    "slider": "It can be dragged.",
}
"""Uses by kind; other kinds are not described."""


def descriptions(screen: RecognisedScreen, most: int) -> list[Perceived]:
    """Describe at most `most` elements."""
    chosen = screen.drawn(screen.known, most, "description")
    return [
        Perceived(screen.pick(WORDINGS, f"description {number}"), described(screen, element), _inside(element))
        for number, element in enumerate(chosen)
    ]


def described(screen: RecognisedScreen, element: Element) -> str:
    """Describe kind, name, colour, place and use in two sentences at most."""
    looks = colour(screen.png, element)
    noun = " ".join(part for part in (looks, screen.called(element)) if part)
    use = USES.get(element.kind, "") if element.interactive else ""
    return f"{'An' if noun[0] in 'aeio' else 'A'} {noun}{at(element)}. {use}".strip()


def _inside(element: Element) -> tuple[float, float]:
    x, y = (min(1.0, max(0.0, part)) for part in element.centre)
    return round(x, 4), round(y, 4)
