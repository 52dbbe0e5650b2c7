"""Searching texts that are kept by data file, within a limit of memory."""

from unittest.mock import patch

import pytest

from storage import texts
from storage.lake import Lake
from storage.texts import TextIndex
from tests.unit.storage.conftest import Rows


def found(index: TextIndex, lake: Lake, text: str, iteration: int | None = None) -> set[str]:
    return set(index.find(lake._table("steps"), text, iteration).to_pylist())


@pytest.fixture
def filled(lake: Lake, row: Rows) -> Lake:
    for iteration in range(3):
        lake.append(
            "steps", [row("steps", trajectory_id=f"t{iteration}", iteration=iteration, thought=f"No {iteration}")]
        )
    return lake


@pytest.mark.parametrize("max_bytes", [0, 200, 1_000_000])
def test_texts_beyond_the_limit_are_searched_and_not_kept(filled: Lake, max_bytes: int) -> None:
    index = TextIndex(max_bytes)
    for _ in range(2):
        assert found(index, filled, "NO") == {"t0", "t1", "t2"}
        assert found(index, filled, "no 1") == {"t1"}
        assert found(index, filled, "no", 2) == {"t2"}
    assert index.nbytes <= max_bytes
    assert (index.nbytes > 0) == (max_bytes > 0)


def test_a_file_is_read_once(filled: Lake, row: Rows) -> None:
    index = TextIndex()
    with patch("storage.texts._decoded", wraps=texts._decoded) as decoded:
        assert found(index, filled, "no", 1) == {"t1"} and decoded.call_count == 1
        assert found(index, filled, "no") == {"t0", "t1", "t2"} and decoded.call_count == 3
        filled.append("steps", [row("steps", trajectory_id="t3", iteration=3, thought="No 3")])
        assert found(index, filled, "no 3") == {"t3"} and decoded.call_count == 4


def test_an_action_that_is_no_json_is_searched_as_it_is(lake: Lake, row: Rows) -> None:
    lake.append("steps", [row("steps", trajectory_id="a", actions=["click(Here)"])])
    assert found(TextIndex(), lake, "k(h") == {"a"}


def test_no_text_is_found_across_two_values_of_an_action(lake: Lake, row: Rows) -> None:
    lake.append("steps", [row("steps", trajectory_id="a", actions=['{"type":"click","x":0.5,"y":0.25}'], thought="a")])
    assert found(TextIndex(), lake, "0.25") == {"a"}
    assert found(TextIndex(), lake, "0.5 0.25") == set() == found(TextIndex(), lake, " ")


def test_a_table_that_does_not_exist_holds_no_text(lake: Lake) -> None:
    assert found(TextIndex(), lake, "a") == set()
