"""The scripted annotator: what it finds wrong of a trajectory, and what it does about that."""

import json
from typing import Any

from benchmarks.learning._annotator import decision_on, first_wrong, wanted_of

BOXES = [
    ("red", "button", (0.1, 0.5, 0.3, 0.6)),
    ("blue", "button", (0.6, 0.7, 0.8, 0.8)),
    ("", "text field", (0.1, 0.3, 0.9, 0.4)),
]


def item(instruction: str, *actions: dict[str, Any], success: bool = False) -> dict[str, Any]:
    steps = [{"step": number, "action": json.dumps(action), "elements": BOXES} for number, action in enumerate(actions)]
    return {"instruction": instruction, "success": success, "steps": steps}


RED, BLUE = {"type": "click", "x": 0.2, "y": 0.55}, {"type": "click", "x": 0.7, "y": 0.75}
FIELD = {"type": "click", "x": 0.5, "y": 0.35}


def test_it_reads_what_is_asked_for_in_order() -> None:
    assert wanted_of('Click the "red" button, then the "blue" button.') == [("click", "red"), ("click", "blue")]
    assert wanted_of('Type "ada" and click the "red" button.') == [("click", ""), ("type", "ada"), ("click", "red")]


def test_the_first_step_that_does_not_do_what_is_asked_next_is_corrected() -> None:
    wrong = item('Click the "red" button, then the "blue" button.', RED, RED)
    assert first_wrong(wrong) == (1, ("click", "blue"))
    decided = decision_on(wrong)
    assert (decided["decision"], decided["step"]) == ("correct", 1)
    assert (decided["action"]["x"], decided["action"]["y"]) == (0.7, 0.75)
    typing = decision_on(item('Type "ada" and click the "red" button.', FIELD, {"type": "type", "content": "eda"}, RED))
    assert (typing["step"], typing["action"]) == (1, {"type": "type", "content": "ada"})


def test_a_success_is_accepted_and_what_holds_no_error_is_rejected() -> None:
    assert decision_on(item('Click the "red" button.', RED, success=True)) == {"decision": "accept"}
    assert decision_on(item('Click the "red" button.', RED)) == {"decision": "reject"}
