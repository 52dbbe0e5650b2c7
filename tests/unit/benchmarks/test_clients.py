"""How the benchmark compares other clients' readings of replies with ours, on clients that are made up."""

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.replies.clients import (
    AGREE,
    CALLS,
    CLIENTS,
    KINDS,
    NEITHER,
    NO_ACTION,
    ONLY_HERE,
    THINKING,
    UNEXPLAINED,
    Pair,
    functions,
    garbled,
)
from schemas.failure import FlywheelError

READER = """
import no_such_module

LIMIT = 1

class FaraAgent(no_such_module.Agent):
    @no_such_module.traced
    def _parse_thoughts_and_action(self, message):
        thoughts, call = message.split("<tool_call>\\n")
        call = json.loads(call.split("\\n</tool_call>")[0])
        return thoughts, call
"""


def pair(folder: Path, source: str = READER) -> Pair:
    file = folder / "src" / "fara" / "fara_agent.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return Pair(CLIENTS["Fara"], folder)


def call(x: int, action: str = "left_click") -> str:
    arguments = {"action": action, "coordinate": [x, 300]}
    return f"I do it.\n<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>"


def test_a_function_is_taken_out_of_a_source_whose_imports_are_not_there(tmp_path: Path) -> None:
    pair(tmp_path)
    file = tmp_path / "src" / "fara" / "fara_agent.py"
    assert functions(file, "LIMIT").LIMIT == 1
    with pytest.raises(FlywheelError, match="has no other"):
        functions(file, "LIMIT", "other")


def test_each_reply_is_counted_by_why_the_two_readings_differ(tmp_path: Path) -> None:
    both = pair(tmp_path)
    assert both.compare(call(500)) == AGREE
    assert both.compare("nothing") == NEITHER
    assert both.compare(call(500).replace('"', "'")) == ONLY_HERE
    assert both.compare(f"<think>\n{call(500)}") == THINKING
    assert both.compare(call(2000)) == NEITHER
    assert both.compare(call(500).replace("[500, 300]", "[500, 300, 1]")) in (NEITHER, NO_ACTION)


def test_a_reading_that_differs_without_a_reason_is_seen(tmp_path: Path) -> None:
    swapped = READER.replace("return", 'call["arguments"]["coordinate"].reverse()\n        return')
    assert pair(tmp_path, swapped).compare(call(500)) == UNEXPLAINED


def test_garbled_replies_are_read_alike_by_a_client_that_reads_as_we_do(tmp_path: Path) -> None:
    both = pair(tmp_path)
    counts = Counter(map(both.compare, garbled(CALLS, 500)))
    assert counts[AGREE] > 30 and not counts[UNEXPLAINED] and set(counts) <= set(KINDS)
