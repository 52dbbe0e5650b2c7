"""People's decisions: one per state whoever comes at once, each whole with what it becomes, and undone as a row."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from schemas.tables.review import Review
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.reviews import Conflict, Draft, reviews_of, settle, submit
from tests.fixtures.sentences import Sentences
from tests.tiers import NIGHTLY
from tests.unit.storage.conftest import DEFAULTS, NOON

CLICK, OTHER = (f'{{"type":"click","x":{x},"y":0.5}}' for x in (0.25, 0.75))
ACCEPT = Draft("t0", 0, "ada", "accept")
CORRECT = Draft("t0", 0, "ada", "correct", step=0, action=OTHER, thought="The other one.")
PROCESS = """
import sys
from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tasks.shared.reviews import Conflict, Draft, submit
lake = Lake.open(LakeConfig(uri=sys.argv[1]))
lake.count("reviews")
print("ready", flush=True)
sys.stdin.readline()
try:
    submit(lake, Draft("t0", 0, sys.argv[2], "reject"))
    print("written")
except Conflict as conflict:
    print(conflict.others[0].person)
"""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A failed trajectory that a filter has seen."""
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    add(lake, "t0")
    return lake


def add(lake: Lake, name: str, **changes: Any) -> None:
    failed = {"trajectory_id": name, "success": False, "reward": -1.0, **changes}
    lake.append("trajectories", [{**DEFAULTS["trajectories"], **failed}])
    lake.append("steps", [{**DEFAULTS["steps"], "trajectory_id": name, "actions": [CLICK], "thought": "This one."}])
    route = "none" if changes.get("failure_boundary") else "ct"
    decision = {"trajectory_id": name, "passed": False, "route": route, "reason": "verifier: failed"}
    lake.append("verdicts", [{**DEFAULTS["verdicts"], **decision}])


def decision(lake: Lake, name: str = "t0") -> tuple[str, str]:
    (row,) = [row for row in ask(lake, "decisions", iteration=1).to_pylist() if row["trajectory_id"] == name]
    return row["route"], row["reason"]


def test_a_person_s_word_is_the_decision_whatever_a_later_filter_says(lake: Lake) -> None:
    submit(lake, replace(ACCEPT, note="it is done"))
    assert decision(lake) == ("sft", "person: accepted by ada: it is done")
    later = {"gate_version": "9", "passed": False, "route": "ct", "reason": "rules: a loop"}
    lake.append("verdicts", [{**DEFAULTS["verdicts"], **later, "created_at": NOON.replace(year=2100)}])
    assert decision(lake)[0] == "sft"
    submit(lake, Draft("t0", 1, "bob", "error_step", step=0))
    assert decision(lake) == ("ct", "person: went wrong at step 0 by bob")
    (row,) = ask(lake, "decisions", iteration=1).to_pylist()
    assert (row["error_step"], row["passed"], row["gate_version"]) == (0, False, "9")


def test_the_later_of_two_decisions_holds_though_the_clock_of_its_desk_is_behind(lake: Lake) -> None:
    submit(lake, ACCEPT)
    thought = replace(CORRECT, revision=1, action=CLICK)
    submit(lake, thought)
    submit(lake, replace(thought, revision=2, person="bob", thought="No: that one."))
    submit(lake, Draft("t0", 3, "bob", "reject"))
    for table, where in (
        ("verdicts", {"gate_version": "bob#3"}),
        ("annotations", {"author": "bob"}),
        ("reviews", {"person": "bob"}),
    ):
        rows = lake.read(table, where=where).to_pylist()
        lake.upsert(table, [{**row, "created_at": NOON.replace(year=2001)} for row in rows])
    assert decision(lake) == ("ct", "person: rejected by bob")
    lake.append("verdicts", [{**DEFAULTS["verdicts"], "trajectory_id": "t0", "gate": "judge", "gate_version": "j"}])
    (row,) = ask(lake, "agreements", iteration=1).to_pylist()
    assert (row["against"], row["false_positives"]) == ("people", 1)
    (row,) = ask(lake, "exchange_thoughts").to_pylist()
    assert row["better"] == "No: that one."


def test_nobody_can_make_an_example_of_an_environment_failure(lake: Lake) -> None:
    add(lake, "dead", success=None, reward=None, failure_boundary="sandbox")
    with pytest.raises(UsageError, match="environment failed"):
        submit(lake, replace(ACCEPT, trajectory_id="dead"))
    submit(lake, replace(ACCEPT, trajectory_id="dead", decision="reject"))
    assert decision(lake, "dead")[0] == "none"


def test_a_correction_is_an_annotation_and_a_pair_and_keeps_what_was_there(lake: Lake) -> None:
    review = submit(lake, CORRECT)
    assert (review.original_action, review.original_thought) == (CLICK, "This one.")
    (annotation,) = lake.read("annotations").to_pylist()
    assert [annotation[name] for name in ("kind", "author", "action", "thought", "step")] == [
        "correction", "ada", OTHER, "The other one.", 0,
    ]  # fmt: skip
    (pair,) = lake.read("pairs").to_pylist()
    assert (pair["kind"], pair["rejected_trajectory_id"], pair["verified"]) == ("correction", "t0", False)
    assert "The other one." in pair["chosen"] and "This one." in pair["rejected"]
    (row,) = ask(lake, "training_pairs", corrections="all").to_pylist()
    assert row["rejected_actions"] == [CLICK]
    assert decision(lake)[0] == "ct"


def test_a_correction_of_the_thought_alone_prefers_nothing(lake: Lake) -> None:
    submit(lake, replace(CORRECT, action=CLICK))
    assert lake.count("annotations") == 1 and lake.count("pairs") == 0


def test_a_decision_that_comes_again_after_it_was_undone_changes_nothing(lake: Lake) -> None:
    reject = Draft("t0", 0, "ada", "reject")
    submit(lake, Draft("t0", 1, "ada", "undo", undoes=submit(lake, reject).review_id))
    before = decision(lake)
    assert submit(lake, reject).decision == "reject"
    assert decision(lake) == before and len(reviews_of(lake, "t0")) == 2


def test_of_a_step_s_corrections_the_newest_alone_gives_a_pair_and_an_override_one_only_in_a_success(
    lake: Lake,
) -> None:
    def pairs(corrections: str = "all") -> set[str]:
        return set(ask(lake, "training_pairs", corrections=corrections)["pair_id"].to_pylist())

    first = submit(lake, CORRECT)
    assert pairs() == {first.review_id} and not pairs("verified")
    second = submit(lake, replace(CORRECT, revision=1, thought="No, that one."))
    assert pairs() == {second.review_id}
    for name, success in (("won", True), ("lost", False)):
        add(lake, name, success=success, reward=float(success))
        fields = {
            **second.model_dump(),
            "trajectory_id": name,
            "review_id": name,
            "revision": 0,
            "decision": "override",
        }
        lake.append("reviews", [fields])
        (pair,) = lake.read("pairs", where={"pair_id": second.review_id}).to_pylist()
        lake.append("pairs", [{**pair, "pair_id": name, "trajectory_id": name}])
    assert pairs() == {second.review_id, "won"} and pairs("verified") == {"won"}


def test_an_undo_is_a_row_that_takes_back_what_the_decision_became(lake: Lake) -> None:
    first = submit(lake, ACCEPT)
    second = submit(lake, replace(CORRECT, revision=1))
    submit(lake, Draft("t0", 2, "ada", "undo", undoes=second.review_id))
    assert (lake.count("annotations"), lake.count("pairs"), decision(lake)[0]) == (0, 0, "sft")
    submit(lake, Draft("t0", 3, "bob", "undo", undoes=first.review_id))
    assert decision(lake) == ("ct", "verifier: failed")
    assert [one.decision for one in reviews_of(lake, "t0")] == ["accept", "correct", "undo", "undo"]
    with pytest.raises(UsageError, match="undoes"):
        submit(lake, Draft("t0", 4, "ada", "undo", undoes=first.review_id))


def test_the_second_of_two_hears_what_the_first_decided_and_writes_nothing(lake: Lake) -> None:
    submit(lake, ACCEPT)
    with pytest.raises(Conflict, match="ada: accept") as raised:
        submit(lake, Draft("t0", 0, "bob", "reject"))
    assert [one.person for one in raised.value.others] == ["ada"]
    assert lake.count("reviews") == 1 and decision(lake)[0] == "sft"
    assert submit(lake, replace(ACCEPT, seconds=9.0)).person == "ada"  # the same one, sent again
    assert lake.count("reviews") == 1


def test_of_two_processes_that_decide_at_once_one_writes_and_the_other_hears_of_it(lake: Lake) -> None:
    words = [sys.executable, "-c", PROCESS, lake.uri]
    both = [
        subprocess.Popen([*words, person], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for person in ("ada", "bob")
    ]
    for one in both:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
    ends = [one.communicate("\n", timeout=60)[0].strip() for one in both]
    (review,) = lake.rows(Review)
    assert sorted(ends) == sorted(["written", review.person])


@pytest.mark.slow
def test_ten_annotators_at_once_lose_nothing(lake: Lake) -> None:
    count = 6 if NIGHTLY else 3
    for number in range(1, count):
        add(lake, f"t{number}")

    def annotate(person: str) -> int:
        """Decides once on every trajectory, again where somebody was first; how often that was."""
        conflicts = 0
        for number in range(count):
            draft = Draft(f"t{number}", 0, person, "reject", note=person)
            while True:
                try:
                    submit(lake, draft)
                    break
                except Conflict as conflict:
                    conflicts += 1
                    draft = replace(draft, revision=conflict.others[-1].revision + 1)
        return conflicts

    with ThreadPoolExecutor(10) as threads:
        conflicts = sum(threads.map(annotate, [f"person {number}" for number in range(10)]))
    reviews = lake.rows(Review)
    assert {(one.trajectory_id, one.person) for one in reviews} == {
        (f"t{number}", f"person {person}") for number in range(count) for person in range(10)
    }
    assert len(reviews) == lake.count("verdicts", {"gate": "person"}) == 10 * count
    assert conflicts > 0
    assert settle(lake) == 0


def test_what_a_kill_kept_from_taking_effect_is_made_up_for(lake: Lake) -> None:
    first, second = submit(lake, ACCEPT), submit(lake, replace(CORRECT, revision=1))
    lake.delete("verdicts", "gate = 'person'")
    lake.delete("pairs", "true")
    undo = {**second.model_dump(), "decision": "undo", "undoes": second.review_id, "revision": 2, "review_id": "u"}
    lake.append("reviews", [undo])
    assert settle(lake) == 2
    assert (decision(lake)[0], lake.count("annotations"), lake.count("pairs")) == ("sft", 0, 0)
    assert settle(lake) == 0
    assert first.decision == "accept"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"trajectory_id": "../../etc"}, "trajectory_id"),
        ({"person": "<script>"}, "person"),
        ({"person": ""}, "person"),
        ({"revision": 7}, "revision"),
        ({"step": 5}, "step"),
        ({"step": None}, "step"),
        ({"action": None}, "action"),
        ({"action": "{"}, "action"),
        ({"action": '{"type":"click","x":7,"y":0}'}, r"action\.click\.x"),
        ({"thought": "x" * 20_001}, "thought"),
        ({"thought": "It is done.\nAction: finished()"}, "thought"),
        ({"decision": "undo", "undoes": "nothing"}, "undoes"),
        ({"decision": "accept", "step": None, "action": None, "thought": "why"}, "thought"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_field_s_name(lake: Lake, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"`{named}`"):
        submit(lake, replace(CORRECT, **changes))
    assert lake.count("reviews") == 0


@pytest.mark.parametrize(
    ("draft", "field", "instead"),
    [
        (replace(ACCEPT, step=0), "step", "whole trajectory"),
        (replace(ACCEPT, decision="reject", step=0), "step", "`error_step`"),
        (replace(ACCEPT, action=OTHER), "action", "`correct`"),
        (replace(ACCEPT, decision="reject", action=OTHER), "action", "`correct`"),
        (replace(CORRECT, decision="override"), "decision", "`correct`"),
    ],
)
def test_a_decision_that_would_come_to_nothing_is_refused_and_says_what_to_write(
    lake: Lake, draft: Draft, field: str, instead: str
) -> None:
    with pytest.raises(UsageError, match=f"`{field}`") as refused:
        submit(lake, draft)
    assert instead in str(refused.value)
    assert lake.count("reviews") == 0


@pytest.mark.parametrize("person", ["O'Brien", "D\u2019Arcy"])
def test_a_name_may_have_an_apostrophe_and_its_decisions_are_undone_as_any(lake: Lake, person: str) -> None:
    review = submit(lake, replace(ACCEPT, person=person))
    assert decision(lake) == ("sft", f"person: accepted by {person}")
    submit(lake, Draft("t0", 1, person, "undo", undoes=review.review_id))
    assert decision(lake) == ("ct", "verifier: failed")


def test_a_review_is_kept_as_it_was_written(lake: Lake) -> None:
    thought = "<script>alert(1)</script> \u00e9 \u2028 'quoted'"
    submit(lake, replace(CORRECT, thought=thought, action=json.dumps({"y": 0.5, "x": 0.75, "type": "click"})))
    (row,) = reviews_of(lake, "t0")
    assert (row.thought, row.action) == (thought, OTHER)


def test_a_thought_of_nothing_but_space_is_none_and_control_characters_and_empty_notes_are_refused(
    lake: Lake, sentence: Sentences
) -> None:
    submit(lake, replace(CORRECT, thought="\n" * 5000))
    (pair,) = lake.read("pairs", ["chosen"]).to_pylist()
    assert pair["chosen"].startswith("Thought: ") and "\n\n" not in pair["chosen"]
    with sentence.raises(UsageError, "thought", "'\\x00'"):
        submit(lake, replace(CORRECT, revision=1, thought="a\x00b"))
    with sentence.raises(UsageError, "`note`"):
        submit(lake, replace(ACCEPT, revision=1, decision="note", note=" "))
    with sentence.raises(UsageError, "undoes", "review_id"):
        submit(lake, replace(ACCEPT, revision=1, decision="undo"))
