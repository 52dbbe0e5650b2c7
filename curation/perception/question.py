"""Ask questions about a screen: presence and number of elements, values, checked boxes, order and visible text."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, zip_longest

from curation.perception.screen import LEAST_WIDTH, MARGIN, Perceived, RecognisedScreen
from schemas.observation import Element

COUNTED = {"button": "buttons", "text field": "text fields", "checkbox": "checkboxes", "radio": "radio buttons"}
"""Kinds that look the same everywhere and that a page lists completely, with their plural."""
MOST_COUNTED = 9
ABSENT = ("Delete", "Archive", "Print", "Refresh", "Sign out", "Upload")
"""Names for questions about elements that do not exist."""


def questions(screen: RecognisedScreen, most: int) -> list[Perceived]:
    """Ask at most `most` questions: the first of each sort, then the second; the screen decides which sort begins."""
    if screen.author == "page":
        sorts: tuple[Callable[[RecognisedScreen], Iterator[Perceived]], ...] = (
            counts,
            presence,
            values,
            checks,
            order,
            written,
        )
    else:  # a reader of pixels has words, but no kinds, and may overlook elements
        sorts = (order, written)
    in_turn = zip_longest(*(sort(screen) for sort in screen.turned(sorts, "sorts")))
    return list(islice((one for several in in_turn for one in several if one), most))


def counts(screen: RecognisedScreen) -> Iterator[Perceived]:
    """Ask for the number of elements of a kind."""
    found = Counter(element.kind for element in screen.elements)
    for kind in screen.turned([kind for kind in COUNTED if 0 < found[kind] <= MOST_COUNTED], "count"):
        wording = screen.pick(("How many {kinds} are there?", "Count the {kinds}."), f"count {kind}")
        yield Perceived(wording.replace("{kinds}", COUNTED[kind]), f"{found[kind]}.")


def presence(screen: RecognisedScreen) -> Iterator[Perceived]:
    """Ask whether an element of a name exists; about half of the names do not."""
    there = [one for one in screen.named if one.kind in ("button", "link", "tab", "checkbox", "radio")]
    names = {one.name.casefold() for one in screen.elements}
    for number, element in enumerate(screen.drawn(there, 2, "presence")):
        absent = screen.pick(ABSENT, f"absent {number}")
        missing = screen.pick(("yes", "no"), f"presence {number}") == "no" and absent.casefold() not in names
        name = absent if missing else element.name
        yield Perceived(f'Is there a {element.kind} "{name}"?', "No." if missing else "Yes.")


def values(screen: RecognisedScreen) -> Iterator[Perceived]:
    """Ask for a field's value, where all of it is visible."""
    for element in screen.drawn([one for one in screen.known if one.kind in ("text field", "select")], 2, "value"):
        wide = (element.box[2] - element.box[0]) * screen.width
        if len(element.value) * (LEAST_WIDTH + 2) <= wide:
            asked = screen.pick(("What does the {thing} hold?", "What stands in the {thing}?"), f"value {element.name}")
            answer = f'"{element.value}"' if element.value else "Nothing."
            yield Perceived(_about(asked, screen, element), answer)


def checks(screen: RecognisedScreen) -> Iterator[Perceived]:
    """Ask whether an element is checked."""
    for element in screen.drawn([one for one in screen.named if one.kind in ("checkbox", "radio")], 2, "check"):
        yield Perceived(_about("Is the {thing} checked?", screen, element), "Yes." if element.value else "No.")


def order(screen: RecognisedScreen) -> Iterator[Perceived]:
    """Ask which of two elements is further left, or higher up."""
    chosen = screen.drawn(screen.named, 4, "order")
    for one, other in zip(chosen[::2], chosen[1::2], strict=False):
        for axis, word in screen.turned(((0, "further left"), (1, "higher up")), f"order {one.name}"):
            gap = one.centre[axis] - other.centre[axis]
            if abs(gap) > MARGIN:
                first = one if gap < 0 else other
                yield Perceived(
                    f"Which is {word}: {screen.called(one)} or {screen.called(other)}?", f"{screen.called(first)}."
                )
                break


def written(screen: RecognisedScreen) -> Iterator[Perceived]:
    """Ask for the text at a place."""
    there = [one for one in screen.named if one.kind in ("button", "link", "tab", "text")]
    for number, element in enumerate(screen.drawn(there, 2, "written")):
        x, y = (round(min(1.0, max(0.0, part)), 4) for part in element.centre)
        wording = screen.pick(("What is written at {place}?", "Read the text at {place}."), f"written {number}")
        yield Perceived(wording, f'"{element.name}"', (x, y))


def _about(wording: str, screen: RecognisedScreen, element: Element) -> str:
    return wording.replace("{thing}", screen.called(element))
