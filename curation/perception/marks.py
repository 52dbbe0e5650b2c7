"""Set-of-mark: draw numbered boxes around elements of a screen, and ask about the numbers (arXiv 2310.11441)."""

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from common.picture import rgb_of
from curation.perception.screen import Perceived, RecognisedScreen
from schemas.observation import Element

MOST = 8
LABEL = (9, 11)
"""Width and height of a number's label in pixels, for a screen of MiniWoB++'s size."""
SIZE = 210
"""Height of a screen with labels of that size; higher ones have larger labels."""
PEN, PAPER = (200, 0, 160), (255, 255, 255)

Box = tuple[int, int, int, int]


def marks(screen: RecognisedScreen, most: int) -> list[Perceived]:
    """Ask at most `most` questions about one picture; none where fewer than two elements can be marked."""
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

    A label lies on a plain piece of the picture next to its element, so that it hides nothing, and off the other
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
