"""Answers are compared by rules: text without its dress, numbers in any fitting unit, sets in any order, dates."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.search.answers import RightAnswer, date_in, number_in


@pytest.mark.parametrize(
    ("value", "right", "wrong"),
    [
        ("River Osk", ("river osk", " The River  Osk. ", '"River Osk"', "Ｒiver Osk"), ("Osk", "", "River Osk 2")),
        (12_400, ("12400", "12,400", "12 400", "12400.0", "about 12,400"), ("12.4", "12,4", "1,2400", "", "many")),
        (datetime.date(1861, 5, 3), ("1861-05-03", "3 May 1861", "May 3rd, 1861", "on 3 May 1861.", "03.05.1861"),
         ("1861-03-05", "May 1861", "1861", "")),
        (("Osk", "Velm", "A and Co"), ("Velm, Osk, A and Co", "osk; a and co; velm", "Osk\nVelm\nand A and Co"),
         ("Osk, Velm", "", "Osk, Velm, A and Co, Tarn")),
    ],
)  # fmt: skip
def test_an_answer_is_right_in_any_of_its_forms_and_no_other_one_is(
    value: str | float | datetime.date | tuple[str, ...], right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    answer = RightAnswer(value)
    assert [text for text in right if answer.share(text) != 1.0] == []
    assert [text for text in wrong if answer.share(text) == 1.0] == []


def test_a_unit_converts_into_its_own_kind_and_another_one_is_wrong() -> None:
    length = RightAnswer(42, "km", tolerance=0.5)
    right = ("42", "42 km", "42km", "42,000 metres", "26.1 miles", "42.5", "41.5 km", "42 kilometers")
    assert [text for text in right if length.share(text) != 1.0] == []
    assert [text for text in ("42 kg", "42 m", "43", "42 parsecs", "-42") if length.share(text)] == []
    assert RightAnswer(7, "people").share("7 people") == 1.0 and RightAnswer(7, "people").share("7 days") == 0.0
    assert RightAnswer(-3).share("−3") == 1.0 and RightAnswer(7).share("7 people") == 0.0


def test_a_set_is_partly_right_by_the_share_of_right_items() -> None:
    answer = RightAnswer(("Osk", "Velm", "Tarn"))
    assert answer.share("osk and velm") == pytest.approx(2 / 3)
    assert answer.share("Osk, Dorn") == pytest.approx(1 / 4)
    assert answer.share("Osk, Velm and Tarn") == 1.0
    assert answer.share("Osk, osk") == pytest.approx(1 / 3)
    assert answer.share("nothing") == 0.0


@given(st.text(max_size=40))
def test_any_text_can_be_an_answer(text: str) -> None:
    for value in ("Osk", 5, datetime.date(1900, 1, 1), ("Osk", "Velm")):
        assert 0.0 <= RightAnswer(value).share(text) <= 1.0
    number_in(text, "km")
    date_in(text)


@given(st.integers(-(10**9), 10**9))
def test_a_number_is_read_with_and_without_its_commas(number: int) -> None:
    assert number_in(f"{number:,}", "") == number_in(str(number), "") == number
