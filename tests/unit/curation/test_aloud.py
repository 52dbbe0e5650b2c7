"""What was said is put to the step that was under way."""

import pytest

from curation.aloud import Phrase, align, read_notes
from schemas.failure import UsageError

STARTS = [0.0, 2.0, 2.0, 5.5]


def test_notes_are_read_with_their_times() -> None:
    assert read_notes("0:04 the list\n\n 1:02.5  it is lower\n7 so far") == [
        Phrase(4.0, "the list"), Phrase(62.5, "it is lower"), Phrase(7.0, "so far"),
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["the list", "0:04", "0:04the list", "-3 before", "1:2:3 x"])
def test_a_line_without_a_time_is_named(line: str) -> None:
    with pytest.raises(UsageError, match="`notes`: line 2"):
        read_notes(f"0:01 fine\n{line}")


def test_words_belong_to_the_step_that_had_begun_last() -> None:
    said = [Phrase(9.0, "done"), Phrase(0.5, "hm"), Phrase(1.9, "that one"), Phrase(2.0, "now this")]
    assert align(said, STARTS) == {0: "hm that one", 2: "now this", 3: "done"}


def test_a_recording_that_began_before_or_after_the_trajectory_is_shifted() -> None:
    assert align([Phrase(4.0, "early")], STARTS, -10.0) == {0: "early"}
    assert align([Phrase(0.0, "late")], STARTS, 5.6) == {3: "late"}
    assert align([Phrase(0.0, "nothing to put it to")], []) == {}
