"""The public `ui-tars` package, running beside our reading of replies: what it says was recorded, and what differs has
a reason."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from models.completion import Completion
from models.families.registry import FAMILIES
from models.families.template import template
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from tests.fixtures.ui_tars_package import EQUAL, INSIDE, ONLY_HERE, REASONS, Package, compared, difference, garbled
from tests.unit.models.families.test_families import ACTIONS

NEVER = "_never_used_51bce0c785ca2f68081bfa7d91973934"
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


@pytest.mark.nightly
def test_a_hundred_thousand_garbled_replies_are_read_alike_or_differ_for_a_known_reason() -> None:
    counts, unexplained = compared(garbled(EXAMPLES, 100_000), Package())
    assert not unexplained and counts[EQUAL] > 80_000 and counts[INSIDE] > 0


def test_a_reply_that_both_read_differently_without_a_reason_is_seen() -> None:
    package = Package()
    theirs = package.read("Thought: a\nAction: click(start_box='(1,2)')")
    assert difference("Thought: a\nAction: click(start_box='(1,2)')", theirs) == EQUAL
    assert difference("Thought: a\nAction: click(start_box='(2,1)')", theirs) == "unexplained"


def test_what_ui_tars_2_writes_is_the_same_call_to_the_packages_xml_parsers_under_both_names_of_tags() -> None:
    parser: Any = import_module("ui_tars.action_parser")
    functions = template("ui-tars-2-functions.txt").replace("use \n at", "use at")
    listed = f"{functions}\n{template('tools.txt')}".splitlines()
    tools = [json.loads(line) for line in listed if line.startswith('{"type"')]
    family = FAMILIES.class_of("ui-tars-2")(PolicyConfig(family="ui-tars-2"))
    written = 0
    for action in ACTIONS:
        try:
            plain = family.reply("I do it.", [action], (1000, 1000))
        except UsageError:
            continue
        never = re.sub(r"(</?(?:function|parameter|seed:tool_call))(?=[=>])", rf"\1{NEVER}", plain)
        never = never.replace("thinkt>", f"think{NEVER}>")
        (call,) = parser.parse_xml_action(plain, tools)
        assert call["function"] == {"move": "move_to"}.get(action.type, action.type)
        assert parser.parse_xml_action_v3(never, tools) == [call]
        assert family.read(Completion(never), (1000, 1000)).first == family.read(Completion(plain), (1000, 1000)).first
        written += 1
    assert written == 25
