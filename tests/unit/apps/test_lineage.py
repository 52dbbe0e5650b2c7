"""What lineage says of policies and trajectories."""

import json
from pathlib import Path
from typing import Any

import pytest

from apps.commands.forgetting import forget_trajectories
from apps.commands.lineage import Contributor, lineage_of, show_lineage
from schemas.failure import UsageError
from schemas.table import utc_now
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import make_place


def test_a_policy_s_lineage_goes_back_to_the_first_policy(place: Any) -> None:
    found = lineage_of(place.lake, "champion")
    assert [link.policy_version for link in found.chain] == ["policy-0001", "policy-0000", "policy-initial"]
    assert found.row.code == "0123456789abcdef"
    assert found.config["name"] == "synthetic"


def test_a_policy_s_trajectories_are_those_its_pinned_versions_held(place: Any) -> None:
    early, late = (lineage_of(place.lake, f"policy-000{number}") for number in (0, 1))
    assert len(early.trajectories) == 20
    assert len(late.trajectories) == 40
    assert early.by_task == {(0, "fake/click-target"): 10, (0, "fake/two-steps"): 10}
    assert set(early.trajectories) < set(late.trajectories)


def test_the_first_policy_was_made_from_nothing(place: Any) -> None:
    assert lineage_of(place.lake, "policy-initial").as_dict["trajectories"] == {"count": 0, "by": [], "ids": []}


def test_a_trajectory_names_the_policies_trained_on_it(place: Any) -> None:
    used = lineage_of(place.lake, "policy-0000").trajectories[0]
    assert lineage_of(place.lake, used).policies == ["policy-0000", "policy-0001"]


def test_an_environment_failure_was_trained_on_by_nobody(place: Any) -> None:
    died = place.lake.read("trajectories", ["trajectory_id"], {"failure_boundary": "sandbox"})["trajectory_id"][
        0
    ].as_py()
    found = lineage_of(place.lake, died)
    assert found.policies == []
    assert found.verdicts[0].route == "none"


def test_an_unknown_name_is_refused_with_the_policies_there_are(place: Any) -> None:
    with pytest.raises(UsageError, match=r"policy-9.*policy-0001"):
        lineage_of(place.lake, "policy-9")


def test_a_trajectory_is_found_by_what_pages_show_of_its_id_where_only_one_begins_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = make_place(tmp_path).lake
    used = lineage_of(lake, "policy-0000").trajectories[0]
    for beginning in (used[:8], used[:12]):
        assert lineage_of(lake, beginning).as_dict["trajectory"] == used
    with sentence.raises(UsageError):
        lineage_of(lake, used[:7])
    (row,) = lake.read("trajectories", where={"trajectory_id": used}).to_pylist()
    twin = f"{used[:8]}-twin"
    lake.append("trajectories", [{**row, "trajectory_id": twin}])
    with sentence.raises(UsageError) as refused:
        lineage_of(lake, used[:8])
    assert used in str(refused.value) and twin in str(refused.value)
    forget_trajectories(lake, [twin], "asked for")
    assert lineage_of(lake, twin[:10]).as_dict["kind"] == "forgotten"


def test_a_policy_names_the_judges_thinkers_and_people_behind_its_data_and_how_it_was_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = make_place(tmp_path).lake
    used = lineage_of(lake, "policy-0001").trajectories[0]
    verdict = lake.read("verdicts", where={"trajectory_id": used}).to_pylist()[0]
    lake.append("verdicts", [{**verdict, "gate": "judge", "gate_version": "strict-2"}])
    thought = {
        "annotation_id": "a", "trajectory_id": used, "step": 0, "iteration": 0, "kind": "thought", "author": "actre",
        "thought": "I see.", "action": None, "before": None, "after": None, "created_at": utc_now(),
        "patterns": [], "version": "qwen-7b", "question": None,
    }  # fmt: skip
    lake.append("annotations", [thought])
    row = lake.read("policies", where={"policy_version": "policy-0001"}).to_pylist()[0]
    lake.upsert("policies", [{**row, "data_versions": json.dumps(lake.versions())}])
    found = lineage_of(lake, "policy-0001")
    assert found.makers == [Contributor("judge", "strict-2", None, 1), Contributor("thought", "actre", "qwen-7b", 1)]
    assert (found.as_dict["repeats"], found.as_dict["training_set"], found.decision) == (None, None, None)
    assert lineage_of(lake, used).thoughts == {("actre", "qwen-7b"): 1}


def test_both_kinds_can_be_shown_to_people(place: Any, capsys: pytest.CaptureFixture[str]) -> None:
    show_lineage(lineage_of(place.lake, "champion"))
    show_lineage(lineage_of(place.lake, lineage_of(place.lake, "champion").trajectories[0]))
    said = capsys.readouterr().out
    assert "from policy-0000" in said and "policy-0000, policy-0001" in said
