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


def test_help_loads_nothing_that_reads_a_lake_or_a_config():
    heavy = ("pyarrow", "pandas", "numpy", "duckdb", "deltalake", "polars", "torch", "prefect", "schemas.config")
    code = f"""
import sys
from typer.testing import CliRunner
from apps.cli import make_app
found = CliRunner().invoke(make_app(), ["--help"])
assert found.exit_code == 0 and "status" in found.output
print([name for name in {heavy} if name in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
