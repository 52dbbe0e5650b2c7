"""What people decided elsewhere is looked at before a row of an import is written."""

import pytest

from curation.converters.exchanged import About, Decided, Exchanged, Place, Refused
from tasks.exchange.bring import _unfit  # pyright: ignore[reportPrivateUsage]

PLACE = Place("answers.json", 3)


def record(boundary: str | None = None, **changes: str) -> Exchanged:
    fields = {"person": "ada+lab@example.org", "decision": "accept", "note": "", **changes}
    decided = Decided(None, action=None, thought=None, **fields)  # pyright: ignore[reportArgumentType]
    return Exchanged(
        "a", "Open it.", (), decided=(decided,), about=About.model_validate({"failure_boundary": boundary})
    )


def test_a_decision_of_anybody_with_an_address_is_taken() -> None:
    assert _unfit(record(), set(), PLACE) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (record(person="ada/bob"), "`person`"),
        (record(note="x" * 5_000), "`note`"),
        (record(boundary="sandbox"), "`decision`"),
    ],
)
def test_one_that_no_lake_keeps_is_refused_by_file_line_and_field(found: Exchanged, said: str) -> None:
    refused = _unfit(found, set(), PLACE)
    assert isinstance(refused, Refused) and said in str(refused) and "answers.json, line 3" in str(refused)
