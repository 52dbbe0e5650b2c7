"""The explorer's keys: those that an instruction names, and none where it names none."""

from environments.games.game import built_in
from environments.miniwob.environment import MiniwobConfig, MiniwobEnvironment
from environments.site.tasks import ENTRIES
from models.explorer import KEYS, PageExplorer
from models.policy import Context
from schemas.action import Hotkey
from schemas.observation import Element, Observation

SEEN = Observation(b"", 1, 1, "", (Element("Score 0", "text", (0.0, 0.0, 0.5, 0.1), interactive=False),))


def pressed(instruction: str) -> list[str]:
    contexts = [Context(instruction, (), SEEN, seed) for seed in range(200)]
    actions = [one.action for one in PageExplorer().act(contexts)]
    return [action.key for action in actions if isinstance(action, Hotkey)]


def test_the_keys_that_an_instruction_names_are_pressed_most_of_the_time_and_no_others() -> None:
    found = pressed("Steer the snake. Keys: left, right, space.")
    assert set(found) == {"left", "right", "space"} and 120 < len(found) < 190


def test_where_no_keys_are_named_none_is_pressed() -> None:
    assert pressed("Press the key: it is left.") == []


def test_only_games_name_keys() -> None:
    others = [*MiniwobEnvironment("miniwob", MiniwobConfig()).entries.values(), *ENTRIES.values()]
    assert len(others) > 100 and not any(KEYS.search(entry.instruction) for entry in others)
    played = {name: entry for name, entry in built_in().items() if "keys" in entry.tags}
    assert played and all(KEYS.search(entry.instruction) for entry in played.values())
