"""Captions of what changed, by rule."""

from curation.annotation import caption
from schemas.observation import Element


def element(name: str, kind: str = "button", left: float = 0.1, top: float = 0.1, value: str = "") -> Element:
    return Element(name, kind, (left, top, left + 0.1, top + 0.05), True, value)


def test_what_came_and_what_went_is_told_by_kind_and_name() -> None:
    assert caption([element("ok")], [element("ok"), element("back", "link")]) == 'link "back" appeared.'
    assert caption([element("ok"), element("back", "link")], [element("ok")]) == 'link "back" went away.'


def test_what_a_field_holds_now_is_told_before_anything_else() -> None:
    before = [element("", "text field")]
    after = [element("", "text field", value="ada"), element("ok")]
    assert caption(before, after) == 'text field now holds "ada"; button "ok" appeared.'
    assert caption(after[:1], before) == "text field now holds nothing."


def test_a_move_is_told_by_its_larger_part_and_a_tiny_one_not_at_all() -> None:
    assert caption([element("ok")], [element("ok", top=0.4, left=0.2)]) == 'button "ok" moved down.'
    assert caption([element("ok")], [element("ok", left=0.11)]) == ""


def test_elements_that_cannot_be_told_apart_are_counted_and_never_said_to_move() -> None:
    assert caption([element("x"), element("x", left=0.5)], [element("x", left=0.8), element("x", left=0.3)]) == ""
    assert caption([element("x")], [element("x"), element("x", left=0.5)]) == 'button "x" appeared.'


def test_of_many_changes_the_first_are_told_and_the_rest_counted() -> None:
    said = caption([], [element(name) for name in "abcde"])
    assert said == 'button "a" appeared; button "b" appeared; button "c" appeared; 2 more.'


def test_a_paragraph_is_not_repeated() -> None:
    assert caption([], [element("word " * 20, "text")]) == "text appeared."
    assert caption([element("t")], [element("t", value="v" * 50)]) == 'button "t" now holds a long text.'
