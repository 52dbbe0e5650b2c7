"""A page in a sandbox reaches nobody: no host is found, not even this machine by its number."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from environments.chromium.browser import Browser, find_browser
from environments.chromium.page import Page, PageKind

ASKS = """<!DOCTYPE html><body><img src="{at}/img"><script>
window.failed = 0;
const gone = () => {{ window.failed += 1; }};
fetch("{at}/fetch", {{mode: "no-cors"}}).catch(gone);
const socket = new WebSocket("{ws}/socket"); socket.onerror = gone;
const beacon = new Image(); beacon.onerror = gone; beacon.src = "{at}/beacon?secret=1";
</script>"""


def test_a_page_in_a_sandbox_reaches_nobody(tmp_path: Path) -> None:
    asked: list[str] = []

    class Listening(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Listening)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page_file, ground = tmp_path / "page.html", tmp_path / "ground.txt"
    ground.write_text("")
    at = f"127.0.0.1:{server.server_port}"
    page_file.write_text(ASKS.format(at=f"http://{at}", ws=f"ws://{at}"))

    async def look() -> int:
        browser = await Browser.launch(find_browser())
        page = await Page.acquire(browser, PageKind(100, 80, ground.as_uri(), ""))
        await page.open(page_file.as_uri(), "1")
        failed = 0
        for _ in range(100):
            failed = int(await page.evaluate("world.failed"))
            if failed == 3:
                break
            await page.screenshot()
            await asyncio.sleep(0.05)
        await browser.end()
        return failed

    failed = asyncio.run(look())
    server.shutdown()
    assert (failed, asked) == (3, [])
