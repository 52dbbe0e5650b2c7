"""Placeholders of templates whose words come in order."""

import pytest

from environments.placeholder import NotFilled, filled_in_order


@pytest.mark.parametrize(
    ("text", "words", "made"),
    [
        ("Move {} into {}.", ("a", "b"), "Move a into b."),
        ("Write {1} for every {0}.", ("a", "b"), "Write b for every a."),
        ("Write {{}} and {{name}}.", (), "Write {} and {name}."),
        ("{} is {}", (0, ""), "0 is "),
    ],
)
def test_words_fill_a_template_in_order_or_by_number(text: str, words: tuple[object, ...], made: str):
    assert filled_in_order(text, words) == made


@pytest.mark.parametrize(
    ("text", "named"), [("Open {file}.", "{file}"), ("{} {}", "{}"), ("{2}", "{2}"), ("a } b", "}")]
)
def test_a_brace_that_stands_for_nothing_is_named(text: str, named: str):
    with pytest.raises(NotFilled) as refused:
        filled_in_order(text, ["one"])
    assert named in str(refused.value)
