"""Trajectories by the beginning of their ids, in commands, pages and from Python."""

from pathlib import Path

import pytest

from apps.desk.views import item_of
from flywheel.lake import OpenLake
from schemas.config.sections import LakeConfig
from schemas.failure import LakeError, UnknownId, UsageError
from storage.lake import Lake
from tasks.shared.finding import found_of
from tasks.shared.many import decide_all
from tasks.shared.reviews import Draft, reviews_of, submit
from tasks.shared.tags import add_tag, remove_tag, tags_of
from tasks.shared.trajectories import trajectory_of, whole_ids
from tests.fixtures.sentences import Sentences
from tests.unit.storage.conftest import DEFAULTS

ONE, OTHER, SHORT = "0a1b2c3d4e5f", "0a1b2c3d9999", "0a1b2c3d"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    for name in (ONE, OTHER, "tail0000"):
        made.append("trajectories", [{**DEFAULTS["trajectories"], "trajectory_id": name}])
        made.append("steps", [{**DEFAULTS["steps"], "trajectory_id": name}])
        made.append("verdicts", [{**DEFAULTS["verdicts"], "trajectory_id": name}])
    return made


def test_a_beginning_that_one_id_has_is_enough(lake: Lake) -> None:
    assert trajectory_of(lake, f"{SHORT}4").trajectory_id == ONE
    assert found_of(lake, f"{SHORT}9").row.trajectory_id == OTHER
    assert item_of(lake, f"{SHORT}4").trajectory_id == ONE and item_of(lake, ONE).trajectory_id == ONE
    opened = OpenLake(lake)
    assert opened.trajectory(f"{SHORT}99").row["trajectory_id"] == OTHER


def test_a_beginning_of_several_ids_lists_them(lake: Lake, sentence: Sentences) -> None:
    with sentence.raises(UnknownId, "2 trajectories begin with '0a1b2c3d'", hint=f"{ONE}, {OTHER}"):
        trajectory_of(lake, SHORT)
    with pytest.raises(LakeError, match="2 trajectories begin with"):
        OpenLake(lake).trajectory(SHORT)


@pytest.mark.parametrize("name", ["0a1b2c3", "tail000", "", "nobody-at-all", "0a1b2c3d4e5f0"])
def test_a_shorter_beginning_or_another_one_is_unknown(lake: Lake, name: str) -> None:
    with pytest.raises(UnknownId, match="there is no trajectory"):
        trajectory_of(lake, name)
    with pytest.raises(LakeError, match="There is no trajectory"):
        OpenLake(lake).trajectory(name)


def test_operations_on_many_take_beginnings(lake: Lake) -> None:
    decided = decide_all(lake, [f"{SHORT}4", ONE, OTHER], "accept", "Ada", dry_run=True)
    assert decided.trajectories == [ONE, OTHER]
    assert whole_ids(lake, ["tail0000", f"{SHORT}9", OTHER]) == ["tail0000", OTHER]
    lake.append("stages", [{**DEFAULTS["stages"], "run_id": "28a2cf66d0e1"}])
    assert [one.run_id for one in add_tag(lake, ["28a2cf66"], "base", "Ada")] == ["28a2cf66d0e1"]
    add_tag(lake, [f"{SHORT}4"], "flaky", "Ada")
    assert [one.trajectory_id for one in tags_of(lake, [ONE])] == [ONE]
    assert add_tag(lake, [ONE], "flaky", "Ada") == [] and len(remove_tag(lake, [f"{SHORT}4"], "flaky", "Ada")) == 1


def test_operations_on_many_refuse_an_unknown_or_ambiguous_beginning(lake: Lake) -> None:
    for name in (SHORT, "0a1b2c3d77", "tail000"):
        with pytest.raises(UnknownId):
            decide_all(lake, [name], "accept", "Ada")
        with pytest.raises(UnknownId):
            whole_ids(lake, [ONE, name])
        with pytest.raises(UnknownId):
            add_tag(lake, [name], "flaky", "Ada")


def test_a_decision_about_an_abbreviated_id_is_stored_with_the_whole_one(lake: Lake) -> None:
    assert submit(lake, Draft(f"{SHORT}4", 0, "ada", "accept")).trajectory_id == ONE
    review = OpenLake(lake).annotate(f"{SHORT}4", "reject", person="ada")
    assert (review.trajectory_id, review.revision) == (ONE, 1) and len(reviews_of(lake, ONE)) == 2
    with pytest.raises(UsageError, match="`trajectory_id`: '5' is a int"):
        OpenLake(lake).annotate(5, "reject", person="ada")  # type: ignore[arg-type]
