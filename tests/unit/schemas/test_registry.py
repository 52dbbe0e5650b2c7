"""Parts are found by name or by dotted path, and what is not there is said with what is."""

from pathlib import Path

import pytest

from schemas.config.section import Count, Section
from schemas.failure import UsageError
from schemas.registry import Registry, options_of
from schemas.table import Expectation, Row, between
from tests.fixtures.sentences import Sentences

PARTS = Registry("steps.row", Row, {"step": "schemas.tables.step:Step", "lost": "schemas.tables.step:Nothing"})
EXPECTED = between("step", 0, 1, because="of a test")


def test_a_built_in_part_is_found_by_name_and_anybodys_by_dotted_path() -> None:
    assert PARTS.class_of("step") is PARTS.class_of("schemas.tables.step:Step")
    assert PARTS.class_of("schemas.tables.pair:Pair").__name__ == "Pair"
    found = Registry("x", Expectation, {}).instance_of(f"{__name__}:EXPECTED")
    assert found.because == "of a test"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("stap", "there is no 'stap'"),
        ("no_such_package:Part", "cannot be imported"),
        ("lost", "cannot be imported"),
        ("schemas.failure:UsageError", "not a subclass of schemas.table.Row"),
        ("schemas.tables.step:TABLE", "not a subclass of schemas.table.Row"),
    ],
)
def test_what_is_not_there_is_refused_by_the_name_of_its_key(name: str, problem: str) -> None:
    with pytest.raises(UsageError, match=rf"`steps\.row`.*{problem}"):
        PARTS.class_of(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import json\n\nraise RuntimeError('boom')\n", r"RuntimeError: boom \(.*broken\.py, line 3\)"),
        ("import json\njson.loads('{')\n", r"JSONDecodeError: .* \(.*broken\.py, line 2\)"),
        ("class Part\n    pass\n", r"SyntaxError: expected ':' \(.*broken\.py, line 1\)"),
        ("\nNone.part\n", r"'NoneType' object has no attribute 'part' \(.*broken\.py, line 2\)"),
        ("\nimport no_such_package\n", r"No module named 'no_such_package' \(.*broken\.py, line 2\)"),
    ],
)
def test_a_module_that_fails_when_it_is_imported_is_named_with_its_file_and_line(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=rf"`steps\.row`: broken:Part cannot be imported: {said}\.") as refused:
        PARTS.class_of("broken:Part")
    assert refused.value.hint


def test_a_path_that_no_module_can_have_is_refused(sentence: Sentences) -> None:
    with sentence.raises(UsageError, "steps.row"):
        PARTS.class_of(".part:Part")


class Sizes(Section):
    width: Count = 1


def test_options_of_a_part_are_closed_and_typed() -> None:
    assert options_of(Sizes, {"width": 2}, "draw.options").width == 2
    with pytest.raises(UsageError, match=r"`draw\.options\.widht`.*`width`"):
        options_of(Sizes, {"widht": 2}, "draw.options")
    with pytest.raises(UsageError, match=r"`draw\.options\.width`.*got 0"):
        options_of(Sizes, {"width": 0}, "draw.options")
