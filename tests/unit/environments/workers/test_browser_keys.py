"""Keys and scrolls as workers hand them to Playwright."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from environments.workers import host
from schemas.keyboard import KEYS, usual

FOREIGN = Path(host.__file__).parent / "foreign"


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(FOREIGN)
    import flywheel_browser  # pyright: ignore[reportMissingImports]

    yield flywheel_browser
    for name in ("flywheel_browser", "flywheel_worker"):
        sys.modules.pop(name, None)


def test_playwrights_names_are_those_of_the_table_of_keys(browser: ModuleType) -> None:
    for name, theirs in browser.KEYS.items():
        assert theirs in (KEYS[name].key, KEYS[name].code, "Space"), name
    assert {k.name: k.shifted for k in KEYS.values() if k.shifted and not k.name.isalpha()} == browser.SHIFTED


def test_with_shift_playwright_is_told_the_character(browser: ModuleType) -> None:
    """Playwright 1.53: `Shift+a` writes `a` and `Shift+A` writes `A` (microsoft/playwright#14501)."""
    for keys, wanted in {
        "shift a": "Shift+A", "shift 1": "Shift+!", "ctrl c": "Control+c", "Ctrl+Shift+T": "Control+Shift+T",
        "pgdn": "PageDown", "num7": "7", "shift tab": "Shift+Tab",
    }.items():  # fmt: skip
        assert browser.chord(usual(keys)) == wanted


def test_a_scroll_without_a_place_is_where_the_pointer_is(browser: ModuleType) -> None:
    """BrowserGym's `scroll` moves no pointer; its `scroll_at` does."""
    (name, given), *rest = browser.calls_of({"type": "scroll", "direction": "up"}, 100, 100)
    assert (name, given["delta_x"], rest) == ("scroll", 0, []) and given["delta_y"] < 0
    ((name, placed),) = browser.calls_of({"type": "scroll", "direction": "up", "x": 0.5, "y": 0.2}, 100, 100)
    assert (name, placed) == ("scroll_at", {"x": 50, "y": 20, "dx": 0, "dy": given["delta_y"]})
