"""A desk in a real headless Chromium, as a person with a keyboard uses it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import Select

from schemas.tables.review import Review
from storage.lake import Lake
from tests.tiers import NO_BROWSER
from tests.unit.apps.conftest import Place

CHROMIUM = ("/usr/bin/chromium", "/usr/lib/chromium/chromium")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900")
WAIT_S = 20.0


@dataclass
class Desk:
    """A desk that is served over a lake, and a browser of each person's own."""

    lake: Lake
    address: str
    browser: WebDriver
    wait_s: float = WAIT_S
    """Seconds until a wait fails."""

    def open(self, path: str) -> None:
        self.browser.get(self.address + path)

    def press(self, *keys: str) -> None:
        for key in keys:
            webdriver.ActionChains(self.browser).send_keys(key).perform()

    def save(self) -> None:
        webdriver.ActionChains(self.browser).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()

    def text(self, identity: str) -> str:
        return self.browser.find_element(By.ID, identity).text

    def count(self, selector: str) -> int:
        return len(self.browser.find_elements(By.CSS_SELECTOR, selector))

    def until(self, holds: Callable[[], Any]) -> Any:
        end = time.monotonic() + self.wait_s
        while time.monotonic() < end:
            if found := holds():
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited in vain at {self.browser.current_url}: {self.browser.page_source[-2500:]}")

    def reviews(self) -> list[Review]:
        return sorted(self.lake.rows(Review), key=lambda one: (one.created_at, one.revision))

    @property
    def shown(self) -> str:
        """The trajectory that the page is about."""
        path = self.browser.current_url.removeprefix(self.address)
        return path.split("/")[2].split("?")[0] if path.startswith("/review/") else ""


@contextmanager
def chromium() -> Iterator[Callable[[], WebDriver]]:
    """Starts real browsers, and ends them; skips where there is none."""
    driver, path = shutil.which("chromedriver"), next((one for one in CHROMIUM if Path(one).exists()), None)
    if driver is None or path is None:
        pytest.skip(NO_BROWSER)
    options = webdriver.ChromeOptions()
    options.binary_location = path
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in FLAGS:
        options.add_argument(flag)
    started: list[WebDriver] = []

    def start() -> WebDriver:
        started.append(webdriver.Chrome(options, Service(driver)))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.quit()


@contextmanager
def serving(place: Place, home: Path, port: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A desk of its own process, and its address."""
    environ = {**os.environ, "FLYWHEEL_HOME": str(home), "FLYWHEEL__DESK__IDLE_S": "30"}
    words = [sys.executable, "-m", "apps.cli", "desk", "--port", port, "--config", str(place.file)]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as desk:
        assert desk.stdout is not None
        try:
            yield desk, desk.stdout.readline().split()[1].rstrip("/")
        finally:
            desk.send_signal(signal.SIGTERM)
            desk.wait(15)


def person(name: str, lake: Lake, address: str, browser: WebDriver) -> Desk:
    desk = Desk(lake, address, browser)
    desk.open("/queue")
    desk.browser.find_element(By.ID, "person").send_keys(name, Keys.ENTER)
    return desk


def begin_live(desk: Desk, task: str, seed: int) -> None:
    """Begins a live session in which the explorer proposes, and waits for the first proposal."""
    desk.open(f"/live?task={task}")
    desk.browser.find_element(By.NAME, "seed").send_keys(str(seed))
    desk.browser.execute_script("document.querySelector('[name=policy]').value = 'explorer'")
    desk.save()
    desk.until(lambda: "/live/" in desk.browser.current_url)
    desk.until(lambda: desk.text("state") == "your turn")


def override_all(desk: Desk, seed: int) -> None:
    """Overrides each proposal in `two-steps` by the right click, until the session has ended."""
    editor = desk.browser.find_element(By.ID, "editor")
    for target in targets(seed):
        desk.until(lambda: desk.text("state") == "your turn")
        if not editor.is_displayed():
            desk.press("o")
        aim(desk, *target)
        desk.save()
        desk.until(lambda: desk.text("state") in ("your turn", "ended") and not editor.is_displayed())
    desk.until(lambda: "Success after 2 steps" in desk.text("banner"))


def targets(seed: int) -> list[tuple[float, float]]:
    """Where the buttons of the fake task are, in the order in which they are to be clicked."""
    from environments.fake import HEIGHT, WIDTH, _scene  # pyright: ignore[reportPrivateUsage]

    scene = _scene("two-steps", seed)
    boxes = [scene.buttons[name] for name in scene.order]
    return [((left + right) / 2 / WIDTH, (top + bottom) / 2 / HEIGHT) for left, top, right, bottom in boxes]


def aim(desk: Desk, x: float, y: float) -> None:
    """Asks for a click in the editor, and points at a fraction of the screen in the picture."""
    Select(desk.browser.find_element(By.NAME, "type")).select_by_value("click")
    screen = desk.browser.execute_script(
        "const svg = document.getElementById('screen'), box = svg.viewBox.baseVal, m = svg.getScreenCTM();"
        "return [m.a * box.width * arguments[0] + m.e, m.d * box.height * arguments[1] + m.f]", x, y,
    )  # fmt: skip
    actions = webdriver.ActionChains(desk.browser)
    actions.w3c_actions.pointer_action.move_to_location(int(screen[0]), int(screen[1]))
    actions.w3c_actions.pointer_action.click()
    actions.perform()
