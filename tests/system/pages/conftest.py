"""All tests of pages need a browser."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def pages_need_a_browser(real_browser: None) -> None:
    """Skips them where there is none."""
