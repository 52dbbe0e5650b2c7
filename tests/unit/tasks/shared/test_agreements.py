"""What judges' verdicts are counted against: words that hold, of those who know."""

from pathlib import Path
from typing import Any

import pytest

from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tasks.shared.reviews import Draft, renew_agreements, submit
from tests.parts import FAKE
from tests.unit.storage.conftest import DEFAULTS

JUDGE = "it's the first"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    task = FAKE.task("click-one")
    lake.append("tasks", [task.model_copy(update={"task_id": DEFAULTS["trajectories"]["task_id"]})])
    return lake


def judged(lake: Lake, name: str, **fields: Any) -> None:
    """A trajectory that the judge calls a success."""
    lake.append("trajectories", [{**DEFAULTS["trajectories"], "trajectory_id": name, **fields}])
    lake.append("steps", [{**DEFAULTS["steps"], "trajectory_id": name}])
    passed = {"trajectory_id": name, "gate": "judge", "gate_version": JUDGE, "passed": True}
    lake.append("verdicts", [{**DEFAULTS["verdicts"], **passed}])


def counted(lake: Lake) -> dict[str, int]:
    renew_agreements(lake, DEFAULTS["trajectories"]["iteration"])
    return {row["against"]: row["n"] for row in lake.read("agreements").to_pylist()}


def test_what_an_import_says_of_itself_is_no_verifiers_word_on_a_judge(lake: Lake) -> None:
    judged(lake, "own", success=True)
    judged(lake, "brought", success=True, policy="import")
    assert counted(lake) == {"verifier": 1}


def test_a_word_that_was_undone_counts_no_more(lake: Lake) -> None:
    judged(lake, "own", success=None, failure_boundary=None)
    word = submit(lake, Draft("own", 0, "ada", "reject"))
    assert counted(lake) == {"people": 1}
    submit(lake, Draft("own", 1, "ada", "undo", undoes=word.review_id))
    assert counted(lake) == {}
