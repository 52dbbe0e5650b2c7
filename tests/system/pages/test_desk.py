"""The desk as people use it: `flywheel desk` as a process of its own, a real headless Chromium, and the keyboard."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from storage.catalog import ask
from tests.system.parts.desk import Desk, aim, begin_live, chromium, override_all, person, serving, targets
from tests.unit.apps.conftest import Place, make_place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="module")
def address(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(place, tmp_path_factory.mktemp("home")) as (desk, address):
        yield address
    assert desk.returncode == 143


@pytest.fixture(scope="module")
def browsers() -> Iterator[Callable[[], WebDriver]]:
    with chromium() as start:
        yield start


@pytest.fixture(scope="module")
def ada(place: Place, address: str, browsers: Callable[[], WebDriver]) -> Desk:
    return person("Ada", place.lake, address, browsers())


def test_a_session_by_keyboard_alone(ada: Desk) -> None:
    """Open the first item, correct its step, accept it, undo that on the next page, mark the error, take a note."""
    ada.press(Keys.ENTER)
    first = ada.until(lambda: ada.shown)
    ada.press("c")
    ada.until(lambda: ada.browser.find_element(By.ID, "editor").is_displayed())
    before = float(ada.browser.find_element(By.NAME, "x").get_attribute("value") or "nan")
    ada.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, "t")
    ada.browser.switch_to.active_element.send_keys(" It is <b>there</b>.")
    ada.save()
    ada.until(lambda: len(ada.reviews()) == 1)
    ada.until(lambda: "corrected: click" in ada.text("corrected"))
    assert ada.count("#screen .ring") == 2 and ada.count("#screen .ring.right") == 1
    ada.press("l")
    ada.until(lambda: "No policy was trained on it." in ada.text("toast"))
    ada.press("a")
    second = ada.until(lambda: ada.shown not in ("", first) and ada.shown)
    ada.press("u")
    ada.until(lambda: ada.shown == first)
    ada.press("e")
    ada.until(lambda: ada.shown == second)
    ada.press("n")
    ada.until(lambda: ada.browser.find_element(By.ID, "noter").is_displayed())
    ada.browser.switch_to.active_element.send_keys("a note")
    ada.save()
    ada.until(lambda: len(ada.reviews()) == 5)

    correct, accept, undo, error, note = ada.reviews()
    assert [one.decision for one in (correct, accept, undo, error, note)] == [
        "correct", "accept", "undo", "error_step", "note",
    ]  # fmt: skip
    assert {one.person for one in ada.reviews()} == {"Ada"} and undo.undoes == accept.review_id
    assert json.loads(correct.action or "{}")["x"] > before
    assert (correct.thought or "").endswith("It is <b>there</b>.") and correct.original_thought != correct.thought
    (pair,) = ada.lake.read("pairs").to_pylist()
    assert pair["pair_id"] == correct.review_id
    decided = {row["trajectory_id"]: row for row in ask(ada.lake, "decisions", iteration=None).to_pylist()}
    assert decided[first]["decided_by"] == "person" and decided[first]["error_step"] == 0


def test_a_draft_survives_a_reload(ada: Desk) -> None:
    ada.open("/queue/3")
    name = ada.until(lambda: ada.shown)
    ada.press("c", "t")
    ada.browser.switch_to.active_element.send_keys("half a thou")
    ada.browser.refresh()
    ada.until(lambda: ada.text("draft") == "Your saved draft.")
    thought = ada.browser.find_element(By.NAME, "thought").get_attribute("value") or ""
    assert thought.endswith("half a thou")
    ada.save()
    ada.until(lambda: "Saved" in ada.text("toast"))
    assert ada.reviews()[-1].trajectory_id == name
    ada.browser.refresh()
    ada.until(lambda: ada.text("reviews"))
    assert not ada.browser.find_element(By.ID, "editor").is_displayed()


def test_a_correction_that_is_cancelled_leaves_no_draft_and_the_keys_their_meaning(ada: Desk) -> None:
    ada.open("/queue/3")
    name = ada.until(lambda: ada.shown)
    editor = ada.browser.find_element(By.ID, "editor")
    ada.press("c", "t")
    ada.browser.switch_to.active_element.send_keys("half a thou")
    ada.press(Keys.ESCAPE)
    assert editor.is_displayed()  # out of the field first
    ada.press(Keys.ESCAPE)
    assert not editor.is_displayed()
    ada.open(f"/review/{name}?at=3")
    ada.until(lambda: ada.text("actor"))
    assert not ada.browser.find_element(By.ID, "editor").is_displayed()
    ada.press("j")
    ada.until(lambda: ada.shown not in ("", name))


@pytest.mark.slow
def test_the_second_of_two_people_is_told_and_overwrites_nothing(
    ada: Desk, place: Place, address: str, browsers: Callable[[], WebDriver]
) -> None:
    bob = person("Bob", place.lake, address, browsers())
    ada.open("/queue/2")
    name = ada.until(lambda: ada.shown)
    bob.open("/queue")
    bob.until(lambda: "open with Ada" in bob.browser.page_source)
    bob.open(f"/review/{name}")
    bob.until(lambda: bob.shown == name and "open with Ada" in bob.browser.page_source)
    ada.press("r")
    ada.until(lambda: ada.shown not in ("", name))
    bob.press("a")
    bob.until(lambda: "Ada decided: reject" in bob.text("banner"))
    assert [(one.person, one.decision) for one in ada.reviews() if one.trajectory_id == name] == [("Ada", "reject")]
    bob.press("a")
    bob.until(lambda: bob.shown not in ("", name))
    assert [one.person for one in ada.reviews() if one.trajectory_id == name] == ["Ada", "Bob"]


def test_an_override_in_a_live_session_is_a_trajectory_and_a_pair(ada: Desk) -> None:
    begin_live(ada, "fake/two-steps", 5)
    ada.press("o", "t")
    ada.browser.switch_to.active_element.send_keys("The first one")
    ada.browser.refresh()
    ada.until(lambda: ada.text("state") == "your turn" and ada.browser.find_element(By.ID, "editor").is_displayed())
    point = ada.browser.find_element(By.NAME, "thought").get_attribute("value")
    assert point == "The first one"
    override_all(ada, 5)
    assert "done" in (ada.browser.find_element(By.ID, "banner").get_attribute("class") or "")  # it is no error
    lake = ada.lake
    (trajectory,) = lake.read("trajectories", where={"policy": "person"}).to_pylist()
    name = trajectory["trajectory_id"]
    assert trajectory["success"] and trajectory["policy_version"] == "explorer"
    steps = sorted(lake.read("steps", where={"trajectory_id": name}).to_pylist(), key=lambda one: one["step"])
    assert [(one["actor"], one["policy_version"]) for one in steps] == [("person", "Ada")] * 2
    assert steps[0]["thought"] == "The first one" and lake.count("screenshots", {"sha256": steps[0]["screenshot"]}) == 1
    decisions = [one for one in ada.reviews() if one.trajectory_id == name]
    assert [one.decision for one in decisions] == ["override"] * 2
    pairs = {one["pair_id"]: one for one in lake.read("pairs", where={"trajectory_id": name}).to_pylist()}
    assert pairs.keys() == {one.review_id for one in decisions}
    assert all(one["rejected"] != one["chosen"] for one in pairs.values())
    (decided,) = [row for row in ask(lake, "decisions", iteration=2).to_pylist() if row["trajectory_id"] == name]
    assert decided["route"] == "sft"


@pytest.mark.slow
def test_a_half_written_override_is_there_again_when_somebody_else_decides(
    ada: Desk, place: Place, address: str, browsers: Callable[[], WebDriver]
) -> None:
    bob = person("Bob", place.lake, address, browsers())
    begin_live(ada, "fake/two-steps", 7)
    bob.open(ada.browser.current_url.removeprefix(address))
    bob.until(lambda: bob.text("state") == "your turn")
    bob.press("o", "t")
    bob.browser.switch_to.active_element.send_keys("half a thou")
    ada.press("o")
    aim(ada, *targets(7)[0])  # the explorer, whose proposal could be accepted instead, is wrong at times
    ada.save()
    bob.until(lambda: "Ada decided: override" in bob.text("banner") and bob.text("state") == "your turn")
    editor = bob.browser.find_element(By.ID, "editor")
    assert editor.is_displayed() and "is in the form again" in bob.text("banner")
    assert bob.browser.find_element(By.NAME, "thought").get_attribute("value") == "half a thou"
    bob.press("E")  # which ends nothing while somebody writes
    ada.press("E")
    bob.until(lambda: bob.text("state") == "ended")
    assert "was not sent" in bob.text("banner") and "half a thou" in bob.text("banner")


@pytest.mark.nightly
def test_a_session_whose_desk_has_gone_offers_nothing(
    place: Place, tmp_path: Path, browsers: Callable[[], WebDriver]
) -> None:
    def offered() -> list[str]:
        shown = cleo.browser.find_elements(By.CSS_SELECTOR, "#actions button")
        return [one.text for one in shown if one.is_displayed() and one.is_enabled()]

    with serving(place, tmp_path) as (desk, address):
        cleo = person("Cleo", place.lake, address, browsers())
        begin_live(cleo, "fake/two-steps", 9)
        assert len(offered()) == 3
        desk.kill()
        cleo.until(lambda: cleo.text("state") == "no response")
        assert not offered() and "does not respond" in cleo.text("banner")
    with serving(place, tmp_path, address.rsplit(":", 1)[1]):
        cleo.until(lambda: cleo.text("state") == "gone")
        assert not offered() and "an earlier desk" in cleo.text("banner")


@pytest.mark.slow
def test_a_desk_that_is_ended_by_ctrl_c_says_what_is_kept_of_a_desk(place: Place, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "apps.cli", "desk", "--port", "0", "--config", str(place.file)]
    environ = {**os.environ, "FLYWHEEL_HOME": str(tmp_path)}
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as desk:
        assert desk.stdout is not None and desk.stdout.readline().startswith("desk ")
        desk.send_signal(signal.SIGINT)
        _, said = desk.communicate(timeout=30)
    assert desk.returncode == 130
    assert "ended by SIGINT; every decision is kept" in said and "continues from there" not in said


def test_a_key_that_is_pressed_twice_is_one_decision(ada: Desk) -> None:
    ada.open("/queue/1")
    ada.until(lambda: ada.shown and ada.text("actor"))
    ada.browser.execute_script(
        "window.posts = 0; const asked = window.fetch; window.fetch = (path, how) => {"
        "window.posts += how?.method === 'POST';"
        "return new Promise((done) => setTimeout(() => done(asked(path, how)), 500)); }"
    )
    before = len(ada.reviews())
    ada.press("n")
    ada.until(lambda: ada.browser.find_element(By.ID, "noter").is_displayed())
    ada.browser.switch_to.active_element.send_keys("twice")
    ada.save()
    ada.save()
    ada.until(lambda: not ada.browser.find_element(By.ID, "noter").is_displayed())
    assert ada.browser.execute_script("return window.posts") == 1 and len(ada.reviews()) == before + 1


@pytest.mark.slow
def test_undo_that_is_pressed_twice_takes_back_one_decision(ada: Desk) -> None:
    """Also where the first press opens the page of what it undid, on which an earlier decision stands."""
    ada.open("/queue/1")
    name = ada.until(lambda: ada.text("actor") and ada.shown)
    before = len(ada.reviews())
    for number in (1, 2):
        ada.press("n")
        ada.until(lambda: ada.browser.find_element(By.ID, "noter").is_displayed())
        ada.browser.switch_to.active_element.send_keys(f"note {number}")
        ada.save()
        ada.until(lambda number=number: len(ada.reviews()) == before + number)
        ada.until(lambda: not ada.browser.find_element(By.ID, "noter").is_displayed())
    ada.open("/queue")
    ada.press("u")
    ada.until(lambda: ada.shown == name and ada.text("actor"))
    ada.press("u")
    time.sleep(1.5)  # long enough for a second one to be written, and for the next press to be another one
    assert [one.decision for one in ada.reviews()[before:]] == ["note", "note", "undo"]
    ada.press("u")
    ada.until(lambda: len(ada.reviews()) == before + 4)
    undone = [one.undoes for one in ada.reviews()[before + 2 :]]
    assert undone == [one.review_id for one in reversed(ada.reviews()[before : before + 2])]


def test_no_proposal_is_offered_before_its_screen_is_seen(ada: Desk) -> None:
    ada.browser.execute_cdp_cmd("Network.enable", {})
    ada.browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/screenshot/*"]})
    ada.open("/live?task=fake/two-steps")
    ada.browser.execute_script("document.querySelector('[name=policy]').value = 'explorer'")
    ada.save()
    ada.until(lambda: "/live/" in ada.browser.current_url)
    ada.until(lambda: "did not load" in ada.text("banner"))
    before = len(ada.reviews())
    ada.press("a", "o")
    assert ada.text("state") == "loading the screen" and len(ada.reviews()) == before
    assert not ada.browser.find_element(By.ID, "editor").is_displayed()
    ada.browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    ada.browser.refresh()
    ada.until(lambda: ada.text("state") == "your turn")
    ada.press("a")
    ada.until(lambda: len(ada.reviews()) == before + 1)
    ada.press("E")
    ada.until(lambda: ada.text("state") == "ended")


@pytest.mark.slow
def test_on_a_phone_the_menu_is_one_line(ada: Desk) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    ada.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    for path in ("/queue", "/"):
        ada.open(path)
        lines = {link.location["y"] for link in ada.browser.find_elements(By.CSS_SELECTOR, ".bar nav a")}
        assert len(lines) == 1
        assert ada.browser.execute_script("return document.documentElement.scrollWidth") <= 390
    ada.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_reply_of_several_actions_is_shown_action_by_action(ada: Desk) -> None:
    """The screen before each tried action with its mark, then the screen after; the third action was not performed."""
    (step,) = ada.lake.read("steps", where={"trajectory_id": ada.reviews()[0].trajectory_id, "step": 0}).to_pylist()
    actions = ['{"type":"click","x":0.25,"y":0.5}', '{"content":"Ada","type":"type"}', '{"type":"finished"}']
    error = "action 2 of 3: no field has the focus; 1 not performed"
    digest = step["screenshot"]
    several = {"actions": actions, "frames": [digest], "next_screenshot": digest, "action_error": error}
    ada.lake.upsert("steps", [step | several])
    ada.open(f"/trajectory/{step['trajectory_id']}")
    ada.until(lambda: ada.text("which") == "before action 1 of 3")
    assert ada.text("action") == 'click (0.250, 0.500); type "Ada"; finished' and ada.text("error") == error
    assert ada.count("#screen .ring:not(.right)") == 1
    for shown, rings in (("before action 2 of 3", 0), ("after", 0), ("before action 1 of 3", 1)):
        ada.press("b")
        ada.until(lambda shown=shown: ada.text("which") == shown)
        assert ada.count("#screen .ring:not(.right)") == rings
    ada.lake.upsert("steps", [step | several | {"action_error": None}])  # the task was over after the second action
    ada.browser.refresh()
    ada.until(lambda: ada.text("action") == 'click (0.250, 0.500); type "Ada"; finished (not performed)')
    ada.lake.upsert("steps", [step])


def test_notes_that_are_put_to_steps_again_take_the_place_of_those_before(ada: Desk) -> None:
    name = ada.reviews()[0].trajectory_id
    ada.open(f"/aloud/{name}")
    notes, first = (ada.browser.find_element(By.CSS_SELECTOR, one) for one in ("#notes", "textarea[data-step='0']"))
    first.send_keys("My own words.")
    for line in ("0:00 the blue one", "0:00 the red one"):
        notes.clear()
        notes.send_keys(line)
        for _ in range(2):
            ada.save()
        ada.until(lambda said=line: (first.get_attribute("value") or "") == f"My own words. {said[5:]}")


def test_no_page_broke_a_rule_of_its_own(ada: Desk) -> None:
    for path in ("/queue", "/funnel", "/live", f"/trajectory/{ada.reviews()[0].trajectory_id}"):
        ada.open(path)
    severe = [one["message"] for one in ada.browser.get_log("browser") if one["level"] == "SEVERE"]
    meant = ("409", "ERR_BLOCKED_BY_CLIENT")
    assert not [said for said in severe if not any(part in said for part in meant)]
