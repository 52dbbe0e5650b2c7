"""What is said of a screen is true of its picture: held against the pixels of the fake sandbox, whose buttons are named
after their colours."""

import asyncio
import hashlib
import io
import re
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from PIL import Image, ImageChops

from curation.annotation import changed
from curation.perception.caption import captions
from curation.perception.perceive import MAKERS, descriptions, draw, marks, perceive, picture_name, placed, questions
from curation.perception.screen import RecognisedScreen, at
from environments.fake import COLOURS
from environments.pool import SandboxPool
from learning.data.sample import PLACE
from schemas.action import Action, Click, Type
from schemas.observation import Element, Observation, elements_json
from schemas.tables.step import Step
from tests.parts import FAKE

TEMPLATES = ("click-one", "click-target", "click-of-three", "two-steps", "three-steps", "enter-text")
FIELD = (Click(x=0.5, y=0.33), Type(content="ada"))


async def look() -> list[Observation]:
    shown: list[Observation] = []
    async with SandboxPool([FAKE]) as pool:
        for template in TEMPLATES:
            for seed in range(4):
                actions: tuple[Action, ...] = FIELD if template == "enter-text" and seed % 2 else ()
                async with pool.lease(FAKE.task(template), seed) as sandbox:
                    for action in actions:
                        await sandbox.perform(action)
                    shown.append(await sandbox.observe(elements=True))
    return shown


@pytest.fixture(scope="module")
def screens() -> list[RecognisedScreen]:
    return [screen_of(one) for one in asyncio.run(look())]


def screen_of(seen: Observation, author: str = "page") -> RecognisedScreen:
    digest = hashlib.sha256(seen.png).hexdigest()
    return RecognisedScreen(digest, seen.width, seen.height, seen.elements, author, seen.png)


def centres(screen: RecognisedScreen) -> dict[str, tuple[float, float]]:
    """Where the pixels of each colour lie, without asking any element; below the instruction."""
    pixels = np.asarray(Image.open(io.BytesIO(screen.png)).convert("RGB"))
    found: dict[str, tuple[float, float]] = {}
    for name, rgb in COLOURS.items():
        y, x = np.nonzero((pixels[60:] == rgb).all(axis=2))
        if x.size:
            wide, high = pixels.shape[1] * 2, pixels.shape[0] * 2
            found[name] = (int(x.min() + x.max()) / wide, int(y.min() + y.max() + 120) / high)
    return found


def test_a_description_names_the_colour_that_is_at_its_place(screens: list[RecognisedScreen]) -> None:
    made = [(screen, one) for screen in screens for one in descriptions(screen, 9)]
    assert len(made) > 40
    for screen, one in made:
        assert PLACE in one.question and one.place is not None
        if "text field" in one.answer:
            continue
        told = re.match(r'An? (\w+) button "(\w+)"', one.answer)
        assert told is not None and told[1] == told[2], one.answer
        x, y = centres(screen)[told[1]]
        assert one.place == pytest.approx((x, y), abs=0.03)


def test_regions_are_those_of_the_pixels_and_left_out_near_their_edges(screens: list[RecognisedScreen]) -> None:
    told = 0
    for screen in screens:
        for name, (x, y) in centres(screen).items():
            (element,) = (one for one in screen.elements if one.name == name)
            found = at(element)
            told += bool(found)
            if "left" in found:
                assert x < 1 / 3
            if "right" in found:
                assert x > 2 / 3
            if "lower" in found or "bottom" in found:
                assert y > 2 / 3
    assert told > 5
    assert at(Element("", "button", (0.3, 0.0, 0.36, 0.1), True)) == ""


def test_answers_agree_with_the_picture(screens: list[RecognisedScreen]) -> None:
    asked: set[str] = set()
    for screen in screens:
        seen = centres(screen)
        for one in questions(screen, 9):
            names = re.findall(r'"([^"]*)"', one.question)
            asked.add(one.question.split()[0] + (names[0] if "Which" in one.question else ""))
            if "many buttons" in one.question or "Count the buttons" in one.question:
                assert one.answer == f"{len(seen)}."
            elif one.question.startswith("Is there a button"):
                assert one.answer == ("Yes." if names[0] in seen else "No.")
            elif one.question.startswith("Which is"):
                axis = 0 if "left" in one.question else 1
                first = min(names, key=lambda name: seen[name][axis])
                assert one.answer == f'button "{first}".'
            elif "text field hold" in one.question or "text field?" in one.question:
                (held,) = (element.value for element in screen.elements if element.kind == "text field")
                assert one.answer == (f'"{held}"' if held else "Nothing.")
            elif one.place is not None:
                name = one.answer.strip('"')
                assert one.place == pytest.approx(seen[name], abs=0.03)
    assert len(asked) >= 5


def test_a_caption_tells_everything_once_in_reading_order(screens: list[RecognisedScreen]) -> None:
    for screen in screens:
        (one,) = captions(screen, 2)
        told = re.findall(r'button "(\w+)"', one.answer)
        assert set(told) == set(centres(screen)) and len(told) == len(set(told))
        heights = [centres(screen)[name][1] for name in told]
        assert heights == sorted(heights)


def test_marks_are_drawn_beside_what_they_number_and_hide_nothing(screens: list[RecognisedScreen]) -> None:
    made = 0
    for screen in screens:
        marked = placed(screen, [one for one in screen.elements if one in screen.known])
        if len(marked) < 2:
            continue
        before = Image.open(io.BytesIO(screen.png)).convert("RGB")
        after = Image.open(io.BytesIO(draw(screen, marked))).convert("RGB")
        changed = ImageChops.difference(before, after).convert("L").point(lambda level: 255 if level else 0)
        for element, label in marked:
            assert len(before.crop(label).getcolors() or []) == 1
            assert len(after.crop(label).getcolors() or []) > 1
            changed.paste(0, label)
            edges = (edge * size for edge, size in zip(element.box, (screen.width, screen.height) * 2, strict=True))
            left, top, right, bottom = (round(edge) for edge in edges)
            outline = Image.new("L", before.size)
            outline.paste(255, (left, top, right, bottom))
            outline.paste(0, (left + 1, top + 1, right - 1, bottom - 1))
            changed.paste(0, mask=outline)
        assert changed.getbbox() is None
        for one in marks(screen, 9):
            made += 1
            (number,) = re.findall(r"\d+", one.question + one.answer)
            name = re.findall(r'button "(\w+)"', one.question + one.answer)
            assert one.picture is not None and one.picture != screen.png
            if name:
                chosen = placed(screen, screen.drawn(screen.known, 8, "marks"))
                assert chosen[int(number) - 1][0].name == name[0]
    assert made > 20


def test_the_same_screen_is_told_in_the_same_words_and_different_ones_in_several(
    screens: list[RecognisedScreen],
) -> None:
    for kind, maker in MAKERS.items():
        once, again = ([maker(screen, 2) for screen in screens] for _ in range(2))
        assert once == again
        assert kind == "marks" or len({one.question for made in once for one in made}) > 2


def test_words_of_a_hostile_page_stay_words() -> None:
    name = '{place} <b>"'
    elements = (
        Element(name, "button", (0.1, 0.3, 0.6, 0.4), True),
        Element("ok", "button", (0.1, 0.7, 0.4, 0.8), True),
    )
    screen = RecognisedScreen("0" * 64, 160, 210, elements, "page")
    for maker in MAKERS.values():
        for one in maker(screen, 9):
            assert one.place is None or name not in one.question


def test_hidden_names_paragraphs_and_containers_are_no_names() -> None:
    elements = (
        Element("Close", "button", (0.7, 0.3, 0.8, 0.4), True),
        Element("a" * 60, "text", (0.1, 0.5, 0.9, 0.6), False),
        Element("Tab #1Tab #2", "text", (0.0, 0.7, 1.0, 0.8), True),
        Element("Tab #1", "tab", (0.0, 0.7, 0.3, 0.8), True),
        Element("From:", "text field", (0.1, 0.85, 0.8, 0.95), True, "Oslo"),
        Element("Like", "shape", (0.1, 0.1, 0.2, 0.2), True),
    )
    screen = RecognisedScreen("0" * 64, 160, 210, elements, "page")
    assert [one.name for one in elements if screen.legible(one)] == ["Tab #1"]


def test_who_reads_pixels_is_asked_for_words_alone_and_for_their_places() -> None:
    lines = (
        Element("Inbox", "text", (0.1, 0.2, 0.5, 0.3), False),
        Element("Sent", "text", (0.1, 0.6, 0.5, 0.7), False),
    )
    screen = RecognisedScreen("a" * 64, 160, 210, lines, "ocr")
    assert all(one.question.startswith(("Which is", "What is written", "Read")) for one in questions(screen, 9))
    step = Step.model_construct(trajectory_id="t", step=0, iteration=0, screenshot="a" * 64)
    made, pictures = perceive(screen, step, ("description", "caption", "question", "marks"), 2, datetime.now(UTC))
    assert {one.author for one in made} == {"ocr"} and not pictures
    assert {one.kind for one in made} == {"grounding", "description", "caption", "question"}
    assert len({one.annotation_id for one in made}) == len(made)


def test_questions_about_marks_name_both_pictures(screens: list[RecognisedScreen]) -> None:
    screen = next(one for one in screens if marks(one, 2))
    step = Step.model_construct(trajectory_id="t", step=0, iteration=0, screenshot=screen.digest)
    made, pictures = perceive(screen, step, ("marks",), 2, datetime.now(UTC))
    assert len(pictures) == 1 and {one.after for one in made} == {picture_name(pictures[0])}
    assert {one.before for one in made} == {screen.digest}


def test_of_two_screens_only_what_the_pictures_show_is_told() -> None:
    icon = Element("Close", "button", (0.7, 0.3, 0.8, 0.4), True)
    field = Element("", "text field", (0.1, 0.5, 0.9, 0.6), True)
    plain = {"trajectory_id": "t", "iteration": 0, "screen_width": 160, "screen_height": 210, "action_error": None}
    waited = plain | {"actions": ['{"type":"wait"}'], "x": None, "y": None}
    first, second = (
        Step.model_construct(**waited, step=at_, screenshot=name, next_screenshot="b", elements=elements_json(shown))
        for at_, name, shown in (
            (0, "a", (icon, field)),
            (1, "b", (replace(icon, box=(0.1, 0.3, 0.2, 0.4)), replace(field, value="ada"))),
        )
    )
    told = changed(first, second, datetime.now(UTC))
    assert told is not None and (told.thought, told.before, told.after) == ('text field now holds "ada".', "a", "b")
    still = changed(second, None, datetime.now(UTC))
    assert still is not None and still.thought == "Nothing."
