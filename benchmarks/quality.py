"""Measure the seconds and the memory of the quality gate at size, and of the quality page.

`python -m benchmarks.quality [--short] [--lakes DIR] --json PATH`

The gate runs in a process of its own over every table of an iteration of 1,034,000 steps, 517,000 trajectories and
2,068,000 verdicts (`benchmarks.tables.wide`), and over a tenth of it. The time is from the start of the process to the
last result with its Data Docs; it includes the import of Great Expectations, which is also given alone. Memory is the
sampled maximum of the process (`benchmarks.peak_memory`). The quality page is of a lake whose gate checked 1,000
iterations, from the lake to the last byte.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from deltalake import write_deltalake

from apps.quality.gather import quality_of
from apps.quality.page import render
from benchmarks.harness import Bar, add_options, finish
from benchmarks.peak_memory import PeakMemory
from benchmarks.tables.wide import fill_iterations
from schemas.config import config_of
from schemas.config.sections import LakeConfig
from schemas.tables import TABLES
from schemas.tables.quality import QualityResult
from storage import upkeep
from storage.lake import Lake

SIZES = {False: 517_000, True: 20_000}
"""Trajectories of a full and of a short run."""
PART = 10
"""Share of the trajectories in the second, smaller measurement."""
MOST_S, MOST_GIB, MOST_PAGE_S = 10.0, 1.0, 0.3
PAGE_ITERATIONS = 1000


def gate(uri: str, docs: Path) -> dict[str, Any]:
    """The gate over iteration 0, in this process."""
    from storage.quality.gate import run_gate

    began = time.perf_counter()
    import great_expectations
    import great_expectations.expectations  # noqa: F401

    imported = time.perf_counter()
    results = run_gate(_lake(uri), 0, TABLES, docs)
    done = time.perf_counter()
    return {
        "import_s": imported - began,
        "work_s": done - imported,
        "cpu_s": time.process_time(),
        "checks": len(results),
        "failed": sum(not one.success for one in results),
    }


def measure(uri: str, trajectories: int, folder: Path) -> dict[str, Any]:
    """Measure the gate in a process of its own, over a lake that is made if it is missing."""
    lake = _lake(uri)
    if not lake.count("trajectories"):
        fill_iterations(lake, trajectories)
    began = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.quality", "--gate", uri, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, PeakMemory(process.pid, 0.05) as watched:
        printed, _ = process.communicate()
    wall = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{command}: exit status {process.returncode}")
    rows = {name: lake.count(name) for name in ("trajectories", "steps", "verdicts")}
    return {"what": "gate", **rows, "all_s": wall, **json.loads(printed), "gib": watched.peak.gib}


def page(uri: str) -> dict[str, Any]:
    """The quality page of a lake whose gate has checked a thousand iterations: the first time, and the median."""
    config = config_of({"lake": {"uri": uri}, "suite": {"tasks": ["click-test"], "held_out": []}})
    lake, contract = Lake.open(config.lake), TABLES["quality"]
    names = [f"Expect{number}(column)" for number in range(120)]
    rows = [_found(at, name, not (at % 7 == 0 and name == names[3])) for at in range(PAGE_ITERATIONS) for name in names]
    write_deltalake(
        f"{lake.uri}/tables/quality",
        contract.arrow(rows),
        partition_by=list(contract.partition_by),
        configuration=upkeep.configuration(contract),
    )
    lake, took, size = Lake.open(config.lake), list[float](), 0
    for _ in range(7):
        began = time.perf_counter()
        size = len(render(config, quality_of(lake, None)))
        took.append(time.perf_counter() - began)
    return {
        "what": f"page after {PAGE_ITERATIONS} iterations", "checks": len(rows), "all_s": statistics.median(took),
        "first_s": took[0], "page_kb": size / 1000,
    }  # fmt: skip


def _found(iteration: int, name: str, success: bool) -> QualityResult:
    return QualityResult(
        iteration=iteration, table="trajectories", expectation=name, severity="critical" if success else "warning",
        success=success, observed="0 of 1000 unexpected", unexpected=int(not success),
        examples="[]" if success else json.dumps([{"trajectory_id": f"t{n}"} for n in range(10)]), error=None,
        because="a trajectory of many minutes points at a stuck sandbox", value=0.0,
    )  # fmt: skip


def main() -> int:
    """Measure the gate at two sizes, then the page."""
    parser = add_options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--lakes", type=Path, help="where the lakes are kept")
    parser.add_argument("--gate", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.gate:
        uri, folder = chosen.gate
        print(json.dumps(gate(uri, Path(folder))))
        return 0
    count = SIZES[chosen.short]
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.lakes or Path(scratch)
        rows = [measure(str(folder / str(size)), size, Path(scratch) / "gate") for size in (count, count // PART)]
        paged = page(str(Path(scratch) / "pages"))
    whole = rows[0]
    bars = [
        Bar(f"seconds for {whole['steps']:,} steps", whole["all_s"], MOST_S, "lower"),
        Bar(f"GiB for {whole['steps']:,} steps", whole["gib"], MOST_GIB, "lower"),
        Bar("failed checks of sound data", whole["failed"], 0, "lower"),
        Bar(f"seconds to the quality page after {PAGE_ITERATIONS} iterations", paged["all_s"], MOST_PAGE_S, "lower"),
    ]
    return finish("quality", [*rows, paged], bars, chosen, [rows, [paged]])


def _lake(uri: str) -> Lake:
    return Lake.open(LakeConfig(uri=uri))


if __name__ == "__main__":
    sys.exit(main())
