"""verifiers' own package plays our sandboxes, where `FLYWHEEL_VERIFIERS_PYTHON` names a Python that has it
(docs/sandboxes.md says how to make one)."""

import base64
import io
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.tiers import lacks
from tests.unit.apps.sandboxes.served import served_apart, serving
from tests.unit.environments.openenv.test_faces import _button

PYTHON = os.environ.get("FLYWHEEL_VERIFIERS_PYTHON", "")
PEER = Path(__file__).parents[1] / "parts" / "verifiers_peer.py"
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(
    not PYTHON,
    reason=lacks(
        "no verifiers in FLYWHEEL_VERIFIERS_PYTHON", "pip install verifiers==0.4.0 (docs/sandboxes-for-verl.md)"
    ),
)


class Model(BaseHTTPRequestHandler):
    """A chat model that first says something else, then clicks the button that it sees."""

    def do_POST(self) -> None:
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        turns = [one for one in messages if one["role"] == "user"]
        picture, text = turns[-1]["content"]
        said = {"role": "assistant", "content": "Let me see." if len(turns) == 1 else "[1, 2]"}
        if len(turns) == 2:
            assert text["text"] == "That is not a JSON action."
        if len(turns) == 3:
            assert "type" in text["text"]
            content = base64.b64decode(picture["image_url"]["url"].partition(",")[2])
            point = _button(Image.open(io.BytesIO(content)).convert("RGB"))
            said["content"] = f"```json\n{json.dumps({'type': 'click', **point})}\n```"
        about = {"id": "1", "created": 1, "model": "scripted", "object": "chat.completion.chunk"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        parts = [
            {**about, "choices": [{"index": 0, "delta": said, "finish_reason": None}]},
            {**about, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**about, "choices": [], "usage": usage},
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in (*map(json.dumps, parts), "[DONE]"):
            self.wfile.write(f"data: {part}\n\n".encode())

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def answering() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()


def test_verifiers_own_loop_plays_a_task_and_an_outage_is_no_reward(tmp_path: Path) -> None:
    (tmp_path / "flywheel_gui.py").write_text(
        "from environments.openenv.verifiers import GuiTaskset, VerifiersGuiEnv\n\n"
        "__all__ = ['GuiTaskset', 'VerifiersGuiEnv']\n"
    )
    resets = [{"task_id": "click-one", "seed": 5}, {"task_id": "dies", "seed": 3}, {"task_id": "nothing", "seed": 1}]
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    variables["PATH"] = f"{Path(PYTHON).parent}:{variables['PATH']}"
    with served_apart(serving(sandboxes=1)) as url, answering() as model:
        command = [PYTHON, str(PEER), url, model, json.dumps(resets)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=variables, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    played, died, unknown = (json.loads(line) for line in done.stdout.splitlines())
    assert played == {"task": "click-one#5", "ok": True, "rewards": [1.0], "turns": [3], "errors": []}
    assert not died["ok"] and died["rewards"] == [] and "sandbox: the fake box died" in died["errors"][0]
    assert not unknown["ok"] and "nothing" in unknown["errors"][0]
