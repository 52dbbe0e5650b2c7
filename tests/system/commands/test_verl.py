"""verl's own agent loop acts in our sandboxes, where `FLYWHEEL_VERL_PYTHON` names a Python that has it
(docs/sandboxes.md says how to make one)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.tiers import lacks
from tests.unit.apps.sandboxes.served import served_apart, serving

PYTHON = os.environ.get("FLYWHEEL_VERL_PYTHON", "")
PEER = Path(__file__).parents[1] / "parts" / "verl_peer.py"
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(
    not PYTHON,
    reason=lacks(
        "no verl in FLYWHEEL_VERL_PYTHON", "pip install 'verl[verl-core]==0.9.1' (docs/sandboxes-for-verl.md)"
    ),
)


def test_verls_own_loop_and_scoring_play_our_sandboxes_and_an_outage_is_no_sample(tmp_path: Path) -> None:
    one = serving(sandboxes=2)
    with served_apart(one) as url:
        command = [PYTHON, str(PEER), url, str(tmp_path)]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=variables, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    *lines, together = map(json.loads, done.stdout.splitlines())
    found = {line["uid"]: line for line in lines}
    ended = {uid: (line["status"], line["score"], line["sample"], line["images"]) for uid, line in found.items()}
    assert ended == {
        "cut": ("finished", 0.0, True, 3),
        "pressed": ("finished", 1.0, True, 2),
        "silent": ("finished", 0.0, True, 0),
        "several": ("finished", 1.0, True, 3),
        "dies": ("failure", None, False, 0),
        "unknown": ("failure", None, False, 0),
    }
    kept = {"global_steps", "tool_rewards", "turn_scores"}
    assert all(kept <= set(line["fields"]) <= kept | {"raw_prompt", "reward_extra_info"} for line in lines)
    assert together == 4
    assert one.leased["fake"] == 0
