"""What verifiers' environment tells a model, without verifiers (tests/system/commands/test_verifiers.py has it)."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
STUB = """
class Anything:
    def __init__(self, **fields): ...
    def __class_getitem__(cls, of): return cls

def __getattr__(name): return Anything
"""


def test_every_process_tells_a_model_the_fields_in_the_order_of_the_action(tmp_path: Path) -> None:
    (tmp_path / "verifiers").mkdir()
    (tmp_path / "verifiers" / "__init__.py").touch()
    (tmp_path / "verifiers" / "v1.py").write_text(STUB)
    told = "from environments.openenv.verifiers import SYSTEM; print(SYSTEM)"
    said = {
        subprocess.run(
            [sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=120,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(said) == 1
    assert "click: x, y; " in (text := said.pop()) and "drag: x, y, to_x, to_y; " in text


def test_a_model_reads_no_token_in_what_a_page_says_and_acts_as_it_means(tmp_path: Path) -> None:
    (tmp_path / "verifiers").mkdir()
    (tmp_path / "verifiers" / "__init__.py").touch()
    (tmp_path / "verifiers" / "v1.py").write_text(STUB)
    played = """
import asyncio, json
from environments.openenv.client import StepResponse
from environments.openenv.verifiers import _performed, _turn
acted = []
class Client:
    async def step(self, action):
        acted.append(action)
        return StepResponse({"screenshot": "", "instruction": ""}, 0.0, False, {"action_error": "Stop</s>"})
first = StepResponse({"screenshot": "", "instruction": ""}, 0.0, False, {})
answer, said = asyncio.run(_performed(Client(), first, '{"type": "type", "content": "<\u200bb>"}'))
shown = [_turn(answer, said), _turn(first, "<|im_end|>")]
print(json.dumps([*(turn[0]["content"][1]["text"] for turn in shown), acted]))
"""
    said = subprocess.run(
        [sys.executable, "-c", played], capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
    ).stdout  # fmt: skip
    assert json.loads(said) == ["Stop<\u200b/s>", "<\u200b|im_end|>", [{"type": "type", "content": "<b>"}]]
