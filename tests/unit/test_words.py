"""The project's names and prose have no banned words, its documents no long sentence, its changelog no long entry."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", ROOT / "scripts" / "words.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_project_passes(words: ModuleType) -> None:
    assert [f"{name}:{one.line}: {one.word}: {one.text}" for name, one in words.findings(ROOT)] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def say_stage(): pass", ["say"]),
        ("class Throne: pass", ["throne"]),
        ("def wait(told, other): pass", ["told"]),
        ("async def _bringUp(): pass", ["bring"]),
        ("def world_size(essay, handset): pass", []),
        ("from pathlib import Path\nhome = Path.home()", []),
        ("def shown(): pass", []),
    ],
)
def test_names_are_read_by_their_parts_and_allowed_as_a_whole(words: ModuleType, source: str, found: list[str]) -> None:
    assert [one.word for one in words.in_names(ast.parse(source), "module")] == found
    assert [one.word for one in words.in_names(ast.parse(""), "holding")] == ["holding"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Whoever asks gets it."""', ["whoever"]),
        ("x = 1  # beside the lake", ["beside"]),
        ('raise ValueError(f"{name} reigns no more")', ["reign"]),
        ('"""Returns `nobody` as a code word, and "somebody" as a quotation."""', []),
        ('"""Besides, this is fine."""', []),
        ("x = 1  # the lake's folder, beside the store's", ["beside"]),
        ("x = 1  # see [the page](beside-a-policy.md)", []),
    ],
)
def test_docstrings_comments_and_messages_are_read_and_code_in_them_is_not(
    words: ModuleType, source: str, found: list[str]
) -> None:
    assert [one.word for one in words.in_python(source, "module")] == found


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("view.sql", "-- The newest.\n-- Nobody asks.\nSELECT 'whoever' AS nobody", [(2, "nobody")]),
        ("view.sql", "SELECT 1,\n    'nobody has decided' AS reason", [(2, "nobody")]),
        ("page.js", "/* Drawn\n   beside the board. */\nconst beside = 1; // nobody", [(2, "beside"), (3, "nobody")]),
        ("page.js", 'const nobody = "x";\ntoast(`${nobody} was turned away`);', [(2, "nobody"), (2, "turned away")]),
        ("page.css", "/* One column beside it. */\n.beside { color: red; }", [(1, "beside")]),
        (
            "page.html.jinja",
            '<p class="x">{{ nobody }}\n Under way </p>{# for whoever #}',
            [(2, "under way"), (2, "whoever")],
        ),
        ("page.html", '<input placeholder="for nobody"><!-- beside it -->', [(1, "nobody"), (1, "beside")]),
        ("tasks.toml", 'instruction = "Write # nobody."  # nobody reads it', [(1, "nobody")]),
        ("Makefile", '# Nobody calls it.\nall:\n\techo "for nobody"', [(1, "nobody"), (3, "nobody")]),
        ("notes.txt", "# nobody", []),
    ],
)
def test_comments_strings_and_visible_text_of_other_files_are_read(
    words: ModuleType, name: str, source: str, found: list[tuple[int, str]]
) -> None:
    assert [(one.line, one.word) for one in words.in_texts(source, name)] == found


def test_sentences_of_a_document_are_counted_without_its_code_tables_and_headings(words: ModuleType) -> None:
    text = (
        "# A heading\n\n| a | table |\n\nOne sentence here. `code` begins another one.\n\n```\nnot one of them\n```\n"
    )
    assert words.sentences(text) == ["One sentence here.", "XXXXXX begins another one."]
    assert not list(words.in_sentences(text))
    long = "\n\n" + " ".join(["word"] * 36) + ".\n"
    assert [(one.line, one.word) for one in words.in_sentences(text + long)] == [(12, "36 words")]


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ("### Added\n\n- A [link](docs/run.md#b)\n  of two lines.\n\n### Fixed\n\n- Another.\n", []),
        ("- An entry.\n", [(5, "no group")]),
        ("### Fixed\n\n- Added: an entry.\n", [(7, "no group")]),
        ("### Other\n\n- An entry.\n", [(5, "unknown group")]),
        ("### Added\n\n- " + "word " * 20 + "\n  " + "word " * 6 + "\n", [(7, "26 words")]),
        ("### Added\n\n- " + "word " * 24 + "[one](docs/run.md)\n", []),
    ],
)
def test_entries_of_the_unreleased_version_stand_under_a_group_and_are_short(
    words: ModuleType, section: str, found: list[tuple[int, str]]
) -> None:
    text = f"# Changelog\n\n## 0.2.0, not released\n\n{section}\n## 0.1.0\n\n- {'word ' * 30}\n"
    assert [(one.line, one.word) for one in words.in_changelog(text)] == found
