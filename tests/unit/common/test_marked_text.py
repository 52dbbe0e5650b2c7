"""Texts that a user writes may begin with a byte order mark."""

from pathlib import Path

import pytest

from common.text import unmarked
from schemas.config.profiles import read_toml
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_config_is_read_with_a_mark_or_without(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "flywheel.toml"
    file.write_text("[suite]\nseeds = 3  # ä\n", encoding)
    assert read_toml(file) == {"suite": {"seeds": 3}}


def test_only_the_first_line_has_a_mark() -> None:
    assert list(unmarked(["\ufeffa", "\ufeffb"])) == ["a", "\ufeffb"]
    assert list(unmarked([])) == []


@pytest.mark.parametrize(("encoding", "at"), [("latin-1", 9), ("utf-16", 0)])
def test_a_config_in_another_encoding_is_refused_with_the_place(
    tmp_path: Path, encoding: str, at: int, sentence: Sentences
) -> None:
    (file := tmp_path / "flywheel.toml").write_bytes('name = "B\u00fcro"\n'.encode(encoding))
    with sentence.raises(UsageError, "flywheel.toml", "UTF-8", at):
        read_toml(file)
