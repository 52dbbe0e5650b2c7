"""Gates that hold a trajectory against others: suspicious successes, near-duplicates; and the share for people."""

from typing import Any

import pytest
from PIL import Image

from curation.gates.evidence import EvidenceGate, EvidenceOptions, ShortcutGate, ShortcutOptions
from curation.gates.facts import Accepted, TaskFacts
from curation.gates.gate import GateContext
from curation.gates.outcome import PeopleGate, PeopleOptions, drawn
from curation.gates.registry import gates_of, verdicts_of
from curation.gates.repeats import DuplicateOptions, DuplicatesGate
from curation.pictures import Detail, detail
from schemas.config.curating import FilterConfig
from schemas.tables.step import Step
from tests.fixtures.sentences import Sentences
from tests.unit.curation.gates.test_gates import NOON, steps, trajectory

FINISHED = {"actions": ['{"content":"","type":"finished"}'], "action_type": "finished"}
WAIT = {"actions": ['{"type":"wait"}'], "action_type": "wait"}
KNOWN = TaskFacts(successes=40, changed=39, screens=4)


def evidence(rows: list[Step], task: TaskFacts = KNOWN, **changes: Any) -> str:
    found = EvidenceGate(EvidenceOptions()).check(trajectory(**changes), rows, GateContext(task=task))
    return "silent" if found is None else "passed" if found.passed else found.reason


def test_a_success_in_which_nothing_was_done_is_held_back_however_often_it_says_so() -> None:
    assert "nothing was done" in evidence(steps("a", **FINISHED))
    assert "nothing was done" in evidence(steps("a", "b", **WAIT))
    assert "ended itself 2 times" in evidence([*steps("a"), *steps("b", "c", **FINISHED)])
    assert evidence([*steps("a"), *steps("b", **FINISHED)]) == "passed"
    assert evidence(steps("a", **FINISHED), success=False) == "silent"


def test_a_verified_answer_is_something_done_and_asking_a_person_ends_nothing() -> None:
    answer = FINISHED | {"actions": ['{"content":"42","type":"finished"}']}
    asks = {"actions": ['{"type":"call_user"}'], "action_type": "call_user"}
    assert evidence(steps("a", **answer)) == "passed"
    assert evidence([*steps("a", **WAIT), *steps("b", **answer)]) == "passed"
    assert evidence([*steps("a", **answer), *steps("b", **answer)]) != "passed"
    assert "nothing was done" in evidence(steps("a", **FINISHED | {"actions": ['{"content":" ","type":"finished"}']}))
    assert evidence([*steps("a"), *steps("b", **asks), *steps("c"), *steps("d", **FINISHED)]) == "passed"
    assert "nothing was done" in evidence([*steps("a", **asks), *steps("b", **FINISHED)])


def test_a_success_that_changed_nothing_is_held_back_where_successes_of_the_task_do() -> None:
    still = [steps("a")[0].model_copy(update={"next_screenshot": "a"})]
    assert "never changed" in evidence(still)
    assert evidence(still, TaskFacts(successes=40, changed=30, screens=4)) == "passed"
    assert evidence(still, TaskFacts(successes=5, changed=5, screens=4)) == "passed"
    assert evidence(still, TaskFacts()) == "passed" and evidence(steps("a", "b")) == "passed"


def test_a_success_on_too_few_screens_is_held_back_and_one_click_is_enough_where_one_click_is(
    sentence: Sentences,
) -> None:
    def short(rows: list[Step], task: TaskFacts) -> bool:
        found = ShortcutGate(ShortcutOptions()).check(trajectory(), rows, GateContext(task=task))
        assert found is not None
        return found.passed

    assert not short(steps("a"), KNOWN) and short(steps("a", "b"), KNOWN)
    one = ShortcutGate(ShortcutOptions()).check(trajectory(), steps("a"), GateContext(task=KNOWN))
    assert one is not None
    sentence(one.reason)
    assert short(steps("a"), TaskFacts(successes=40, changed=0, screens=2))
    assert short(steps("a"), TaskFacts(successes=4, changed=4, screens=4))
    assert ShortcutGate(ShortcutOptions()).check(trajectory(success=False), steps("a"), GateContext(task=KNOWN)) is None


LOOKS = {"a": 0, "b": 1 << 100, "near": 0xFF, "far": 0x1FF}


def same(rows: list[Step], looks: dict[str, int] | None = None, **changes: Any) -> bool:
    accepted = Accepted()
    accepted.add(trajectory(trajectory_id="old", group_id="g"), steps("a", "b"), LOOKS)
    context = GateContext(looks=LOOKS if looks is None else looks, accepted=accepted)
    found = DuplicatesGate(DuplicateOptions()).check(trajectory(**changes), rows, context)
    assert found is not None and (found.passed or "old" in found.reason)
    return not found.passed


def test_a_copy_with_a_detour_is_a_copy_since_training_imitates_the_way_without_it() -> None:
    assert same(steps("a", "menu", "a", "b")) and same(steps("a", "menu", "page", "a", "b"))
    assert same(steps("a", "b", "menu", "b")) and not same(steps("a", "menu", "b"))


@pytest.mark.parametrize(
    ("screen", "x", "changes", "duplicate"),
    [
        ("a", 0.5, {}, True),
        ("near", 0.519, {}, True),
        ("far", 0.5, {}, False),
        ("a", 0.53, {}, False),
        ("a", 0.5, {"instruction": "Click it."}, False),
        ("a", 0.5, {"task_id": "b"}, False),
        ("a", 0.5, {"group_id": "g"}, False),
        ("a", 0.5, {"trajectory_id": "old"}, False),
    ],
)
def test_the_same_task_screens_and_actions_as_an_accepted_trajectory_are_a_duplicate(
    screen: str, x: float, changes: dict[str, Any], duplicate: bool
) -> None:
    rows = steps(screen, "b", actions=[f'{{"type":"click","x":{x},"y":0.5}}'])
    assert same(rows, **changes) is duplicate


@pytest.mark.parametrize(
    ("task", "words", "duplicate"),
    [
        ("import/agentnet-2", "Open  the\nwindow. ", True),
        ("import/atif-3", "open the window.", True),
        ("import/agentnet-2", "Close the window.", False),
        ("fake/open", "Open the window.", False),
    ],
)
def test_imported_trajectories_of_different_files_are_compared_by_what_they_were_asked(
    task: str, words: str, duplicate: bool
) -> None:
    accepted = Accepted()
    accepted.add(
        trajectory(trajectory_id="old", task_id="import/agentnet-1", instruction="Open the window."), steps("a"), LOOKS
    )
    asked = trajectory(task_id=task, instruction=words)
    found = DuplicatesGate(DuplicateOptions()).check(asked, steps("a"), GateContext(looks=LOOKS, accepted=accepted))
    assert found is not None and found.passed is not duplicate


def test_pictures_that_cannot_be_compared_are_the_same_only_where_they_are_the_same_pixels() -> None:
    assert same(steps("a", "b"), {}) and not same(steps("near", "b"), {})
    assert not same(steps("a", "b", actions=[]))


@pytest.mark.parametrize(("bits", "duplicate"), [(0xFF, True), (0x1FF, False)])
def test_screens_with_near_hashes_are_one_only_where_a_closer_look_says_so_too(bits: int, duplicate: bool) -> None:
    accepted = Accepted()
    accepted.add(trajectory(trajectory_id="old"), steps("a", "b"), LOOKS)
    details = {"a": Detail((1920, 1080), 0, 9), "near": Detail((1920, 1080), bits, 9)}
    context = GateContext(looks=LOOKS, accepted=accepted, details=details.get)
    found = DuplicatesGate(DuplicateOptions()).check(trajectory(), steps("near", "b"), context)
    assert found is not None and found.passed is not duplicate


@pytest.mark.parametrize(("colour", "duplicate"), [("red", True), ("blue", False)])
def test_screens_that_differ_in_colour_alone_are_two(colour: str, duplicate: bool) -> None:
    accepted = Accepted()
    accepted.add(trajectory(trajectory_id="old"), steps("a", "b"), LOOKS)
    screens = {"a": detail(Image.new("RGB", (160, 120), "red")), "near": detail(Image.new("RGB", (160, 120), colour))}
    context = GateContext(looks=LOOKS, accepted=accepted, details=screens.get)
    found = DuplicatesGate(DuplicateOptions()).check(trajectory(), steps("near", "b"), context)
    assert found is not None and found.passed is not duplicate


def test_a_copy_that_waits_or_clicks_in_vain_besides_is_a_copy_and_so_is_what_it_was_copied_from() -> None:
    waits = steps("a", "a", "b")
    waits[0] = waits[0].model_copy(update=WAIT)
    assert same(steps("a", "b", "b")) and same(steps("a", "near", "b")) and same(waits)
    accepted = Accepted()
    accepted.add(trajectory(trajectory_id="old"), steps("a", "a", "b"), LOOKS)
    context = GateContext(looks=LOOKS, accepted=accepted)
    found = DuplicatesGate(DuplicateOptions()).check(trajectory(), steps("a", "b"), context)
    assert found is not None and not found.passed


def test_a_trajectory_that_does_more_or_ends_otherwise_is_no_copy() -> None:
    elsewhere = '{"type":"click","x":0.9,"y":0.1}'
    assert not same(steps("a", "c", "b")) and not same(steps("a", "b", "c"))
    assert not same([*steps("a"), *steps("b", actions=[elsewhere])])
    assert not same(steps("a", "far", "b"))


def test_a_duplicate_goes_to_groups_alone_and_a_suspicious_success_to_quarantine() -> None:
    accepted = Accepted()
    accepted.add(trajectory(trajectory_id="old"), steps("a", "b"), {})
    gates = gates_of(FilterConfig())

    def route(rows: list[Step], **context: Any) -> str:
        row = trajectory(n_steps=len(rows))
        return verdicts_of(gates, row, rows, GateContext(**context), NOON)[-1].route

    assert route(steps("a", "b"), accepted=accepted) == "rl" and route(steps("a", "c"), accepted=accepted) == "sft"
    assert route(steps("a"), task=KNOWN) == "quarantine" and route(steps("a", **FINISHED)) == "quarantine"


def test_people_are_given_a_share_that_follows_from_the_ids_and_only_waits_where_it_is_told_to() -> None:
    names = [f"trajectory {number}" for number in range(4000)]
    few, many = ({name for name in names if drawn(name, share)} for share in (0.05, 0.2))
    assert few < many and 150 < len(few) < 250 and not any(drawn(name, 0.0) for name in names)
    assert all(drawn(name, 1.0) for name in names)
    one, other = next(iter(few)), next(iter(set(names) - many))

    def said(name: str, **options: Any) -> bool | None:
        found = PeopleGate(PeopleOptions(**options)).check(trajectory(trajectory_id=name), [], GateContext())
        return found and found.passed

    assert (said(one), said(one, wait=True), said(other)) == (True, False, None)


def test_a_decision_keeps_how_many_steps_come_before_the_error() -> None:
    def decision(**changes: Any) -> int | None:
        return verdicts_of(gates_of(FilterConfig()), trajectory(**changes), rows, GateContext(), NOON)[-1].valid_steps

    rows = steps("a", "b")
    assert decision() is None and decision(success=False, reward=-1.0) == 1
    assert decision(success=False, termination="max_steps") is None
