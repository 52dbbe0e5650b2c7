"""What a process loads before it does anything."""

import subprocess
import sys


def test_neither_a_flow_nor_a_stage_that_imitates_loads_torch():
    """Torch is left to the trainer and to the first policy that acts."""
    code = """
import sys, flows.flywheel, apps.cli
import learning.algorithms.sft, learning.algorithms.ct, learning.algorithms.rft, tasks.train.train
sys.exit(' '.join({'torch', 'transformers'} & set(sys.modules)) or 0)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, f"loaded: {made.stderr}"


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
