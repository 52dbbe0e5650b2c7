"""From the map's cell to an evaluation, and to the other policy on its seed, in a real headless Chromium."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from schemas.table import utc_now
from schemas.tables.promotion import Promotion
from tasks.running.budget import pause_of
from tasks.running.run_status import RunStatus, file_of
from tasks.shared.finding import Wanted, find
from tests.system.parts.desk import Desk, chromium, person, serving
from tests.unit.apps.conftest import make_place

Look = Callable[[int, str], None]
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


@pytest.fixture
def look(ada: Desk) -> Iterator[Look]:
    """Sets the width of the screen in pixels, and the colours `light` or `dark`."""

    def chosen(width: int, colours: str) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        media = {"features": [{"name": "prefers-color-scheme", "value": colours}]}
        ada.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        ada.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    yield chosen
    ada.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    ada.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def fits(desk: Desk, width: int) -> bool:
    return desk.browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_cell_leads_to_an_evaluation_and_to_the_other_policy_on_its_seed(
    ada: Desk, look: Look, width: int, colours: str, tmp_path: Path
) -> None:
    look(width, colours)
    ada.browser.get_log("browser")
    ada.open("/")
    wanted = "evaluations=true&task=fake%2Ftwo-steps&policy=policy-0001"
    cells = ada.until(lambda: ada.browser.find_elements(By.CSS_SELECTOR, f'#chart-heat path[aria-label$="{wanted}"]'))
    ada.browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", cells[0])
    ActionChains(ada.browser).move_to_element(cells[0]).click().perform()
    ada.until(lambda: ada.browser.current_url.endswith(wanted))
    assert "5 in total" in ada.browser.find_element(By.TAG_NAME, "main").text
    assert fits(ada, width)
    failing = ada.browser.find_elements(By.XPATH, "//tr[td[text()='failure']]//td[@class='id']/a")
    failing[0].click()
    ada.until(lambda: "held-out seed" in ada.browser.find_element(By.TAG_NAME, "main").text)
    assert not ada.browser.find_elements(By.LINK_TEXT, "review it") and fits(ada, width)
    ada.browser.find_element(By.LINK_TEXT, "compare with another policy").click()
    ada.until(lambda: ada.count(".sides .screen") == 4)
    assert {"policy-0001", "policy-0000"} <= {
        one.text for one in ada.browser.find_elements(By.CSS_SELECTOR, ".sides b a")
    }
    assert ada.until(lambda: all(drawn(ada))) and fits(ada, width)
    ada.browser.save_screenshot(str(tmp_path / "compare.png"))
    ada.open("/policies/policy-0001")
    ada.until(lambda: "Pairs that decided" in ada.browser.find_element(By.TAG_NAME, "main").text)
    ada.browser.find_element(By.LINK_TEXT, "1000005").click()
    ada.until(lambda: ada.count(".sides .screen") == 4)
    assert "success" in ada.browser.find_element(By.CSS_SELECTOR, ".sides").text and fits(ada, width)
    assert ada.browser.get_log("browser") == []


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_many_are_selected_decided_on_and_undone(ada: Desk, look: Look, width: int, colours: str) -> None:
    look(width, colours)
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
