"""Text that no UTF-8 can hold still reaches the lake, and comes back as text."""

from pathlib import Path

import pytest

from common.text import counted, lasting, legible, some_of, storable
from models.families.dialects import parse_reply
from schemas.action import Type, from_json_list, to_json
from schemas.config.sections import LakeConfig
from schemas.tables.step import Step
from storage.lake import Lake
from tests.unit.storage.conftest import DEFAULTS

HOSTILE = "caf\u00e9 \ud83d \udc00 \U0001f600"
KEPT = "caf\u00e9 \\ud83d \\udc00 \U0001f600"


@pytest.mark.parametrize("text", ["", "plain", "caf\u00e9", "\U0001f600", "\x01\n", "\\ud83d", "\\x00"])
def test_what_can_be_stored_stays_as_it_was(text: str) -> None:
    assert storable(text) == text


def test_a_nul_is_written_out() -> None:
    assert storable("a\0b") == "a\\x00b" and storable("\u00e9\0") == "\u00e9\\x00"


def test_a_reply_with_half_a_character_comes_back_from_the_lake_with_everything_else_as_it_was(tmp_path: Path) -> None:
    reply = f"Thought: {HOSTILE}\nAction: type(content='{HOSTILE}')"
    parsed = parse_reply(reply)
    assert parsed.first == Type(content=KEPT)
    texts = {
        "thought": parsed.thought,
        "raw_text": reply,
        "actions": [*map(to_json, parsed.actions)],
        "action_error": HOSTILE,
    }
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    lake.append("steps", [Step(**DEFAULTS["steps"] | texts)])
    lake.append("verdicts", [DEFAULTS["verdicts"] | {"reason": HOSTILE}])
    (step,) = lake.read("steps").to_pylist()
    assert (step["thought"], step["action_error"]) == (KEPT, KEPT)
    assert step["raw_text"] == reply.replace(HOSTILE, KEPT) and from_json_list(step["actions"]) == [*parsed.actions]
    assert lake.read("verdicts")["reason"].to_pylist() == [KEPT]


def test_a_key_that_is_half_a_character_is_an_unreadable_action_and_no_crash() -> None:
    parsed = parse_reply("hotkey(key='ctrl \ud83d')")
    assert (parsed.first is None) == (parsed.error is not None)


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (1, ("task",), "1 task"),
        (0, ("task",), "0 tasks"),
        (1200, ("task",), "1,200 tasks"),
        (1, ("trajectory", "trajectories"), "1 trajectory"),
        (2, ("trajectory", "trajectories"), "2 trajectories"),
    ],
)
def test_a_number_has_its_noun_in_one_or_many(number: int, words: tuple[str, ...], said: str) -> None:
    assert counted(number, *words) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 s"), (99.4, "99 s"), (100, "2 min"), (5940, "99 min"), (7200, "2 h"), (7810, "2 h 10 min")],
)
def test_a_duration_is_said_in_the_unit_that_it_has_few_of(seconds: float, said: str) -> None:
    assert lasting(seconds) == said


def test_a_long_list_of_names_ends_with_the_number_of_the_others() -> None:
    assert some_of(["colour"]) == "colour" and some_of(["a", "b"]) == "a, b"
    assert some_of(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def test_undecodable_characters_are_counted() -> None:
    assert legible("no action in '\ufffd\ufffd\ufffd'") == "no action in '[3 undecodable characters]'"
    assert legible("a\ufffdb, ü") == "a[1 undecodable character]b, ü"
