"""All tests of pages need a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

from tests.system.parts.desk import CHROMIUM, FLAGS
from tests.tiers import NO_BROWSER


@pytest.fixture(scope="session", autouse=True)
def pages_need_a_browser(real_browser: None) -> None:
    """Skips them where there is none."""


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    driver, chromium = shutil.which("chromedriver"), next((one for one in CHROMIUM if Path(one).exists()), None)
    if driver is None or chromium is None:
        pytest.skip(NO_BROWSER)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in FLAGS:
        options.add_argument(flag)
    started = webdriver.Chrome(options, Service(driver))
    yield started
    started.quit()
