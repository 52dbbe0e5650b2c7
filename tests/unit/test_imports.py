"""What a process loads before it does anything."""

import subprocess
import sys

import pytest


def test_the_process_of_a_flow_does_not_load_torch_until_a_policy_acts_in_it():
    code = "import sys, flows.flywheel, apps.cli; sys.exit(' '.join({'torch', 'transformers'} & set(sys.modules)) or 0)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, f"loaded: {made.stderr}"


@pytest.mark.parametrize("method", ["sft", "ct", "rft"])
def test_a_stage_that_imitates_leaves_torch_to_its_trainer(method: str):
    code = f"import sys, learning.algorithms.{method}, tasks.train.train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0
