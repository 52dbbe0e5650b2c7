"""Make perception annotations of a screen, of the requested kinds, from the page's elements or a reader of pixels.

The screens of an iteration are sampled by their content, so the same iteration always gives the same data.

An element description has the kind, appearance, place and use of the element at a place.

The colour that fills an element's box is found from its pixels.

For set-of-mark (arXiv 2310.11441), numbered boxes are drawn around elements, and questions ask for the numbers.

Questions about a screen ask for presence and number of elements, values, checked boxes, order and visible text.
"""

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import islice, zip_longest

from PIL import Image, ImageDraw, ImageFont

from common.picture import rgb_of
from curation.annotation import MOST_TARGETS, TrajectoryRoute, annotation, grounding_annotations
from curation.perception.caption import captions
from curation.perception.screen import LEAST_WIDTH, MARGIN, Perceived, RecognisedScreen, at
from schemas.action import Click, to_json
from schemas.observation import Element
from schemas.tables.annotation import Annotation, Kind
from schemas.tables.step import Step

COUNTED = {"button": "buttons", "text field": "text fields", "checkbox": "checkboxes", "radio": "radio buttons"}
"""Kinds with a uniform appearance that pages list completely, with their plural."""
MOST_COUNTED = 9
ABSENT = ("Delete", "Archive", "Print", "Refresh", "Sign out", "Upload")
"""Names for questions about elements that do not exist."""


def questions(screen: RecognisedScreen, most: int) -> list[Perceived]:
    """Ask at most `most` questions: the first of each sort, then the second of each; the screen decides which sort
    begins."""
    if screen.author == "page":
        sorts: tuple[Callable[[RecognisedScreen], Iterator[Perceived]], ...] = (
            counts,
            presence,
            values,
            checks,
            order,
            written,
        )
    else:  # a reader of pixels finds words, but no kinds, and may miss elements
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
    """Ask for a field's value, if the whole value is visible."""
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
        wording = screen.pick(("What is written at {place}?", "Read the text at {place}."), f"written {number}")
        yield Perceived(wording, f'"{element.name}"', _inside(element))


def _about(wording: str, screen: RecognisedScreen, element: Element) -> str:
    return wording.replace("{thing}", screen.called(element))


MOST = 8
LABEL = (9, 11)
"""Width and height of a number's label in pixels, for a screen of MiniWoB++'s size."""
SIZE = 210
"""Height of a screen with labels of this size; higher screens have larger labels."""
PEN, PAPER = (200, 0, 160), (255, 255, 255)

Box = tuple[int, int, int, int]


def marks(screen: RecognisedScreen, most: int) -> list[Perceived]:
    """Ask at most `most` questions about one picture; no question if fewer than two elements can be marked."""
    marked = placed(screen, screen.drawn(screen.known, MOST, "marks")) if screen.png else []
    if len(marked) < 2:
        return []
    picture = draw(screen, marked)
    found: list[Perceived] = []
    for element in screen.drawn([element for element, _ in marked], most, "asked"):
        number = next(at for at, (one, _) in enumerate(marked, 1) if one is element)
        if screen.pick(("which", "what"), f"mark {number}") == "which":
            found.append(Perceived(f"Which mark is on the {screen.called(element)}?", f"{number}.", picture=picture))
        else:
            found.append(Perceived(f"What does mark {number} show?", f"{screen.called(element)}.", picture=picture))
    return found


def placed(screen: RecognisedScreen, elements: Sequence[Element]) -> list[tuple[Element, Box]]:
    """Return the elements with room for a label, each with its label's box in pixels.

    A label lies on a plain piece of the picture next to its element, so that it hides nothing, and apart from other
    labels.
    """
    picture = rgb_of(screen.png)
    wide, high = (round(side * scale(screen)) for side in LABEL)
    boxes = {id(one): _pixels(screen, one) for one in elements}
    found: list[tuple[Element, Box]] = []
    for element in elements:
        left, top, right, bottom = boxes[id(element)]
        others = [box for name, box in boxes.items() if name != id(element)] + [label for _, label in found]
        for x, y in ((left - wide, top), (right + 1, top), (left, top - high), (left, bottom + 1)):
            label = (x, y, x + wide, y + high)
            on_screen = x >= 0 and y >= 0 and x + wide <= picture.width and y + high <= picture.height
            if on_screen and not any(_overlap(label, other) for other in others) and _plain(picture, label):
                found.append((element, label))
                break
    return found


def draw(screen: RecognisedScreen, marked: Sequence[tuple[Element, Box]]) -> bytes:
    """Draw a box around each element and its number, from 1, on its label; return the screen as PNG."""
    picture = rgb_of(screen.png)
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=9 * scale(screen))
    for number, (element, label) in enumerate(marked, 1):
        pen.rectangle(_pixels(screen, element), outline=PEN)
        pen.rectangle((*label[:2], label[2] - 1, label[3] - 1), fill=PEN)
        middle = ((label[0] + label[2]) / 2, (label[1] + label[3]) / 2)
        pen.text(middle, str(number), fill=PAPER, font=font, anchor="mm")
    out = io.BytesIO()
    picture.save(out, "png")
    return out.getvalue()


def scale(screen: RecognisedScreen) -> float:
    """Return the size of labels relative to a screen of `SIZE`."""
    return max(1.0, screen.height / SIZE / 2)


def _pixels(screen: RecognisedScreen, element: Element) -> Box:
    left, top, right, bottom = element.box
    return (
        round(left * screen.width),
        round(top * screen.height),
        min(screen.width, round(right * screen.width)) - 1,
        min(screen.height, round(bottom * screen.height)) - 1,
    )


def _plain(picture: Image.Image, box: Box) -> bool:
    """Whether a piece of a picture has one colour."""
    return picture.crop(box).getcolors(1) is not None


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (50, 80, 220),
    "orange": (240, 150, 30),
    "yellow": (250, 230, 50),
    "black": (20, 20, 20),
}
"""Unambiguous colours, without whites and greys, which are everywhere."""
NEAR = 60.0
"""Maximum distance in RGB of a named colour."""
FILLED = 0.5
"""Minimum share of the box that a colour fills."""


def colour(png: bytes, element: Element) -> str:
    """Return the name of the colour that fills an element's box; empty if none does, or without a picture."""
    if not png:
        return ""
    picture = _opened(png)
    left, top, right, bottom = (
        round(edge * size) for edge, size in zip(element.box, (picture.width, picture.height) * 2, strict=True)
    )
    found = picture.crop((left, top, max(left + 1, right), max(top + 1, bottom)))
    pixels = found.width * found.height
    count, rgb = max(found.getcolors(pixels) or [(0, ())])
    if count < FILLED * pixels or not isinstance(rgb, tuple):
        return ""
    name, distance = min(((name, _distance(rgb, known)) for name, known in COLOURS.items()), key=lambda one: one[1])
    return name if distance <= NEAR else ""


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5


_opened = lru_cache(maxsize=4)(rgb_of)


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


Maker = Callable[[RecognisedScreen, int], list[Perceived]]
MAKERS: Mapping[Kind, Maker] = {
    "description": descriptions,
    "caption": captions,
    "question": questions,
    "marks": marks,
}


@dataclass
class Chosen:
    """Sample of `most` of all passing screens, for perception data.

    A screen is identified by its first step. The sample has the screens with the smallest sha256, so sampling needs no
    state.
    """

    decisions: Mapping[str, TrajectoryRoute]
    """Decisions by trajectory; quarantined trajectories and environment failures give no perception data."""
    most: int
    steps: dict[str, tuple[Step, Step | None]] = field(default_factory=dict[str, tuple[Step, Step | None]])
    """Each screenshot's step and the following step."""

    def passing(self, trajectories: Iterable[Sequence[Step]]) -> Iterator[Sequence[Step]]:
        """Pass the steps of trajectories on, and add their screens to the sample."""
        for steps in trajectories:
            decision = self.decisions.get(steps[0].trajectory_id) if steps else None
            if decision is not None and decision.route in ("sft", "ct"):
                for step, following in zip_longest(steps, steps[1:]):
                    self.steps.setdefault(step.screenshot, (step, following))
                for digest in sorted(self.steps)[self.most :]:
                    del self.steps[digest]
            yield steps


def perceive(
    screen: RecognisedScreen, step: Step, kinds: Collection[str], most: int, now: datetime
) -> tuple[list[Annotation], list[bytes]]:
    """Make the annotations of a screen for every requested kind, and return them with the pictures drawn for them.

    A screen read from its pixels also gets grounding targets.
    """
    made: list[Annotation] = []
    pictures: list[bytes] = []
    if screen.author == "ocr":
        made += grounding_annotations(step, screen.elements, MOST_TARGETS, now, screen.author)
    for kind, maker in MAKERS.items():
        if kind in kinds:
            found = maker(screen, most)
            made += (_row(step, kind, screen, one, now, number) for number, one in enumerate(found))
            pictures += [one.picture for one in found[:1] if one.picture]
    return made, pictures


def picture_name(png: bytes) -> str:
    """Return the sha256 of a picture, its name in the lake."""
    return hashlib.sha256(png).hexdigest()


def _row(step: Step, kind: Kind, screen: RecognisedScreen, one: Perceived, now: datetime, number: int) -> Annotation:
    place = None if one.place is None else to_json(Click(x=one.place[0], y=one.place[1]))
    made = annotation(step, kind, screen.author, one.answer, place, now, number)
    drawn = {} if one.picture is None else {"before": screen.digest, "after": picture_name(one.picture)}
    return made.model_copy(update={"question": one.question, **drawn})
