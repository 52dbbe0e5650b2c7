from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from curation.selection import noted_screens, shortest_way
from schemas.action import Click, Note, Type, to_json


def test_an_action_that_changed_nothing_is_cut():
    assert shortest_way(["a", "a", "b"]) == [1, 2]


def test_a_detour_back_to_an_earlier_screen_is_cut():
    assert shortest_way(["a", "b", "c", "b", "d"]) == [0, 3, 4]


def test_the_rewarded_last_step_is_always_kept():
    assert shortest_way(["a", "a"]) == [1]
    assert shortest_way(["a"]) == [0]


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_no_screen_is_visited_twice_and_each_step_leads_to_the_next(screens: list[str]):
    kept = shortest_way(screens)
    assert len({screens[i] for i in kept}) == len(kept)
    assert kept[-1] == len(screens) - 1
    assert screens[kept[0]] == screens[0]
    for here, there in pairwise(kept):
        assert screens[here + 1] == screens[there]


class Walked(NamedTuple):
    screenshot: str
    actions: Sequence[str]


def test_a_note_and_the_way_to_it_are_no_detour() -> None:
    click, note = to_json(Click(x=0, y=0)), to_json(Note(content='a"type":"note"}'))
    wrote = to_json(Type(content='"type":"note"}'))
    steps = [
        Walked("a", [click]),
        Walked("b", [note]),
        Walked("b", [wrote]),
        Walked("b", [click]),
        Walked("a", [click]),
    ]
    assert noted_screens(steps) == [("a", 0), ("b", 0), ("b", 1), ("b", 1), ("a", 1)]
    assert shortest_way(noted_screens(steps)) == [0, 1, 3, 4]
    assert shortest_way([step.screenshot for step in steps]) == [4]
