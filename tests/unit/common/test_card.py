"""A card's front matter is YAML that reads back, and its tables keep texts of others from becoming markup."""

import yaml

from common.card import card_of, code, is_license, rows_of, section, size_category


def test_a_front_matter_reads_back_without_empty_keys() -> None:
    front = {"license": "mit", "tags": ["a: b", "no"], "base_model": "", "configs": [], "pretty_name": "yes: 'ünï'"}
    text = card_of(front, "A *title*", "Body.", "")
    _, matter, body = text.split("---\n", 2)
    assert yaml.safe_load(matter) == {"license": "mit", "tags": ["a: b", "no"], "pretty_name": "yes: 'ünï'"}
    assert body == "\n# A \\*title\\*\n\nBody.\n"


def test_a_table_has_one_line_a_row_and_escapes_markup_and_control_characters() -> None:
    table = rows_of(("name", "n"), [("a|b\n<img src=x>\x1b[0m", 12345), (None, True)])
    assert table.splitlines()[2:] == ["| a\\|b \\<img src=x\\>\\\\x1b\\[0m | 12,345 |", "|  | True |"]
    assert rows_of(("n",), [(one,) for one in range(5)], most=3).splitlines()[-1] == "2 more rows are not listed."
    assert rows_of(("n",), []) == "" and section("Empty", "") == ""


def test_code_is_fenced_by_more_backticks_than_it_has() -> None:
    assert code("a = 1", "python") == "```python\na = 1\n```"
    assert code("```\nx\n```").startswith("````\n")


def test_licences_and_sizes_have_the_hubs_form() -> None:
    assert is_license("cc-by-nc-sa-4.0") and not is_license("MIT License") and not is_license("")
    assert [size_category(n) for n in (0, 999, 1000, 10**12)] == ["n<1K", "n<1K", "1K<n<10K", "n>1B"]
