"""What a process loads before it does anything."""

import subprocess
import sys


def test_the_process_of_a_flow_does_not_load_torch_until_a_policy_acts_in_it():
    code = "import sys, flows.flywheel, apps.cli; sys.exit(' '.join({'torch', 'transformers'} & set(sys.modules)) or 0)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, f"loaded: {made.stderr}"
