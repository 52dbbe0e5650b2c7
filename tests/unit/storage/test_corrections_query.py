"""What training reads of corrections: the corrected step alone, after the whole of what led to it."""

from pathlib import Path

import pytest

from schemas.action import Click, Wait, to_json
from schemas.tables.step import Step
from storage.catalog import ask
from storage.lake import Lake
from tests.unit.storage.test_training_queries import SHARES, through_the_lake


def stored(lake: Lake, row, **changes: object) -> None:
    """A correction of which two steps are replayed, the second of them without effect; the first was an error."""
    made = {"trajectory_id": "c", "n_steps": 5, "policy": "correction", "continues": "t", "replayed": 2} | changes
    lake.append("trajectories", [row("trajectories", trajectory_id="t", success=False), row("trajectories", **made)])
    lake.append("verdicts", [row("verdicts", trajectory_id="t", route="ct"), row("verdicts", trajectory_id="c")])
    for name, screens in (("t", "aa"), ("c", "aaaab")):
        steps = [
            row(
                "steps",
                trajectory_id=name,
                step=place,
                screenshot=screen * 64,
                actions=[to_json(Wait())],
                raw_text=name,
            )
            for place, screen in enumerate(screens)
        ]
        lake.append("steps", steps)


def taught(lake: Lake, corrections: str = "all") -> list[tuple[str, int]]:
    rows = ask(
        lake, "training_weights", **(SHARES | {"corrections": corrections}), history_images=1, practice=[]
    ).to_pylist()
    return [(one["trajectory_id"], one["step"]) for one in rows if one["weight"] is not None]


def test_replayed_steps_are_context_and_are_not_cut_from_it_as_detours(lake: Lake, row, tmp_path: Path) -> None:
    stored(lake, row)
    assert taught(lake) == [("c", 3)]  # of the two showings of the screen after the replay the last one
    samples = through_the_lake(lake, tmp_path, 1, [])
    assert {len(sample.history) for sample in samples} == {2}


def test_a_correction_that_nothing_saw_succeed_teaches_nothing_whatever_the_gates_are(lake: Lake, row) -> None:
    stored(lake, row, success=False)
    assert taught(lake) == []


def test_a_correction_that_came_to_nothing_is_no_continual_training_either(lake: Lake, row) -> None:
    stored(lake, row, success=False)
    lake.upsert("verdicts", [row("verdicts", trajectory_id="c", route="ct")])
    rows = ask(lake, "continual_step_weights").to_pylist()
    assert {one["trajectory_id"] for one in rows} == {"t"} and sum(one["weight"] for one in rows) == pytest.approx(1)


def test_a_pair_of_a_correction_that_is_not_accepted_any_more_is_not_trained_on(lake: Lake, row) -> None:
    stored(lake, row)
    pair = {"pair_id": "p", "trajectory_id": "c", "step": 2, "iteration": 1, "task_id": "miniwob/a", "seed": 1}
    pair |= {"kind": "correction", "chosen": "yes", "rejected": "no", "rejected_trajectory_id": "t", "verified": True}
    lake.append("pairs", [pair])
    (found,) = ask(lake, "training_pairs", corrections="all").to_pylist()
    assert (found["pair_id"], found["kind"], len(found["past"])) == ("p", "correction", 2)
    lake.upsert("verdicts", [row("verdicts", trajectory_id="c", route="ct")])
    assert ask(lake, "training_pairs", corrections="all").num_rows == 0


def test_corrections_are_no_collected_trajectories_and_part_from_nothing(lake: Lake, row) -> None:
    stored(lake, row)
    (funnel,) = ask(lake, "funnel").to_pylist()
    assert (funnel["collected"], funnel["sft"], funnel["ct"]) == (1, 0, 1)
    assert {one["kind"] for one in ask(lake, "verified").to_pylist()} == {"policy"}
    assert ask(lake, "parting_trajectories", iteration=1).num_rows == 0


TRIED = {"policy": "correction", "continues": "t", "replayed": 1}


def corrected(lake: Lake, row, **attempt: object) -> None:
    """A failure whose second of two steps a person corrected; how a try in a sandbox went, if `attempt` says so."""
    better = to_json(Click(x=0.5, y=0.5))
    lake.append("trajectories", [row("trajectories", trajectory_id="t", success=False, n_steps=2)])
    lake.append("verdicts", [row("verdicts", trajectory_id="t", route="ct", passed=False)])
    for place, screen in enumerate("ab"):
        recorded = {"trajectory_id": "t", "step": place, "screenshot": screen * 64, "actions": [to_json(Wait())]}
        lake.append("steps", [row("steps", **recorded)])
    review = {"trajectory_id": "t", "step": 1, "decision": "correct", "action": better, "thought": "There."}
    lake.append("reviews", [row("reviews", **review, original_action=to_json(Wait()))])
    sides = {"pair_id": "r0", "trajectory_id": "t", "step": 1, "kind": "correction", "rejected_trajectory_id": "t"}
    lake.append("pairs", [row("pairs", **sides, verified=False)])
    if attempt:
        made = {"trajectory_id": "c", "n_steps": 2} | TRIED | attempt
        lake.append("trajectories", [row("trajectories", **made)])
        lake.append("verdicts", [row("verdicts", trajectory_id="c", route="sft" if made["success"] else "ct")])
        for place, (screen, actor, action) in enumerate([("a", "policy", to_json(Wait())), ("b", "person", better)]):
            step = {
                "trajectory_id": "c",
                "step": place,
                "screenshot": screen * 64,
                "actor": actor,
                "actions": [action],
            }
            lake.append("steps", [row("steps", **step)])


def preferred(lake: Lake, corrections: str) -> int:
    return ask(lake, "training_pairs", corrections=corrections).num_rows


def test_a_person_s_correction_that_no_sandbox_tried_teaches_unless_only_verified_ones_do(lake: Lake, row) -> None:
    corrected(lake, row)
    assert taught(lake) == [("t", 1)] and taught(lake, "verified") == []
    assert (preferred(lake, "all"), preferred(lake, "verified")) == (1, 0)


def test_one_that_succeeded_is_taught_by_the_trajectory_that_shows_it_and_not_twice(lake: Lake, row) -> None:
    corrected(lake, row, success=True)
    assert taught(lake) == taught(lake, "verified") == [("c", 1)]
    assert preferred(lake, "verified") == 1
    lake.append("reviews", [row("reviews", review_id="u", trajectory_id="t", revision=1, decision="undo", undoes="r0")])
    assert taught(lake) == []


def test_one_that_ended_the_task_without_success_teaches_nobody(lake: Lake, row) -> None:
    corrected(lake, row, success=False)
    assert taught(lake) == [] and preferred(lake, "all") == 0


def test_one_from_which_nobody_got_on_stays_what_a_person_says(lake: Lake, row) -> None:
    corrected(lake, row, success=False, n_steps=5)
    assert taught(lake) == [("t", 1)] and taught(lake, "verified") == [] and preferred(lake, "all") == 1
    (found,) = ask(lake, "people_corrections").to_pylist()
    assert (found["state"], found["tries"], found["shown_by"], found["tried_by"]) == ("unverified", 1, None, "c")


def test_what_changed_nothing_is_not_verified_by_others_who_got_on_from_there(lake: Lake, row) -> None:
    corrected(lake, row, success=True, n_steps=3)
    assert state(lake) == "verified"
    (tried,) = lake.rows(Step, {"trajectory_id": "c", "step": 1})
    lake.upsert("steps", [tried.model_copy(update={"next_screenshot": tried.screenshot})])
    assert state(lake) == "unverified" and preferred(lake, "verified") == 0
    lake.upsert("trajectories", [row("trajectories", trajectory_id="c", success=True, n_steps=2, **TRIED)])
    assert state(lake) == "verified"  # the last step of a success is what was rewarded


def test_in_place_of_a_success_only_what_takes_no_more_steps_is_verified(lake: Lake, row) -> None:
    corrected(lake, row, success=True, n_steps=3)
    lake.upsert("trajectories", [row("trajectories", trajectory_id="t", success=True, n_steps=2)])
    (found,) = ask(lake, "people_corrections").to_pylist()
    assert (found["state"], found["shown_by"], found["tried_by"]) == ("unverified", None, "c")
    assert ("c", 1) not in taught(lake)
    lake.upsert("trajectories", [row("trajectories", trajectory_id="t", success=True, n_steps=3)])
    (found,) = ask(lake, "people_corrections").to_pylist()
    assert (found["state"], found["shown_by"]) == ("verified", "c") and ("c", 1) in taught(lake)


def thought_again(lake: Lake, row, step: int, **of: object) -> list[tuple[str, int]]:
    """What is taught of two steps when a person has given one of them another thought and left its action."""
    lake.append("trajectories", [row("trajectories", **{"trajectory_id": "t", "n_steps": 2, "success": False} | of)])
    lake.append("verdicts", [row("verdicts", trajectory_id="t", route="sft" if of.get("success") else "ct")])
    wait = to_json(Wait())
    for place, screen in enumerate("ab"):
        lake.append("steps", [row("steps", trajectory_id="t", step=place, screenshot=screen * 64, actions=[wait])])
    review = {"trajectory_id": "t", "step": step, "decision": "correct", "thought": "Because."}
    lake.append("reviews", [row("reviews", **review, action=wait, original_action=wait)])
    return taught(lake)


def state(lake: Lake) -> str:
    (found,) = ask(lake, "people_corrections").to_pylist()
    return found["state"]


def test_another_thought_does_not_make_the_action_that_ended_the_task_in_vain_a_target(lake: Lake, row) -> None:
    assert thought_again(lake, row, step=1, reward=-1.0, termination="done") == []
    assert state(lake) == "refuted"


def test_another_thought_of_a_step_that_ended_nothing_is_taught(lake: Lake, row) -> None:
    assert thought_again(lake, row, step=0, reward=-1.0, termination="done") == [("t", 0)]
    assert state(lake) == "unverified"


def test_another_thought_of_the_last_step_before_the_steps_ran_out_is_taught(lake: Lake, row) -> None:
    assert thought_again(lake, row, step=1, reward=0.0, termination="max_steps") == [("t", 1)]


def test_another_thought_of_a_success_is_verified_by_it(lake: Lake, row) -> None:
    assert set(thought_again(lake, row, step=1, success=True)) == {("t", 0), ("t", 1)}
    assert state(lake) == "verified"


def succeeded(lake: Lake, row, **of: object) -> None:
    """The trajectory whose step was corrected was a success."""
    lake.upsert("trajectories", [row("trajectories", **{"trajectory_id": "t", "success": True, "n_steps": 2} | of)])
    lake.upsert("verdicts", [row("verdicts", trajectory_id="t", route="sft")])


KEPT = [("t", 0), ("t", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "tried", [{}, {"success": False, "n_steps": 5}, {"success": False}, {"success": True, "n_steps": 3}]
)
def test_of_a_verified_success_a_recorded_step_is_taught_until_a_correction_is_verified(
    lake: Lake, row, tried: dict[str, object]
) -> None:
    corrected(lake, row, **tried)
    succeeded(lake, row)
    rows = ask(lake, "training_weights", **SHARES, history_images=1, practice=[]).to_pylist()
    assert taught(lake) == KEPT and not any(one["corrected"] for one in rows)
    assert preferred(lake, "all") == 0
    assert [one["replaces"] for one in ask(lake, "people_decisions").to_pylist()] == [False]


def test_of_a_verified_success_a_verified_correction_is_taught_in_the_place_of_the_step(lake: Lake, row) -> None:
    corrected(lake, row, success=True)
    succeeded(lake, row)
    assert taught(lake) == [("c", 1), ("t", 0)] and preferred(lake, "all") == 1


def test_of_what_only_a_judge_took_for_a_success_a_person_s_word_counts(lake: Lake, row) -> None:
    corrected(lake, row)
    succeeded(lake, row, task_id="fake/judged")
    judged = {"task_id": "fake/judged", "environment": "fake", "template": "judged", "instruction": "{}", "tags": []}
    lake.append("tasks", [{**judged, "split": "train", "max_steps": 10, "verifier": "judge"}])
    assert taught(lake) == KEPT and preferred(lake, "all") == 1
    rows = ask(lake, "training_weights", **SHARES, history_images=1, practice=[]).to_pylist()
    assert [(one["step"], one["corrected"]) for one in rows if one["weight"] is not None] == [(0, False), (1, True)]


@pytest.mark.parametrize(("extra", "stays"), [('{"flywheel": {"success": true}}', True), ('{"flywheel": {}}', False)])
def test_of_an_import_only_a_success_that_its_lake_had_verified_stands_against_a_person(
    lake: Lake, row, extra: str, stays: bool
) -> None:
    corrected(lake, row)
    succeeded(lake, row, policy="import", extra=extra)
    assert preferred(lake, "all") == (0 if stays else 1)


def test_a_success_that_a_person_rejected_stands_against_nobody(lake: Lake, row) -> None:
    corrected(lake, row)
    succeeded(lake, row)
    lake.append("verdicts", [row("verdicts", trajectory_id="t", gate="person", route="ct", passed=False)])
    assert taught(lake) == [("t", 1)] and preferred(lake, "all") == 1
