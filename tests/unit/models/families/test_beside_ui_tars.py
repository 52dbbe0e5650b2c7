"""The public `ui-tars` package, running beside our reading of replies: what it says was recorded, and what differs has
a reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.shared.beside_ui_tars import EQUAL, ONLY_HERE, REASONS, Package, compared, difference, garbled

CASES = json.loads((Path(__file__).parents[3] / "golden" / "replies.json").read_text())["ui-tars"]
EXAMPLES = [case["text"] for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][:50])
def test_the_package_says_what_was_recorded_of_it(case: dict[str, Any]) -> None:
    found = Package().raw(case["text"], case["sides"])
    if isinstance(found, str):
        assert case["theirs"] == {"raises": found}
    else:
        made = [{"type": one["action_type"], "inputs": one["action_inputs"]} for one in found]
        assert case["theirs"] == {"thought": found[0]["thought"], "actions": made}


def test_garbled_replies_are_read_alike_or_differ_for_a_known_reason() -> None:
    counts, unexplained = compared(garbled(EXAMPLES, 3000), Package())
    assert not unexplained and set(counts) <= {EQUAL, *REASONS}
    assert counts[EQUAL] > 2000 and counts[ONLY_HERE] > 100


def test_a_reply_that_both_read_differently_without_a_reason_is_seen() -> None:
    package = Package()
    theirs = package.read("Thought: a\nAction: click(start_box='(1,2)')")
    assert difference("Thought: a\nAction: click(start_box='(1,2)')", theirs) == EQUAL
    assert difference("Thought: a\nAction: click(start_box='(2,1)')", theirs) == "unexplained"
