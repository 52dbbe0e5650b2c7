"""The explorer's keys are those that an instruction names; where it sees no elements it does what is taken there."""

import pytest

from environments.games.environment import built_in
from environments.miniwob.environment import MiniwobConfig, MiniwobEnvironment
from environments.site.environment import ENTRIES
from models.explorer import KEYS, PageExplorer, ScriptedExplorer
from models.families.dialects import format_action
from models.policy import Context
from schemas.action import Action, Click, Hotkey, Navigate, WriteFile
from schemas.observation import Element, Observation, PastStep

SEEN = Observation(b"", 1, 1, "", (Element("Score 0", "text", (0.0, 0.0, 0.5, 0.1), interactive=False),))
BLIND = Observation(b"", 1, 1, "")


def done(instruction: str, *takes: str) -> list[Action]:
    """What it does where no elements are listed, with a click before."""
    turn = PastStep("", format_action(Click(x=0.5, y=0.5), "box_v1"), BLIND)
    shown = Observation(b"", 1, 1, "", takes=frozenset(takes))
    contexts = [Context(instruction, (turn,), shown, seed) for seed in range(400)]
    return [one.first for one in PageExplorer().act(contexts) if one.first is not None]


def pressed(instruction: str) -> list[str]:
    contexts = [Context(instruction, (), SEEN, seed) for seed in range(200)]
    actions = [one.first for one in PageExplorer().act(contexts)]
    return [action.key for action in actions if isinstance(action, Hotkey)]


def test_the_keys_that_an_instruction_names_are_pressed_most_of_the_time_and_no_others() -> None:
    found = pressed("Steer the snake. Keys: left, right, space.")
    assert set(found) == {"left", "right", "space"} and 120 < len(found) < 190


def test_where_no_keys_are_named_none_is_pressed() -> None:
    assert pressed("Press the key: it is left.") == []


def test_keys_that_an_instruction_names_are_pressed_where_no_elements_are_listed_too() -> None:
    keys = [action.key for action in done("Keep it upright. Keys: left, right.") if isinstance(action, Hotkey)]
    assert set(keys) == {"left", "right"} and 280 < len(keys) < 360
    assert {action.type for action in done("Press left.")} == {"click", "type", "drag", "scroll", "wait"}


@pytest.mark.parametrize(
    ("takes", "expected"),
    [
        (("click", "finished"), {"click"}),
        (("click", "type", "left_double"), {"click", "type"}),
        (("drag", "type"), {"drag", "type"}),
        (("type",), {"type"}),
        (("hotkey",), {"hotkey"}),
        (("hotkey", "wait"), {"hotkey", "wait"}),
    ],
)
def test_where_an_environment_says_what_it_takes_nothing_else_is_done(
    takes: tuple[str, ...], expected: set[str]
) -> None:
    assert {action.type for action in done("Keep it upright. Keys: left, right.", *takes)} == expected


def test_where_keys_alone_are_taken_and_none_is_named_it_presses_enter() -> None:
    assert {action.key for action in done("Go.", "hotkey") if isinstance(action, Hotkey)} == {"enter"}


def test_only_games_name_keys() -> None:
    others = [*MiniwobEnvironment("miniwob", MiniwobConfig()).entries.values(), *ENTRIES.values()]
    assert len(others) > 100 and not any(KEYS.search(entry.instruction) for entry in others)
    played = {name: entry for name, entry in built_in().items() if "keys" in entry.tags}
    assert played and all(KEYS.search(entry.instruction) for entry in played.values())


@pytest.mark.parametrize("hint", [Navigate(content="/page/O'Neil"), WriteFile(path="a.py", content="a = '1'\n")])
def test_the_scripted_explorer_plays_the_script_and_explores_where_there_is_none(hint: Action) -> None:
    explorer, plain = ScriptedExplorer(), Context("Press it.", (), SEEN, 3)
    hinted = Context("Press it.", (), SEEN, 3, hint=hint)
    assert [one.first for one in explorer.act([hinted])] == [hint]
    assert explorer.act([plain]) == PageExplorer().act([plain]) == PageExplorer().act([hinted])


def clicks_on_the_filled(*past: PastStep) -> float:
    """Share of clicks on a filled field next to a button."""
    elements = (
        Element("Name", "text field", (0.0, 0.0, 0.3, 0.1), True, "Ada"),
        Element("Save", "button", (0.5, 0.5, 0.8, 0.6), True),
    )
    shown = Observation(b"", 1, 1, "", elements)
    actions = [one.first for one in PageExplorer().act([Context("Go.", past, shown, seed) for seed in range(800)])]
    clicks = [one for one in actions if isinstance(one, Click) and one.x in (0.15, 0.65)]
    return sum(one.x == 0.15 for one in clicks) / len(clicks)


def test_a_field_that_the_page_has_filled_is_clicked_as_often_as_another_and_one_clicked_before_seldom() -> None:
    into, away = (
        PastStep("", format_action(Click(x=x, y=y), "box_v1"), BLIND) for x, y in ((0.15, 0.05), (0.9, 0.9))
    )
    assert 0.42 < clicks_on_the_filled() < 0.58
    assert 0.42 < clicks_on_the_filled(away) < 0.58
    assert clicks_on_the_filled(into, away) < 0.2
