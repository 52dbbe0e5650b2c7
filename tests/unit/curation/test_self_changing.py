"""What changes all the time is known from idle steps and others, and screens are compared without it."""

import io
from itertools import pairwise

import numpy as np
from PIL import Image, ImageDraw

from curation.self_changing import CELLS, Still, self_changing_cells


def page(clock: str = "", ticked: bool = False, text: str = "Fill in the form") -> bytes:
    image = Image.new("RGB", (320, 256), "white")
    pen = ImageDraw.Draw(image)
    pen.text((8, 8), text, fill="black")
    pen.rectangle((40, 100, 52, 112), outline="black", fill="green" if ticked else "white")
    pen.text((262, 240), clock, fill="black")
    stream = io.BytesIO()
    image.save(stream, "png")
    return stream.getvalue()


def idle(*times: str) -> list[tuple[bytes, bytes]]:
    return [(page(one), page(two)) for one, two in pairwise(times)]


def still(*times: str) -> Still:
    restless = self_changing_cells(idle(*times), idle(*times))
    assert restless is not None
    return Still(restless)


def same(still: Still, one: bytes, two: bytes) -> bool:
    names = [still.first_like(str(hash(png)), still.without(png)) for png in (one, two)]
    return names[0] == names[1]


def test_a_clock_that_was_seen_ticking_makes_no_two_screens_of_one() -> None:
    seen = still("12:00:01", "12:00:03", "12:00:06", "12:00:08")
    assert same(seen, page("12:00:01"), page("12:00:59")) and same(seen, page("12:00:01"), page("12:00:01"))
    assert same(seen, page("12:00:59"), page("12:01:00"))


def test_a_ticked_box_or_another_text_are_another_screen_whatever_the_clock_says() -> None:
    seen = still("12:00:01", "12:00:03", "12:00:06", "12:00:08")
    assert not same(seen, page("12:00:01"), page("12:00:01", ticked=True))
    assert not same(seen, page("12:00:01"), page("12:00:04", text="Fill in the farm"))


def test_a_page_that_goes_on_loading_is_no_clock_and_one_idle_step_tells_nothing() -> None:
    ticking = idle("12:00:01", "12:00:03", "12:00:06", "12:00:08")
    assert self_changing_cells([], ticking) is None and self_changing_cells([(page(), page())] * 20, ticking) is None
    assert self_changing_cells(ticking[:1], ticking) is None
    loading = Image.new("RGB", (320, 256), "gray")
    stream = io.BytesIO()
    loading.save(stream, "png")
    assert self_changing_cells([(page(), stream.getvalue())] * 20, ticking) is None


def test_what_is_waited_for_and_what_actions_change_are_no_clock() -> None:
    ticking, held = idle("12:00:01", "12:00:03", "12:00:06", "12:00:08"), [(page("12:00:01"), page("12:00:01"))]
    assert self_changing_cells(ticking, ticking) is not None
    assert self_changing_cells(ticking, held * 8) is None  # a spinner, which turns only while one waits
    assert self_changing_cells(held * 8, ticking) is None  # a display, which changes only by what is pressed
    assert self_changing_cells([*ticking, *held * 8], ticking) is None  # one that is late now and then


def test_only_what_is_near_what_ticked_is_left_out_and_screens_of_another_size_are_others() -> None:
    ticking = idle("12:00:01", "12:00:03", "12:00:06")
    restless = self_changing_cells(ticking, ticking)
    assert restless is not None and restless.shape == (CELLS, CELLS)
    rows, columns = np.nonzero(restless)
    assert rows.min() >= 28 and columns.min() >= 22 and restless.mean() < 0.05
    seen, small = Still(restless), Image.open(io.BytesIO(page())).resize((160, 128))
    stream = io.BytesIO()
    small.save(stream, "png")
    assert not same(seen, page(), stream.getvalue())
    assert self_changing_cells([(page(), stream.getvalue())] * 3, ticking) is None
