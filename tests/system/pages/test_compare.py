"""From a failing evaluation to a new policy, page by page, in a real headless Chromium.

The walk is recorded: each screen of it is a frame of `walk-WIDTH-COLOURS.webp` in the test's folder, or in the folder
that the variable FLYWHEEL_RECORD names.
"""

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from flywheel.film import save_moving
from schemas.config import load_config
from schemas.table import utc_now
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.running.budget import pause_of
from tasks.running.run_status import RunStatus, file_of
from tasks.shared.finding import Wanted, find
from tasks.shared.policies import policy_row
from tests.system.parts.desk import Desk, chromium, person, serving
from tests.unit.apps.conftest import Place, make_place

Look = Callable[[Desk, int, str], None]
ROOT = Path(__file__).parents[3]
LOADED = """return [...document.images].every((one) => one.complete || one.getBoundingClientRect().top > innerHeight)"""
"""Whether the pictures in view are loaded."""
PROMOTION = {
    "event": "challenge:policy-0001", "decision": "promote", "policy_version": "policy-0001", "against": "policy-0000",
    "champion": "policy-0001", "pairs": 16, "wins": 4, "losses": 0, "difference": 0.25, "low": 0.0, "high": 0.5,
    "llr": None, "rule": "{}", "reason": "better",
}  # fmt: skip


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    place = make_place(tmp_path_factory.mktemp("compare"))
    place.lake.append("promotions", [Promotion(**PROMOTION, created_at=utc_now())])
    with serving(place, tmp_path_factory.mktemp("home")) as (_, address), chromium() as start:
        yield person("Ada", place.lake, address, start())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk over the lake of a run of the profile `smoke`, whose config retrains in few steps."""
    folder = tmp_path_factory.mktemp("trained")
    file = folder / "smoke.toml"
    smoke = (ROOT / "configs/smoke.toml").read_text()
    file.write_text(smoke.replace('uri = "lake"', f'uri = "{folder / "lake"}"').replace("steps = 40", "steps = 10"))
    environ = {**os.environ, "FLYWHEEL_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "apps.cli", "run", "--config", str(file)]
    subprocess.run(command, env=environ, check=True, capture_output=True)
    config = load_config(file, [], {})
    place = Place(Lake.open(config.lake), config, file)
    with serving(place, folder / "home") as (_, address), chromium() as start:
        yield person("Ada", place.lake, address, start())


@pytest.fixture
def look() -> Iterator[Look]:
    """Sets the width of the screen in pixels, and the colours `light` or `dark`."""
    seen: list[Desk] = []

    def chosen(desk: Desk, width: int, colours: str) -> None:
        seen.append(desk)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        media = {"features": [{"name": "prefers-color-scheme", "value": colours}]}
        desk.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        desk.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    yield chosen
    for desk in seen:
        desk.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        desk.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@dataclass
class Walk:
    """A person's way through the pages, and a picture of each page."""

    desk: Desk
    width: int
    frames: list[Image.Image] = field(default_factory=list)

    def arrived(self, at: Callable[[], object]) -> None:
        """Waits until the page has what is looked for, and takes its picture."""
        self.desk.until(at)
        self.desk.until(lambda: self.desk.browser.execute_script(LOADED))
        assert fits(self.desk, self.width)
        self.picture()

    def picture(self) -> None:
        png = self.desk.browser.get_screenshot_as_png()
        self.frames.append(Image.open(io.BytesIO(png)).convert("RGB"))

    def click(self, where: str, by: str = By.CSS_SELECTOR) -> None:
        """Scrolls to the first element that matches and clicks on it as a pointer does."""
        found: list[WebElement] = self.desk.until(lambda: self.desk.browser.find_elements(by, where))
        script = "arguments[0].scrollIntoView({block: 'center', inline: 'center'})"
        self.desk.browser.execute_script(script, found[0])
        ActionChains(self.desk.browser).move_to_element(found[0]).click().perform()

    def choose(self, name: str, value: str) -> None:
        Select(self.desk.browser.find_element(By.NAME, name)).select_by_value(value)

    def write(self, text: str) -> None:
        """Writes the reason of a decision, or the tag."""
        note = self.desk.browser.find_element(By.NAME, "note")
        note.clear()
        note.send_keys(text)

    @property
    def text(self) -> str:
        return self.desk.browser.find_element(By.TAG_NAME, "main").text


def fits(desk: Desk, width: int) -> bool:
    return desk.browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("width", "colours", "decision"),
    [
        (1280, "light", "reject"),
        (1280, "dark", "accept"),
        (390, "light", "route:ct"),
        (390, "dark", "route:rl"),
    ],
)
def test_a_failing_evaluation_leads_to_its_task_s_data_and_to_a_new_policy(
    trained: Desk, look: Look, width: int, colours: str, decision: str, tmp_path: Path
) -> None:
    look(trained, width, colours)
    trained.browser.get_log("browser")
    walk, tag = Walk(trained, width), f"as-{width}-{colours}"
    failing = find(trained.lake, Wanted(policy="policy-0000", outcome="failure", evaluations=True)).rows[0].row
    trained.open("/")
    cell = urlencode({"evaluations": "true", "task": failing.task_id, "policy": "policy-0000"})
    drawn_cell = f'#chart-heat path[aria-label$="{cell}"]'
    walk.arrived(lambda: trained.count(drawn_cell))
    walk.click(drawn_cell)
    walk.arrived(lambda: trained.browser.current_url.endswith(cell) and "in total" in walk.text)
    walk.click("//tr[td[text()='failure']]//td[@class='id']/a", By.XPATH)
    walk.arrived(lambda: "held-out seed" in walk.text)
    assert not trained.browser.find_elements(By.LINK_TEXT, "review it")
    walk.click("compare with another policy", By.LINK_TEXT)
    walk.arrived(lambda: trained.count(".sides b a") == 2 and all(drawn(trained)))
    sides = [one.text for one in trained.browser.find_elements(By.CSS_SELECTOR, ".sides b a")]
    assert sides[0] == "policy-0000" != sides[1] and trained.count(".sides .screen") >= 4
    walk.click("collected trajectories of this task", By.LINK_TEXT)
    collected = find(trained.lake, Wanted(task=failing.task_id)).total
    walk.arrived(lambda: f"{collected} in total" in walk.text and trained.count("[name=pick]"))
    for number in (1, 2, 3):
        walk.click(f"(//input[@name='pick'])[{number}]", By.XPATH)
    walk.choose("decision", "tag")
    walk.write(tag)
    walk.click("#decide")
    walk.arrived(lambda: f"3 trajectories: tag {tag}" in trained.text("decided"))
    trained.browser.find_element(By.NAME, "tag").send_keys(tag, Keys.ENTER)
    walk.arrived(lambda: f"tag={tag}" in trained.browser.current_url and "3 in total" in walk.text)
    walk.click("#all")
    walk.choose("decision", decision)
    walk.write("the walk")
    walk.click("#decide")
    walk.arrived(lambda: "3 trajectories: " in trained.text("decided"))
    stored = [(one.decision, one.note) for one in trained.reviews()[-3:]]
    assert stored == [("accept" if decision == "accept" else "reject", "the walk")] * 3  # routes but sft are rejections
    champion = policy_row(trained.lake, "champion").policy_version
    walk.click("Retrain", By.LINK_TEXT)
    walk.arrived(lambda: trained.browser.current_url.endswith(f"/policies/{champion}"))
    walk.click("//button[text()='Retrain from the current data']", By.XPATH)
    walk.picture()
    made = "//*[@id='retraining']//a[starts-with(text(), 'Open retrained-')]"
    patient = replace(trained, wait_s=240)
    patient.until(lambda: trained.browser.find_elements(By.XPATH, made))
    walk.picture()
    walk.click(made, By.XPATH)
    walk.arrived(lambda: "/policies/retrained-" in trained.browser.current_url and trained.count("#chart-training svg"))
    assert "Made from" in walk.text and champion in walk.text
    assert trained.browser.get_log("browser") == []
    folder = Path(os.environ.get("FLYWHEEL_RECORD", tmp_path))
    save_moving(walk.frames, folder / f"walk-{width}-{colours}.webp")


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_pair_of_a_promotion_opens_both_policies(ada: Desk, look: Look, width: int, colours: str) -> None:
    look(ada, width, colours)
    ada.browser.get_log("browser")
    ada.open("/policies/policy-0001")
    ada.until(lambda: "Pairs that decided" in ada.browser.find_element(By.TAG_NAME, "main").text)
    ada.browser.find_element(By.LINK_TEXT, "1000005").click()
    ada.until(lambda: ada.count(".sides .screen") == 4)
    assert "success" in ada.browser.find_element(By.CSS_SELECTOR, ".sides").text and fits(ada, width)
    assert ada.until(lambda: all(drawn(ada)))
    assert ada.browser.get_log("browser") == []


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_many_are_selected_decided_on_and_undone(ada: Desk, look: Look, width: int, colours: str) -> None:
    look(ada, width, colours)
    ada.browser.get_log("browser")
    before = len(ada.reviews())
    ada.open("/trajectories?outcome=failure&iteration=1")
    button = ada.browser.find_element(By.ID, "decide")
    ada.until(lambda: not button.is_enabled())
    for box in ada.browser.find_elements(By.NAME, "pick")[:2]:
        box.click()
    ada.until(lambda: button.text == "Decide on 2 trajectories")
    Select(ada.browser.find_element(By.NAME, "decision")).select_by_value("route:rl")
    button.click()
    ada.until(lambda: "2 trajectories: route to rl" in ada.text("decided"))
    assert fits(ada, width) and len(ada.reviews()) == before + 2
    ada.browser.find_element(By.ID, "undo").click()
    ada.until(lambda: "2 trajectories: undone" in ada.text("decided"))
    assert {one.decision for one in ada.reviews()[before + 2 :]} == {"undo"}
    Select(ada.browser.find_element(By.NAME, "decision")).select_by_value("tag")
    note = ada.browser.find_element(By.NAME, "note")
    note.clear()
    note.send_keys("flaky")
    button.click()
    ada.until(lambda: "2 trajectories: tag flaky" in ada.text("decided"))
    ada.browser.find_element(By.ID, "undo").click()
    ada.until(lambda: "2 trajectories: undone" in ada.text("decided"))
    assert find(ada.lake, Wanted(tag="flaky")).total == 0
    ada.browser.find_element(By.ID, "all").click()
    ada.until(lambda: button.text.startswith("Decide on") and "2 " not in button.text[:12])
    assert ada.browser.get_log("browser") == []


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_selection_is_exported_and_forgotten(ada: Desk, look: Look, width: int, colours: str) -> None:
    look(ada, width, colours)
    ada.browser.get_log("browser")
    ada.open("/trajectories?outcome=failure&iteration=0")
    before, button = ada.lake.count("trajectories"), ada.browser.find_element(By.ID, "decide")
    ada.until(lambda: not button.is_enabled())
    ada.browser.find_element(By.NAME, "pick").click()
    Select(ada.browser.find_element(By.NAME, "decision")).select_by_value("export")
    ada.until(lambda: button.text == "Export 1 trajectory")
    Select(ada.browser.find_element(By.NAME, "format")).select_by_value("atif")
    button.click()
    link = ada.until(lambda: ada.browser.find_elements(By.CSS_SELECTOR, "#decided a[download]"))[0]
    assert "atif-" in link.get_attribute("href") and fits(ada, width)
    Select(ada.browser.find_element(By.NAME, "decision")).select_by_value("forget")
    ada.browser.find_element(By.NAME, "note").send_keys("a card number")
    button.click()
    (forget,) = ada.until(lambda: ada.browser.find_elements(By.ID, "forget"))
    assert "Policies that learned from them: policy-0000" in ada.text("decided") and fits(ada, width)
    assert ada.lake.count("trajectories") == before
    forget.click()
    ada.until(lambda: "1 trajectory: forgotten" in ada.text("decided"))
    assert ada.lake.count("trajectories") == before - 1 and ada.browser.get_log("browser") == []


@pytest.mark.slow
def test_a_run_is_stopped_on_the_page_and_the_pause_ended(ada: Desk) -> None:
    ada.browser.get_log("browser")
    status = RunStatus(heard=time.time(), run_id="live", stage="train", iteration=1)
    ada.lake.blobs.store.put(file_of("live"), status.model_dump_json().encode())
    ada.open("/running")
    stop, resume = (ada.browser.find_element(By.ID, name) for name in ("stop", "resume"))
    ada.until(stop.is_displayed)
    stop.click()
    ada.until(resume.is_displayed)
    pause = pause_of(ada.lake)
    assert pause is not None and pause.by == "Ada" and "ends after its current stage" in ada.text("paused")
    assert not stop.is_displayed()
    resume.click()
    ada.until(lambda: not resume.is_displayed())
    assert pause_of(ada.lake) is None and ada.browser.get_log("browser") == []


def drawn(desk: Desk) -> list[bool]:
    """Whether each picture of the page could be loaded."""
    return desk.browser.execute_async_script(
        "const done = arguments[0], images = [...document.querySelectorAll('.sides image')];"
        "Promise.all(images.map((one) => fetch(one.getAttribute('href')).then((answer) => answer.ok))).then(done)"
    )
