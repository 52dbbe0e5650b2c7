"""Screenshots of a page whose browser does not draw at once."""

import asyncio
import base64
from types import SimpleNamespace
from typing import Any

import pytest

from environments.chromium import page as module
from environments.chromium.page import Page, PageKind
from schemas.failure import SandboxFailure


def page_of(empty: int) -> Page:
    """A page whose first `empty` frames have no picture."""
    frames = iter([*[{"hasDamage": False}] * empty, {"screenshotData": base64.b64encode(b"png").decode()}])

    def send(method: str, params: dict[str, Any], session: str) -> "asyncio.Future[dict[str, Any]]":
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(next(frames))
        return answer

    browser: Any = SimpleNamespace(frames=asyncio.Lock(), connection=SimpleNamespace(send=send))
    return Page(browser, PageKind(160, 210, "", ""), "target", "session")


async def screenshot_of(empty: int) -> bytes:
    return await page_of(empty).screenshot()


@pytest.mark.parametrize("empty", [0, 1, 12])
def test_frames_without_a_picture_are_drawn_again(empty: int) -> None:
    assert asyncio.run(screenshot_of(empty)) == b"png"


def test_a_browser_that_never_draws_is_a_failed_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAWING_S", 0.02)
    with pytest.raises(SandboxFailure, match="no screenshot"):
        asyncio.run(screenshot_of(10_000))
