"""What rules tell of single steps: what was redundant, what could not be done, and nothing more."""

from typing import Any

from curation.reflection import VERSION, reflections_of
from tests.fixtures.sentences import Sentences
from tests.unit.curation.gates.test_gates import NOON, steps, trajectory


def flags(*screens: str, **changes: Any) -> dict[int, tuple[bool | None, bool | None, str]]:
    found = reflections_of(trajectory(), steps(*screens, **changes), NOON)
    assert {(row.author, row.version, row.trajectory_id) for row in found} <= {("rules", VERSION, "t")}
    return {row.step: (row.last_step_correct, row.last_step_redundant, row.reflection) for row in found}


def test_an_action_that_changed_nothing_is_redundant_and_one_that_led_on_is_not() -> None:
    assert flags("a", "a", "b") == {0: (None, True, "It changed nothing on the screen.")}
    assert flags("a", "b", "c") == {}


def test_all_steps_between_two_showings_of_a_screen_are_a_detour(sentence: Sentences) -> None:
    found = flags("a", "b", "c", "b", "d")
    assert set(found) == {1, 2} and all(redundant for _, redundant, _ in found.values())
    sentence(found[2][2])


def test_the_last_step_is_never_redundant() -> None:
    rows = steps("a", "b")
    rows[-1] = rows[-1].model_copy(update={"next_screenshot": "b"})
    assert reflections_of(trajectory(), rows, NOON) == []


def test_an_action_that_could_not_be_performed_was_not_correct() -> None:
    assert flags("a", actions=[], action_error="no action in the reply") == {
        0: (False, None, "It holds no action that could be performed: no action in the reply.")
    }
