"""Which decision holds where there are several, and that nobody counts a trajectory twice for it."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from storage.catalog import FOLDER, ask
from storage.lake import Lake
from tests.unit.storage.conftest import NOON, Rows

Add = Callable[..., None]


@pytest.fixture
def add(lake: Lake, row: Rows) -> Add:
    """A trajectory of seed 1 with a step, and a decision on it by each filter run, oldest first."""

    def write(name: str, *routes: str, success: bool | None = True, **changes: Any) -> None:
        action = f'{{"type":"click","x":0.{len(name)},"y":0.5}}'
        lake.append("trajectories", [row("trajectories", trajectory_id=name, success=success, **changes)])
        lake.append("steps", [row("steps", trajectory_id=name, actions=[action])])
        for number, route in enumerate(routes):
            version, later = f"rules@{9 - number}", NOON + timedelta(hours=number)
            decision = {"passed": route == "sft", "reason": f"rules: run {number}", "gate_version": version}
            lake.append("verdicts", [row("verdicts", trajectory_id=name, route=route, created_at=later, **decision)])

    return write


def test_the_newest_decision_holds_whatever_its_version_is_called(lake: Lake, add: Add) -> None:
    add("t", "sft", "ct")
    (found,) = ask(lake, "decisions", iteration=None).to_pylist()
    assert (found["route"], found["gate_version"], found["decided_by"]) == ("ct", "rules@8", "rules")
    assert ask(lake, "decisions", iteration=1).num_rows == 1 and ask(lake, "decisions", iteration=2).num_rows == 0


def test_a_trajectory_with_several_decisions_counts_once(lake: Lake, add: Add) -> None:
    add("a", "sft", "ct")
    add("bb", "ct", "ct", "sft")
    add("ccc", "none", "none", success=None)
    (funnel,) = ask(lake, "funnel").to_pylist()
    assert (funnel["collected"], funnel["sft"], funnel["ct"], funnel["none"], funnel["steps"]) == (3, 1, 1, 1, 1)
    assert funnel["rejections"] == [{"gate": "rules", "reason": "run 1", "n": 2, "most": 2}]
    assert [(row["n"], row["verified"]) for row in ask(lake, "verified").to_pylist()] == [(2, 1)]


@pytest.mark.slow
def test_what_is_in_quarantine_teaches_nobody_until_a_decision_lets_it_out(lake: Lake, add: Add, row: Rows) -> None:
    sampled = {"group_id": "g", "policy_version": "p1"}
    add("good", "sft", **sampled)
    add("hack", "quarantine", **sampled)
    add("failure", "ct", success=False, **sampled)
    pair = row("pairs", pair_id="kept") | {"trajectory_id": "good", "rejected_trajectory_id": "failure"}
    sides = [("good", "hack"), ("hack", "failure"), ("failure", "hack")]
    lake.append(
        "pairs",
        [pair]
        + [
            pair | {"pair_id": f"{chosen} {rejected}", "trajectory_id": chosen, "rejected_trajectory_id": rejected}
            for chosen, rejected in sides
        ],
    )

    def trained() -> tuple[set[str], set[str], set[str], set[str]]:
        asked = {
            "history_images": 1,
            "measured": "p1",
            "balance": 0.0,
            "floor": 0.1,
            "grounding_share": 0.0,
            "prefixes": "all",
            "corrections": "all",
        }
        weighed = ask(lake, "training_weights", practice=[], practice_share=0.0, **asked)["trajectory_id"].to_pylist()
        parting = ask(lake, "parting_trajectories", iteration=1)["trajectory_id"].to_pylist()
        groups = ask(lake, "training_groups", iteration=1, groups=None)["trajectory_id"].to_pylist()
        pairs = ask(lake, "training_pairs", corrections="all")["pair_id"].to_pylist()
        return set(weighed), set(parting), set(groups), set(pairs)

    assert trained() == ({"good"}, {"good", "failure"}, {"good", "failure"}, {"kept"})
    (funnel,) = ask(lake, "funnel").to_pylist()
    assert (funnel["collected"], funnel["sft"], funnel["ct"], funnel["quarantine"]) == (3, 1, 1, 1)
    released = row("verdicts", trajectory_id="hack", gate_version="person@ada", created_at=NOON + timedelta(hours=9))
    lake.append("verdicts", [released])
    assert "hack" in trained()[0] & trained()[2] and "hack failure" in trained()[3]


@pytest.mark.parametrize(
    ("prefixes", "by", "imitated"),
    [("none", "person", []), ("people", "person", [0, 1]), ("people", "loops", []), ("all", "loops", [0, 1])],
)
def test_the_steps_before_an_error_are_imitated_where_who_marked_it_is_believed(
    lake: Lake, row: Rows, prefixes: str, by: str, imitated: list[int]
) -> None:
    lake.append("trajectories", [row("trajectories", n_steps=4, success=False)])
    clicks = {"actions": ['{"type":"click","x":0.5,"y":0.5}']}
    lake.append("steps", [row("steps", step=at, screenshot=f"{at}" * 64, **clicks) for at in range(4)])
    rejected = {"passed": False, "route": "ct", "error_step": 2, "valid_steps": 2, "reason": f"{by}: from step 2"}
    lake.append("verdicts", [row("verdicts", **rejected)])
    asked = {"history_images": 1, "measured": "p1", "balance": 0.0, "floor": 0.1, "grounding_share": 0.0}
    asked |= {"practice": [], "practice_share": 0.0, "prefixes": prefixes, "corrections": "all"}
    found = ask(lake, "training_weights", **asked).to_pylist()
    assert [(one["step"], one["place"]) for one in found] == [(at, at) for at in imitated]
    assert sum(one["weight"] for one in found) == (pytest.approx(1.0) if imitated else 0)


def test_only_the_view_of_decisions_reads_verdicts() -> None:
    others = {
        FOLDER / f"{name}.sql"  # about judges, and about what single gates wrote; not about what was decided
        for name in ("agreements", "version_judges", "lineage_makers", "found_trajectories", "exchange_gates")
    }
    for file in set(FOLDER.glob("*.sql")) - others:
        code = re.sub(r"--[^\n]*", "", file.read_text())
        assert not re.search(r"\bverdicts\b", code), f"{file.name} decides by itself which decision holds"


def test_preferences_need_an_accepted_success_and_a_failure_by_the_verifier(lake: Lake, add: Add, row: Rows) -> None:
    def found() -> dict[str, tuple[bool, bool, bool]]:
        rows = ask(lake, "parting_trajectories", iteration=1).to_pylist()
        return {one["trajectory_id"]: (one["success"], one["accepted"], one["verified"]) for one in rows}

    add("turned-away", "ct")
    add("accepted", "sft")
    add("environment", "none", success=None)
    assert found() == {}
    add("failed", "ct", success=False)
    assert found() == {
        "turned-away": (True, False, True), "accepted": (True, True, True), "failed": (False, False, True),
    }  # fmt: skip


def test_preferences_by_a_judge_are_not_verified(lake: Lake, add: Add, row: Rows) -> None:
    add("accepted", "sft")
    add("failed", "ct", success=False)
    task = {"task_id": "miniwob/a", "environment": "miniwob", "template": "a", "instruction": "Do.", "tags": []}
    lake.append("tasks", [task | {"split": "train", "max_steps": 5, "verifier": "judge"}])
    assert {one["verified"] for one in ask(lake, "parting_trajectories", iteration=1).to_pylist()} == {False}


def test_a_step_with_several_thoughts_comes_once_with_the_newest(lake: Lake, add: Add) -> None:
    add("accepted", "sft")
    add("failed", "ct", success=False)
    note = {"trajectory_id": "accepted", "step": 0, "iteration": 1, "kind": "thought", "action": None}
    lake.append(
        "annotations",
        [
            note
            | {"annotation_id": name, "author": name, "thought": name, "before": None, "after": None, "created_at": at}
            for name, at in (("person", NOON + timedelta(hours=1)), ("template", NOON))
        ],
    )
    rows = ask(lake, "parting_trajectories", iteration=1).to_pylist()
    assert [(one["trajectory_id"], one["thought"]) for one in rows] == [("accepted", "person"), ("failed", "")]


def test_quarantined_are_those_that_the_decisions_put_there(lake: Lake, add: Add, row: Rows) -> None:
    routes = ("sft", "quarantine", "none")
    for first in routes:
        for last in routes:
            for person in ("", *routes[:2]):
                name = f"{first}-{last}-{person}"
                add(name, first, last)
                if person:
                    word = {"gate": "person", "gate_version": "ada#0", "route": person, "created_at": NOON}
                    lake.append("verdicts", [row("verdicts", trajectory_id=name, **word)])
    decided = ask(lake, "decisions", iteration=None).to_pylist()
    expected = {one["trajectory_id"] for one in decided if one["route"] == "quarantine"}
    view = (FOLDER / "views" / "quarantined.sql").read_text()
    with lake.connect(["verdicts"]) as connection:
        found = {name for (name,) in connection.sql(view).fetchall()}
    assert found == expected and 0 < len(found) < 27
