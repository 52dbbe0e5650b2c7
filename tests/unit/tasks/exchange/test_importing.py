"""What people decided elsewhere is looked at before a row of an import is written."""

import json
import tracemalloc
from pathlib import Path

import pytest

from curation.converters.exchanged import About, Exchanged, ImportedReview, RecordPlace, RecordRefused
from tasks.exchange.importing import Request, _read, _unfit  # pyright: ignore[reportPrivateUsage]
from tests.unit.curation.converters.records import picture

PLACE = RecordPlace("answers.json", 3)


def record(boundary: str | None = None, **changes: str) -> Exchanged:
    fields = {"person": "ada+lab@example.org", "decision": "accept", "note": "", **changes}
    decided = ImportedReview(None, action=None, thought=None, **fields)  # pyright: ignore[reportArgumentType]
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
    assert isinstance(refused, RecordRefused) and said in str(refused) and "answers.json, line 3" in str(refused)


def test_a_data_set_is_read_a_record_at_a_time(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.png").write_bytes(picture(number).png)

    def peak(lines: int) -> int:
        code, seen = "pyautogui.click(x=0.5, y=0.5)", "x" * 20_000
        with (tmp_path / "theirs.jsonl").open("w") as file:
            for at in range(lines):
                entry = {"index": 0, "image": f"{at % 40}.png", "value": {"code": code, "observation": f"{at}{seen}"}}
                file.write(json.dumps({"task_id": at, "instruction": "Open it.", "traj": [entry]}) + "\n")
        tracemalloc.start()
        found = sum(isinstance(one, Exchanged) for _, one in _read(Request(format="agentnet", path=tmp_path), None))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found == lines
        return most

    peak(5)
    assert peak(200) < peak(50) + 300_000
